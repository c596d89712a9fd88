// Small charts of the last minutes.

import { draw, make } from "./dom.js";

export const SPAN_MS = 5 * 60_000;

const HEIGHT = 150;
const [LEFT, RIGHT, TOP, BOTTOM] = [46, 8, 8, 20];
const GAP_MS = 8000; // a longer time without a value interrupts a line

/**
 * `series`: {name: "line" or "dots"}; `show`: formats a value; `scale`: takes the largest value, and returns `place`, the
 * function from a value to its height from 0 to 1, and `ticks`, the values of the grid lines.
 */
export class Chart {
  constructor(figure, { title, series, show, scale, note }) {
    this.title = title;
    this.series = Object.entries(series).map(([name, kind], number) => ({ name, kind, number, values: [] }));
    this.show = show;
    this.scale = scale;
    this.svg = draw("svg", { role: "img", height: HEIGHT });
    this.keys = make("ul", { class: "keys" });
    figure.replaceChildren(make("figcaption", {}, make("strong", {}, title), " ", make("span", { class: "faint" }, note)), this.svg, this.keys);
    new ResizeObserver(() => this.draw()).observe(figure);
  }

  add(name, value, at = Date.now()) {
    const { values } = this.series.find((each) => each.name === name);
    values.push({ at, value });
    while (values[0].at < at - SPAN_MS) values.shift();
  }

  draw(now = Date.now()) {
    const width = Math.max(this.svg.parentElement.clientWidth, 120);
    this.svg.setAttribute("width", width);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const seen = this.series.flatMap(({ values }) => values).filter(({ at }) => at >= now - SPAN_MS);
    const { place, ticks } = this.scale(Math.max(...seen.map(({ value }) => value), 0));
    const x = (at) => LEFT + (1 - (now - at) / SPAN_MS) * (width - LEFT - RIGHT);
    const y = (value) => TOP + (1 - Math.min(Math.max(place(value), 0), 1)) * (HEIGHT - TOP - BOTTOM);
    const parts = ticks.flatMap((tick) => [
      draw("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick) }),
      draw("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, this.show(tick)),
    ]);
    for (let minute = 0; minute <= SPAN_MS / 60_000; minute++) {
      const anchor = minute === 0 ? "end" : "middle";
      const text = minute === 0 ? "now" : `−${minute} min`;
      if (minute % 2 === 0) parts.push(draw("text", { x: x(now - minute * 60_000), y: HEIGHT - 4, "text-anchor": anchor }, text));
    }
    for (const { kind, number, values } of this.series) {
      const inside = values.filter(({ at }) => at >= now - SPAN_MS);
      if (kind === "dots") parts.push(...inside.map(({ at, value }) => draw("circle", { class: `s${number}`, r: 2.6, cx: x(at), cy: y(value) })));
      else parts.push(draw("path", { class: `s${number}`, d: path(inside, x, y) }));
    }
    this.svg.replaceChildren(...parts);
    this.updateLegend(seen.length > 0);
  }

  updateLegend(hasValues) {
    const entries = this.series.map(({ name, number, values }) => [name, number, values.length ? this.show(values.at(-1).value) : "–"]);
    this.keys.replaceChildren(...entries.map(([name, number, value]) => make("li", { class: `s${number}` }, `${name} `, make("b", {}, value))));
    const text = hasValues ? entries.map(([name, , value]) => `${name} ${value}`).join(", ") : "no values yet";
    this.svg.setAttribute("aria-label", `${this.title}, now: ${text}`);
  }
}

function path(values, x, y) {
  return values.map(({ at, value }, i) => {
    const begins = i === 0 || at - values[i - 1].at > GAP_MS;
    const ends = i === values.length - 1 || values[i + 1].at - at > GAP_MS;
    const dot = begins && ends ? "h0.01" : ""; // makes a single point visible
    return `${begins ? "M" : "L"}${x(at).toFixed(1)} ${y(value).toFixed(1)}${dot}`;
  }).join("");
}

/** Return a logarithmic scale of milliseconds, from 0.1 ms on. */
export function logarithmic(most) {
  const last = Math.max(2, Math.ceil(Math.log10(most || 1)));
  const first = -1;
  const step = Math.ceil((last - first) / 5);
  const ticks = Array.from({ length: Math.floor((last - first) / step) + 1 }, (_, i) => 10 ** (first + i * step));
  return { place: (value) => (Math.log10(Math.max(value, 1e-9)) - first) / (last - first), ticks };
}

/** Return a linear scale from zero on. */
export function linear(most) {
  const unit = 10 ** Math.floor(Math.log10(most || 1));
  const step = [0.5, 1, 2, 2.5, 5].map((each) => each * unit).find((each) => each * 4 >= most) ?? 5 * unit;
  const last = Math.max(step * Math.ceil(most / step), step);
  const ticks = Array.from({ length: Math.round(last / step) + 1 }, (_, i) => i * step);
  return { place: (value) => value / last, ticks };
}
