// The figures of the service, read every two seconds: as tiles, as charts, and for each part.

import { figures } from "./api.js";
import { Chart, linear, logarithmic } from "./charts.js";
import { byId, make } from "./dom.js";
import { clock, count, duration, figure, several, words } from "./format.js";

const EVERY_MS = 2000;
const THIS_PAGE = "this page";
const RATE_SAMPLES = 3; // a rate is computed over this many samples

/** `onState`: called with whether the service can be reached, and with the error, if any. */
export class Service {
  constructor(onState) {
    this.onState = onState;
    this.samples = [];
    const common = { show: duration, scale: logarithmic };
    const delays = { [THIS_PAGE]: "dots", median: "line", "99 %": "line" };
    this.freshness = new Chart(byId("freshness-chart"), { ...common, series: delays, title: "Freshness", note: "from a write until it is visible" });
    this.latency = new Chart(byId("latency-chart"), { ...common, series: { [THIS_PAGE]: "dots" }, title: "Queries", note: "from a query to its answer" });
    this.rate = new Chart(byId("rate-chart"), { title: "Writes per second", note: "", series: { written: "line" }, show: count, scale: linear });
  }

  added(ms) { this.mine(this.freshness, ms); }

  searched({ ms }) { this.mine(this.latency, ms); }

  mine(chart, ms) {
    chart.add(THIS_PAGE, ms);
    chart.draw();
  }

  async follow() {
    while (true) {
      if (!document.hidden) await this.look();
      await new Promise((done) => setTimeout(done, EVERY_MS));
    }
  }

  async look() {
    try {
      this.show(await figures());
      this.onState(true);
    } catch (error) {
      this.onState(error.status !== 0, error);
    }
  }

  show(figures) {
    const { flow = {}, gateway = {}, journal = {} } = figures;
    const now = Date.now();
    const rate = this.rateOf(flow.records ?? 0, now);
    if (rate !== null) this.rate.add("written", rate, now);
    const [median, p99] = [gateway.delay_p50_s, gateway.delay_p99_s];
    if (median !== undefined) {
      this.freshness.add("median", median * 1000, now);
      this.freshness.add("99 %", p99 * 1000, now);
    }
    for (const chart of [this.freshness, this.latency, this.rate]) chart.draw(now);
    const documents = Object.values(figures).map((part) => part.documents).filter((n) => n !== undefined);
    tiles({
      Documents: [documents.length ? count(documents.reduce((a, b) => a + b)) : "–"],
      "Writes per second": [rate === null ? "–" : count(Math.round(rate * 10) / 10), `${count(flow.waiting ?? 0)} waiting`],
      Freshness: median === undefined ? ["–"] : [duration(median * 1000), `99 %: ${duration(p99 * 1000)}`],
      "T of the journal": [journal.time ? clock(journal.time) : "–", "all earlier writes are processed"],
    });
    parts(figures);
  }

  rateOf(records, at) {
    if (this.samples.length && records < this.samples.at(-1).records) this.samples = []; // a new state directory
    this.samples = [...this.samples, { records, at }].slice(-RATE_SAMPLES);
    const [first, last] = [this.samples[0], this.samples.at(-1)];
    return last.at > first.at ? (last.records - first.records) / ((last.at - first.at) / 1000) : null;
  }
}

function tiles(values) {
  byId("tiles").replaceChildren(...Object.entries(values).map(([name, value]) => make("div", {},
    make("dt", {}, name), ...value.map((text, i) => make("dd", { class: i ? "faint" : null }, text)))));
}

function parts(figures) {
  const holder = byId("parts");
  for (const [part, values] of Object.entries(figures)) {
    let card = holder.querySelector(`[data-part="${CSS.escape(part)}"]`);
    if (!card) {
      card = make("details", { "data-part": part }, make("summary", {}, make("b", {}, part), " ", make("span", { class: "faint" })), make("dl"));
      holder.append(card);
    }
    card.querySelector("span").textContent = brief(values);
    card.querySelector("dl").replaceChildren(...Object.entries(values).map(([name, value]) =>
      make("div", {}, make("dt", {}, words(name)), make("dd", {}, figure(name, value)))));
  }
  for (const card of [...holder.children]) if (!(card.dataset.part in figures)) card.remove();
}

function brief({ time, completed_time, documents, nodes }) {
  const facts = [];
  if (nodes !== undefined) facts.push(several(nodes, "node"));
  if (documents !== undefined) facts.push(several(documents, "document"));
  if (time || completed_time) facts.push(`T ${clock(time || completed_time)}`);
  return facts.join(" · ");
}
