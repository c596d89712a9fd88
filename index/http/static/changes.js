// The latest changes of a collection, as they arrive. A broken stream is resumed from its last label.

import { events, within } from "./api.js";
import { byId, make } from "./dom.js";
import { clock, timeOf } from "./format.js";

const SHOWN = 12;
const DRAW_MS = 200;
const RESUME_MS_MAX = 60_000; // after a longer interruption the list starts empty
const [RETRY_MS, RETRY_MS_MAX] = [500, 8000];

/** `onState`: called with whether the stream is open. */
export class Changes {
  constructor(onState) {
    this.onState = onState;
    this.latest = [];
    this.drawing = 0;
    this.paused = false;
    this.following = null;
    this.from = undefined; // the last label
    this.disconnectedAt = 0;
    // A browser allows few connections to one server, so a hidden page keeps none.
    document.addEventListener("visibilitychange", () => (document.hidden ? this.disconnect() : this.connect()));
    window.addEventListener("pagehide", () => this.disconnect());
    window.addEventListener("pageshow", () => this.connect());
    byId("pause").addEventListener("click", () => {
      this.paused = !this.paused;
      byId("pause").setAttribute("aria-pressed", this.paused);
      this.draw();
    });
  }

  /** Follow a collection instead of the previous one. */
  use(collection) {
    this.disconnect();
    this.collection = collection;
    this.reset();
    if (!document.hidden) this.connect();
  }

  disconnect() {
    this.following?.abort();
    this.following = null;
    this.disconnectedAt = Date.now();
  }

  connect() {
    if (this.following || !this.collection) return;
    if (Date.now() > this.disconnectedAt + RESUME_MS_MAX) this.reset();
    this.follow((this.following = new AbortController()));
  }

  reset() {
    this.from = undefined;
    this.latest = [];
    this.draw();
  }

  async follow(following) {
    let pause = RETRY_MS;
    while (!following.signal.aborted) {
      try {
        const stream = events(within(this.collection.name, "changes"), { query: { from: this.from }, signal: following.signal });
        for await (const { id, name, data } of stream) {
          if (following.signal.aborted) return;
          [this.from, pause] = [id || this.from, RETRY_MS];
          this.onState(true);
          if (name === "message") this.take(data);
          else if (name === "error" && data.error.code === "retained") this.from = undefined;
        }
      } catch (error) {
        if (error.status === 410) this.from = undefined; // changes from this label on are no longer retained
        if (error.status === 401 || error.status === 403) return;
      }
      if (following.signal.aborted) return;
      this.onState(false);
      await new Promise((done) => setTimeout(done, pause));
      pause = Math.min(2 * pause, RETRY_MS_MAX);
    }
  }

  take(change) {
    this.latest.unshift(change);
    this.latest.length = Math.min(this.latest.length, SHOWN);
    this.drawing ||= setTimeout(() => this.draw(), DRAW_MS);
  }

  draw() {
    clearTimeout(this.drawing);
    this.drawing = 0;
    if (this.paused) return;
    byId("no-changes").hidden = this.latest.length > 0;
    byId("changes").replaceChildren(...this.latest.map((change) => this.line(change)));
  }

  line({ id, label, deleted, document }) {
    const title = document?.[this.collection.titleField];
    const text = deleted ? "deleted" : typeof title === "string" ? title.slice(0, 120) : "";
    return make("li", { class: deleted ? "deleted" : null },
      make("time", { class: "faint" }, clock(timeOf(label))), " ", make("code", {}, id), " ", make("span", {}, text));
  }
}
