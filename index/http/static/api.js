// Requests to the service, whose operations are described at /openapi.json.

const TOKEN_KEY = "driftline-token";

/** Error that the service, or a proxy, returned; `status` is 0 if the service cannot be reached. */
export class ApiError extends Error {
  constructor(status, problem) {
    super(problem.message);
    Object.assign(this, problem, { status });
  }
}

export const access = {
  /** Called if the service requires a token, or rejects the current one. */
  needed: () => {},
  get token() { return sessionStorage.getItem(TOKEN_KEY) ?? ""; },
  set token(text) { text ? sessionStorage.setItem(TOKEN_KEY, text) : sessionStorage.removeItem(TOKEN_KEY); },
};

async function ask(path, { method = "GET", query = {}, body, signal } = {}) {
  const url = new URL(path, document.baseURI);
  for (const [name, value] of Object.entries(query)) {
    for (const each of [value].flat()) if (each !== undefined && each !== "") url.searchParams.append(name, each);
  }
  const headers = {};
  if (access.token) headers.Authorization = `Bearer ${access.token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(url, { method, headers, body: body && JSON.stringify(body), signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { code: "unreachable", message: "the service cannot be reached" });
  }
  if (response.ok) return response;
  const problem = await response.json().then((answer) => answer.error, () => null);
  if (response.status === 401) access.needed();
  throw new ApiError(response.status, problem ?? { code: "", message: `the service answered ${response.status}` });
}

/** Return the answer to a request (`data`), its milliseconds (`ms`), and those spent in the service (`serverMs`). */
export async function request(path, options) {
  const began = performance.now();
  const response = await ask(path, options);
  const data = await response.json();
  const inside = /dur=([\d.]+)/.exec(response.headers.get("Server-Timing") ?? "");
  return { data, ms: performance.now() - began, serverMs: inside ? Number(inside[1]) : null };
}

/** Return the figures of the service from its metrics: by part, then by name. */
export async function figures() {
  const found = {};
  for (const line of (await (await ask("metrics")).text()).split("\n")) {
    const [, name, part, value] = /^driftline_service_(\w+)\{part="(.*)"\} (.*)/.exec(line) ?? [];
    if (name) (found[part] ??= {})[name] = Number(value);
  }
  return found;
}

/** Return the path of an operation of a collection. */
export const within = (collection, rest) => `collections/${encodeURIComponent(collection)}/${rest}`;

/** Yield server-sent events, each with id, name and data. EventSource cannot be used: it sends no token. */
export async function* events(path, options) {
  const response = await ask(path, options);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  while (true) {
    const { value, done } = await reader.read();
    if (done) return;
    const whole = (rest + value).split("\n\n");
    rest = whole.pop();
    for (const block of whole) yield event(block);
  }
}

function event(block) {
  const found = { id: "", name: "message", data: null };
  for (const line of block.split("\n")) {
    const at = line.indexOf(": ");
    const [field, value] = [line.slice(0, at), line.slice(at + 2)];
    if (field === "id") found.id = value;
    else if (field === "event") found.name = value;
    else if (field === "data") found.data = JSON.parse(value);
  }
  return found;
}
