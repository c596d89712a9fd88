// Formatting of figures and times.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const LETTERS = "0123456789abcdefghjkmnpqrstvwxyz";
const UNITS = ["B", "kB", "MB", "GB", "TB"];

export const count = (n) => (Number.isInteger(n) || Math.abs(n) >= 1000 ? whole : short).format(n);

export const several = (n, one) => `${count(n)} ${one}${n === 1 ? "" : "s"}`;

export function duration(ms) {
  if (ms < 0.1) return ms > 0 ? `${short.format(ms * 1000)} µs` : "0 ms";
  if (ms < 1000) return `${short.format(ms)} ms`;
  return ms < 120_000 ? `${short.format(ms / 1000)} s` : `${whole.format(ms / 60_000)} min`;
}

export function size(bytes) {
  let place = 0;
  while (bytes >= 1000 && place < UNITS.length - 1) [bytes, place] = [bytes / 1000, place + 1];
  return `${short.format(bytes)} ${UNITS[place]}`;
}

/** Format a T in microseconds as the time of day; a small T, which is not the time of a clock, as a number. */
export function clock(us) {
  if (us < 1e14) return count(us);
  const at = new Date(us / 1000);
  const two = (n) => String(n).padStart(2, "0");
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

/** Return the T of a label, in microseconds. */
export function timeOf(label) {
  let time = 0;
  for (const letter of label.slice(0, -1)) time = time * 32 + LETTERS.indexOf(letter);
  return time;
}

/** Format a figure of the service; its name determines the unit. */
export function figure(name, value) {
  if (["time", "since", "checkpoint", "completed_time"].includes(name)) return value ? clock(value) : "–";
  if (name.endsWith("_s")) return duration(value * 1000);
  if (name.endsWith("_bytes")) return size(value);
  return count(value);
}

export const words = (name) => name.replace(/_s$/, "_time").replaceAll("_", " ");
