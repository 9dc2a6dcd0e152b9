// Requests to the server that this page came from: with its key, and with every refusal as one kind of value.

import { events } from "hs/playground/sse";

const KEPT = "headstart-key";

/**
 * Why a request has no answer. `kind` is one of:
 * "key" (wanted, or wrong), "busy" (too many wait; `retryAfter` seconds), "loading", "stopping", "bad" (the request
 * cannot be; `param` is the field), "failed" (the server's own fault), "gone" (nobody answers).
 */
export class Failure extends Error {
  constructor(kind, message, { status = 0, param = null, code = null, retryAfter = null } = {}) {
    super(message);
    Object.assign(this, { kind, status, param, code, retryAfter });
  }
}

/** The key: in memory, and until the tab is closed where the reader wants so. Never in an address. */
export const key = {
  value: stored(),
  set(value, keep) {
    this.value = value;
    try {
      if (keep) sessionStorage.setItem(KEPT, value);
      else sessionStorage.removeItem(KEPT);
    } catch {
      // no storage: it lasts as long as the page
    }
  },
  forget() {
    this.set("", false);
  },
};

function stored() {
  try {
    return sessionStorage.getItem(KEPT) ?? "";
  } catch {
    return "";
  }
}

/** GET a path as JSON. Throws a Failure, or an AbortError where `signal` was used. */
export async function get(path, { signal } = {}) {
  return (await ask(path, { signal })).json();
}

/** POST an object as JSON, for JSON. */
export async function post(path, body, { signal } = {}) {
  return (await ask(path, { ...asJson(body), signal })).json();
}

/** POST an object, and hand each event of the answer to `take`. */
export async function stream(path, body, take, { signal } = {}) {
  const response = await ask(path, { ...asJson(body), signal });
  const found = events(response.body);
  for (;;) {
    let next;
    try {
      next = await found.next();
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new Failure("gone", "The connection broke off in the middle of the answer.");
    }
    if (next.done && next.value) return;
    if (next.done) throw new Failure("gone", "The stream ended in the middle of the answer.");
    if (next.value.error) throw failureOf(500, next.value.error, null);
    take(next.value);
  }
}

const asJson = (body) => ({ method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } });

async function ask(path, { method = "GET", body, headers = {}, signal }) {
  if (key.value) headers = { ...headers, authorization: `Bearer ${key.value}` };
  let response;
  try {
    response = await fetch(path, { method, body, headers, signal, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Failure("gone", "The server does not answer.");
  }
  if (response.ok) return response;
  const told = await response.json().catch(() => ({}));
  throw failureOf(response.status, told.error ?? {}, response.headers.get("retry-after"));
}

function failureOf(status, { message, code, param, type }, after) {
  const kinds = { 401: "key", 429: "busy", 503: { loading: "loading", stopping: "stopping" }[code] ?? "failed" };
  const kind = kinds[status] ?? (type === "invalid_request_error" || (status >= 400 && status < 500) ? "bad" : "failed");
  const words = message ? sentence(message) : `The server answered with status ${status}.`;
  return new Failure(kind, words, { status, param, code, retryAfter: after === null ? null : Number(after) });
}

/** The server's message as a sentence: "the prompt is empty; give one" -> "The prompt is empty; give one." */
export function sentence(words) {
  const text = words.charAt(0).toUpperCase() + words.slice(1);
  return /[.!?…]$/.test(text) ? text : `${text}.`;
}
