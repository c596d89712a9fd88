// Search as you type. Only the answer to the newest query is shown; a new search cancels the previous request.

import { request, within } from "./api.js";
import { byId, make, marked } from "./dom.js";
import { clock, duration, several, timeOf } from "./format.js";

const PAUSE_MS = 70;

/** `onAnswer`: called with the result of `request` for each search. */
export class Search {
  constructor(onAnswer) {
    this.onAnswer = onAnswer;
    this.collection = null;
    this.asking = null;
    this.timer = 0;
    this.cursor = null;
    this.box = byId("q");
    this.box.addEventListener("input", () => this.soon());
    byId("search").addEventListener("submit", (event) => {
      event.preventDefault();
      this.now();
    });
    byId("more").addEventListener("click", () => this.more());
  }

  get text() { return this.box.value.trim(); }

  soon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.now(), PAUSE_MS);
  }

  /** Search as of a T that includes the write with the label `after`, if given. Resolves to the answer, or null. */
  async now(after) {
    clearTimeout(this.timer);
    this.remember();
    this.asking?.abort();
    if (!this.text) {
      this.asking = null;
      this.show(null);
      return null;
    }
    return this.ask({ after }, (found) => this.show(found));
  }

  async more() {
    const before = byId("hits").childElementCount;
    await this.ask({ cursor: this.cursor }, (found) => {
      this.append(found);
      byId("hits").children[before]?.querySelector("button").focus();
    });
  }

  async ask(query, show) {
    const asking = (this.asking = new AbortController());
    const q = this.box.value;
    const field = this.collection.titleField;
    byId("hits").setAttribute("aria-busy", "true");
    try {
      const found = await request(within(this.collection.name, "search"), { query: { q, field, ...query }, signal: asking.signal });
      if (this.asking !== asking) return null;
      this.problem(null);
      show(found);
      if (!query.after) this.onAnswer(found); // with `after`, the time would include the wait for the write
      return found.data;
    } catch (error) {
      if (error.name !== "AbortError" && this.asking === asking) this.problem(error);
      return null;
    } finally {
      if (this.asking === asking) byId("hits").removeAttribute("aria-busy");
    }
  }

  show(found) {
    byId("hits").replaceChildren();
    byId("forms").hidden = found !== null;
    byId("more").hidden = true;
    if (found) return this.append(found);
    this.problem(null);
    byId("summary").textContent = byId("timing").textContent = "";
  }

  append({ data, ms, serverMs }) {
    byId("hits").append(...data.hits.map((hit) => this.hit(hit, data.at)));
    byId("summary").textContent = data.total ? several(data.total, "document") : "No document matches.";
    const inside = serverMs === null ? "" : `, ${duration(serverMs)} of it in the service`;
    byId("timing").textContent = `in ${duration(ms)}${inside} · as of ${clock(timeOf(data.at))}`;
    this.cursor = data.cursor ?? null;
    byId("more").hidden = !this.cursor;
  }

  problem(error) {
    this.box.setAttribute("aria-invalid", error !== null);
    byId("hits").classList.toggle("old", error !== null);
    const shown = error === null ? [] : [make("p", {}, error.message)];
    if (error?.picture) shown.push(make("pre", { "aria-hidden": "true" }, error.picture));
    byId("problem").replaceChildren(...shown);
  }

  hit(hit, at) {
    const title = hit.fields?.[this.collection.titleField];
    const whole = make("div", { class: "document", hidden: true });
    const button = make("button", {
      type: "button", class: "title", "aria-expanded": "false", title: "Show the document",
      onclick: () => this.open(hit, at, whole, button),
    }, typeof title === "string" && title.trim() ? title.slice(0, 200) : hit.id);
    return make("li", { "data-id": hit.id },
      make("h3", {}, button),
      make("p", { class: "snippet" }, ...marked(hit.snippet ?? "")),
      make("p", { class: "faint" }, make("code", {}, hit.id), ` · ${hit.score.toFixed(3)} · ${clock(timeOf(hit.label))}`),
      whole);
  }

  async open(hit, at, whole, button) {
    whole.hidden = !whole.hidden;
    button.setAttribute("aria-expanded", !whole.hidden);
    if (whole.hidden || whole.childElementCount) return;
    const text = make("pre", { tabindex: "0", "aria-label": "The document" }, "…");
    whole.append(text);
    try {
      const { data } = await request(within(this.collection.name, `documents/${encodeURIComponent(hit.id)}`), { query: { at } });
      text.textContent = JSON.stringify(data.document, null, 2);
    } catch (error) {
      text.textContent = error.message;
    }
  }

  /** Put the query and the collection into the page's address, for bookmarks and links. */
  remember() {
    const url = new URL(document.URL);
    const { q, collection } = { q: this.text, collection: this.collection.only ? "" : this.collection.name };
    for (const [name, value] of Object.entries({ q, collection })) {
      value ? url.searchParams.set(name, value) : url.searchParams.delete(name);
    }
    history.replaceState(null, "", url);
  }
}
