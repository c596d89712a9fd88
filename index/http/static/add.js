// The form that adds a document. It shows after what time the document was durable, and found.

import { request, within } from "./api.js";
import { byId, make } from "./dom.js";
import { duration } from "./format.js";

/** `onFound`: called with the milliseconds from the submission until a search found the document. */
export class Add {
  constructor(search, onFound) {
    this.search = search;
    this.onFound = onFound;
    this.fields = [];
    byId("add").addEventListener("submit", (event) => {
      event.preventDefault();
      this.submit();
    });
  }

  /** Show an input for each field of a collection. */
  use(collection) {
    this.collection = collection;
    this.id = make("input", { id: "document-id", placeholder: "generated if empty", maxlength: 512, spellcheck: "false" });
    this.fields = collection.fields.map((field) => ({ ...field, input: input(field, collection) }));
    const row = (text, input) => make("div", { class: "field" }, make("label", { for: input.id }, text), input);
    byId("fields").replaceChildren(row("id", this.id), ...this.fields.map(({ name, input }) => row(name, input)));
  }

  async submit() {
    const written = {};
    for (const { name, kind, input } of this.fields) {
      if (input.value.trim()) written[name] = value(kind, input.value.trim());
    }
    const id = this.id.value || randomId();
    const began = performance.now();
    this.showStatus("…");
    let label;
    try {
      const path = within(this.collection.name, `documents/${encodeURIComponent(id)}`);
      ({ data: { label } } = await request(path, { method: "PUT", body: written }));
    } catch (error) {
      return this.showStatus(error.message, true);
    }
    const durable = performance.now() - began;
    if (!this.search.text) this.search.box.value = longest(written);
    const answer = await this.search.now(label);
    const ms = performance.now() - began;
    if (!answer) return this.showStatus(`Durable after ${duration(durable)}.`);
    this.onFound(ms);
    const hit = [...byId("hits").children].find((each) => each.dataset.id === id);
    hit?.classList.add("new");
    const what = hit ? "found" : "visible to searches";
    this.showStatus(`Durable after ${duration(durable)}, ${what} after ${duration(ms)}.`);
    for (const { input } of [this, ...this.fields].map((each) => ({ input: each.input ?? each.id }))) input.value = "";
  }

  showStatus(text, isProblem = false) {
    byId("added").textContent = text;
    byId("added").classList.toggle("problem", isProblem);
  }
}

function input({ name, kind }, collection) {
  const id = `field-${name}`;
  if (kind === "text" && name !== collection.titleField) return make("textarea", { id, rows: 3 });
  if (kind === "number") return make("input", { id, type: "number", step: "any" });
  if (kind === "date") return make("input", { id, type: "date" });
  return make("input", { id, placeholder: kind === "keyword" ? "one, or several separated by commas" : null });
}

function value(kind, text) {
  if (kind === "number") return Number(text);
  if (kind !== "keyword" || !text.includes(",")) return text;
  return text.split(",").map((each) => each.trim()).filter(Boolean);
}

function randomId() {
  return [...crypto.getRandomValues(new Uint8Array(6))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Return the longest word of a document. */
function longest(written) {
  const found = Object.values(written).filter((each) => typeof each === "string").join(" ").match(/[\p{L}\p{N}]+/gu) ?? [];
  return found.reduce((a, b) => (b.length > a.length ? b : a), "");
}
