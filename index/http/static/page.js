// The page of an index: creates its parts and connects them.

import { Add } from "./add.js";
import { access, request } from "./api.js";
import { Changes } from "./changes.js";
import { byId, make } from "./dom.js";
import { Search } from "./search.js";
import { Service } from "./service.js";

const RETRY_MS = 2000;

const service = new Service(showState);
const search = new Search((found) => service.searched(found));
const add = new Add(search, (ms) => service.added(ms));
const changes = new Changes((open) => open && showState(true));

let isRunning = false;

async function start() {
  const { data } = await request("collections");
  const collections = data.collections.map((each) => ({ ...each, titleField: titleOf(each), only: data.collections.length === 1 }));
  const asked = new URL(document.URL).searchParams;
  const picker = byId("collection");
  picker.replaceChildren(...collections.map(({ name }) => make("option", { value: name }, name)));
  byId("collections").hidden = collections.length < 2;
  const use = (collection) => {
    picker.value = collection.name;
    search.collection = collection;
    add.use(collection);
    changes.use(collection);
    search.now();
  };
  picker.onchange = () => use(collections[picker.selectedIndex]);
  if (asked.has("q")) search.box.value = asked.get("q");
  use(collections.find(({ name }) => name === asked.get("collection")) ?? collections.find(({ name }) => name === "documents") ?? collections[0]);
  if (!isRunning) service.follow();
  isRunning = true;
}

/** Return the name of the field that is shown as a document's title. */
function titleOf({ fields }) {
  const texts = fields.filter(({ kind }) => kind === "text" || kind === "keyword").map(({ name }) => name);
  return texts.includes("title") ? "title" : texts[0];
}

function showState(isReachable, error) {
  const text = isReachable ? (error ? error.message : "connected") : "no answer; retrying";
  byId("dot").classList.toggle("good", isReachable && !error);
  byId("dot").classList.toggle("bad", !isReachable);
  if (byId("state").textContent !== text) byId("state").textContent = text;
}

async function begin() {
  try {
    await start();
  } catch (error) {
    showState(error.status !== 0 && error.status !== undefined, error);
    if (error.status === undefined) throw error;
    if (error.status !== 401 && error.status !== 403) setTimeout(begin, RETRY_MS);
  }
}

// Access.

const dialog = byId("token-dialog");

let isDeclined = false; // after a cancel, the dialog opens only on request

access.needed = () => {
  byId("ask-token").hidden = false;
  if (dialog.open || isDeclined) return;
  byId("token-text").textContent = access.token
    ? "The service does not accept this token. Another one is kept until this tab is closed."
    : "This service requires an access token. It is kept until this tab is closed.";
  dialog.showModal();
};

byId("ask-token").addEventListener("click", () => dialog.showModal());
byId("ask-token").hidden = !access.token;
dialog.addEventListener("cancel", () => (isDeclined = true));
byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  isDeclined = event.submitter?.value === "cancel";
  dialog.close();
  if (isDeclined) return;
  access.token = byId("token").value.trim();
  byId("token").value = "";
  begin();
});

// Keys.

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest?.("input, textarea, select, dialog");
  if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    search.box.focus();
    search.box.select();
  }
});

begin();
