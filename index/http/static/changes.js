// The latest changes of a collection, as they come. Where the stream breaks off, it goes on by its last label.

import { events, within } from "./api.js";
import { byId, make } from "./dom.js";
import { clock, timeOf } from "./format.js";

const SHOWN = 12;
const DRAW_MS = 200;
const FORGET_MS = 60_000; // who was away for longer begins anew
const [AGAIN_MS, AGAIN_MS_MAX] = [500, 8000];

/** `state`: is told whether the stream is open. */
export class Changes {
  constructor(state) {
    this.state = state;
    this.latest = [];
    this.drawing = 0;
    this.paused = false;
    this.following = null;
    this.from = undefined; // the last label
    this.leftAt = 0;
    // A browser has few connections to one server: a page that nobody sees holds none.
    document.addEventListener("visibilitychange", () => (document.hidden ? this.leave() : this.come()));
    window.addEventListener("pagehide", () => this.leave());
    window.addEventListener("pageshow", () => this.come());
    byId("pause").addEventListener("click", () => {
      this.paused = !this.paused;
      byId("pause").setAttribute("aria-pressed", this.paused);
      this.draw();
    });
  }

  /** Follow a collection, in place of the one before. */
  use(collection) {
    this.leave();
    this.collection = collection;
    this.forget();
    if (!document.hidden) this.come();
  }

  leave() {
    this.following?.abort();
    this.following = null;
    this.leftAt = Date.now();
  }

  come() {
    if (this.following || !this.collection) return;
    if (Date.now() > this.leftAt + FORGET_MS) this.forget();
    this.follow((this.following = new AbortController()));
  }

  forget() {
    this.from = undefined;
    this.latest = [];
    this.draw();
  }

  async follow(following) {
    let pause = AGAIN_MS;
    while (!following.signal.aborted) {
      try {
        const stream = events(within(this.collection.name, "changes"), { query: { from: this.from }, signal: following.signal });
        for await (const { id, name, data } of stream) {
          if (following.signal.aborted) return;
          [this.from, pause] = [id || this.from, AGAIN_MS];
          this.state(true);
          if (name === "message") this.take(data);
          else if (name === "error" && data.error.code === "retained") this.from = undefined;
        }
      } catch (error) {
        if (error.status === 410) this.from = undefined; // what is missing is not there any more
        if (error.status === 401 || error.status === 403) return;
      }
      if (following.signal.aborted) return;
      this.state(false);
      await new Promise((done) => setTimeout(done, pause));
      pause = Math.min(2 * pause, AGAIN_MS_MAX);
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
