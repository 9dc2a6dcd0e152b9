// A run: one request, its answer as it comes, and everything that is known of it.

import { signal } from "hs/base/dom";
import { Failure, stream } from "hs/playground/client";
import { drawSeed, requestOf } from "hs/playground/settings";
import { speller } from "hs/playground/spelling";
import { reader } from "hs/trace/read";
import { tokensOfStep } from "hs/trace/rounds";

let number = 0;

/**
 * A run that has not begun. Its fields:
 *   values: the controls; about: the model's facts; seed; plain: whether it is the comparison without guesses;
 *   status: signal of "waiting", "running", "done", "stopped" or "failed"; failure: why, where it failed;
 *   tick: signal that rises when something has come;
 *   tokens: [{token, text, origin, step, at, ...}] as in hs/trace/rounds, in order, their text final;
 *   lines: of its trace, as they came; request: what hs/trace/read makes of them; text; finish; metrics, usage, timings: as the server tells them;
 *   began, firstAt, endedAt: clock of the page in milliseconds.
 */
export function newRun(values, { plain = false, seed } = {}) {
  return {
    id: `${Date.now()}-${++number}`,
    at: new Date().toISOString(),
    values: plain ? { ...values, guess: false } : values,
    seed: String(values.seed || seed || drawSeed()),
    plain,
    status: signal("waiting"),
    tick: signal(0),
    failure: null,
    about: null,
    lines: [],
    request: null,
    tokens: [],
    text: "",
    finish: null,
    metrics: null,
    usage: null,
    timings: null,
    sampling: null,
    began: 0,
    firstAt: null,
    endedAt: null,
    stopper: new AbortController(),
  };
}

/** Run it, to its end, its stop or its failure. model: of /v1/models. Never throws. */
export async function perform(run, model) {
  const { path, body } = requestOf(run.values, run.seed);
  const writing = writer(run);
  run.about = model.headstart;
  run.began = performance.now();
  run.status.value = "running";
  let ending = "done";
  try {
    await stream(path, { model: model.id, ...body }, writing.take, { signal: run.stopper.signal });
  } catch (error) {
    ending = run.stopper.signal.aborted ? "stopped" : "failed";
    if (ending === "failed") run.failure = error instanceof Failure ? error : new Failure("failed", String(error));
  }
  run.endedAt = performance.now();
  writing.end();
  run.tick.value += 1;
  run.status.value = ending;
}

/** End a run; what has come stays. */
export const stop = (run) => run.stopper.abort();

function writer(run) {
  const { add } = reader();
  let spelling = null;

  function note(line) {
    run.lines.push(line);
    run.request = add(line) ?? run.request;
    if (line.type === "request") spelling = speller(run.request.text);
  }

  return {
    take(event) {
      const choice = event.choices[0];
      const { trace, request, steps = [], end, sampling } = event.headstart ?? {};
      for (const line of [trace, request, ...steps, end]) if (line) note(line);
      const from = (run.request?.steps.length ?? 0) - steps.length;
      const tokens = steps.flatMap((step, i) => tokensOfStep(run.request, step, from + i));
      const text = choice?.delta?.content ?? choice?.text ?? "";
      run.text += text;
      if (run.firstAt === null && tokens.length) run.firstAt = performance.now();
      if (spelling) run.tokens.push(...spelling.add(tokens, text));
      run.finish = choice?.finish_reason ?? run.finish;
      for (const name of ["metrics", "usage", "timings"]) run[name] = event[name] ?? run[name];
      run.sampling = sampling ?? run.sampling;
      run.tick.value += 1;
    },
    end() {
      if (spelling) run.tokens.push(...spelling.end());
    },
  };
}
