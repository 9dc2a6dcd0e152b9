// The server as the page knows it: whether it answers, which model it has, and who runs there, looked at a few times a
// second while the page can be seen.

import { signal } from "hs/base/dom";
import { Failure, get, key } from "hs/playground/client";

const OFTEN = 250; // milliseconds: 4 Hz while something runs
const SELDOM = 1000;
const BUSY_FOR = 10_000; // after the last request has run, it is looked at often for so long
const WINDOW = 60_000; // that the charts show

/**
 * What is known. `state` is {kind, since, failure?, uptime?} with kind "checking", "ready", "loading", "key", "gone" or
 * "failed"; `model` what /v1/models says (null before); `load` the last looks: [{at, running, queued, tokens, held, speed}].
 */
export function watchServer() {
  const state = signal({ kind: "checking", since: Date.now() });
  const model = signal(null);
  const slots = signal([]);
  const load = signal([]);
  let timer = 0;
  let busyUntil = 0;

  const become = (kind, more = {}) => {
    const since = state.value.kind === kind ? state.value.since : Date.now();
    state.value = { kind, since, ...more };
  };

  async function look() {
    clearTimeout(timer);
    if (document.hidden || state.value.kind === "key") return;
    try {
      if (state.value.kind !== "ready") model.value = (await get("/v1/models")).data[0];
      take(await get("/slots"));
      become("ready");
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      await note(error);
    }
    const often = state.value.kind === "ready" && Date.now() < busyUntil;
    timer = setTimeout(look, often ? OFTEN : SELDOM);
  }

  async function note(failure) {
    const kinds = { key: "key", loading: "loading", gone: "gone", stopping: "gone" };
    const kind = kinds[failure.kind] ?? "failed";
    let uptime;
    if (kind === "loading") uptime = await uptimeOf();
    become(kind, { failure, uptime });
  }

  function take(found) {
    const now = performance.now();
    slots.value = found.slots;
    const running = found.slots.filter((slot) => slot.request !== null).length;
    if (running || found.queued) busyUntil = Date.now() + BUSY_FOR;
    const look = {
      at: now,
      running,
      queued: found.queued,
      tokens: found.totals?.generated_tokens ?? null,
      held: found.slots.reduce((sum, slot) => sum + slot.tokens, 0),
    };
    const looks = [...load.value.filter((each) => now - each.at < WINDOW), look];
    look.speed = speedOf(looks);
    load.value = looks;
  }

  document.addEventListener("visibilitychange", () => document.hidden || look());
  look();
  return {
    state,
    model,
    slots,
    load,
    /** Look at once, and often from now on: a request begins. */
    hurry() {
      busyUntil = Date.now() + BUSY_FOR;
      clearTimeout(timer);
      timer = setTimeout(look, OFTEN);
    },
    /** A request of the page met this failure: the state follows it where it concerns all requests. */
    note(failure) {
      if (["key", "loading", "gone", "stopping"].includes(failure.kind)) note(failure).then(() => (timer = setTimeout(look, OFTEN)));
    },
    /** Use this key from now on. */
    unlock(value, keep) {
      key.set(value, keep);
      become("checking");
      return look();
    },
    look,
  };
}

/** Seconds since the server was started, while it loads. */
async function uptimeOf() {
  try {
    const told = await fetch("/health", { cache: "no-store", credentials: "omit" });
    return (await told.json()).uptime;
  } catch {
    return undefined;
  }
}

/** Tokens a second at the newest look, over about a second before it; null where it is not known. */
function speedOf(looks) {
  const last = looks.at(-1);
  const first = looks.findLast((each) => last.at - each.at >= 950) ?? looks[0];
  if (!last || last.tokens === null || first === last) return null;
  return Math.max(0, (1000 * (last.tokens - first.tokens)) / (last.at - first.at));
}
