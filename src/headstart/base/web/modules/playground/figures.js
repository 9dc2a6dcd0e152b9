// The figures of a run: the server's own where it has told them, else counted from what has come.

import { fixed, percent, seconds, whole } from "hs/base/format";
import { summary } from "hs/trace/rounds";

/**
 * @returns {{tokens, speed, perForward, accepted, judged, first, cached, total, after}} speed: tokens a second, from the
 *   request to its end; first: seconds to the first token; total: seconds; after: seconds after the first token. null
 *   where something is not known yet.
 */
export function figuresOf(run) {
  const counted = run.request ? summary(run.request) : null;
  const { metrics, timings, usage } = run;
  const ours = metrics?.headstart;
  const now = run.endedAt ?? performance.now();
  const total = metrics ? (metrics.time_to_first_token_ms + metrics.generation_time_ms) / 1000 : (now - run.began) / 1000;
  const first = metrics ? metrics.time_to_first_token_ms / 1000 : run.firstAt === null ? null : (run.firstAt - run.began) / 1000;
  const tokens = timings?.predicted_n ?? counted?.tokens ?? 0;
  return {
    tokens,
    total,
    first,
    after: first === null ? null : total - first,
    speed: tokens && total > 0 ? tokens / total : null,
    perForward: ours?.tokens_per_forward ?? counted?.tokensPerForward ?? null,
    accepted: timings?.draft_n_accepted ?? counted?.conditional.reduce((sum, each) => sum + each.accepted, 0) ?? null,
    judged: timings?.draft_n ?? counted?.conditional.reduce((sum, each) => sum + each.tested, 0) ?? null,
    cached: usage?.prompt_tokens_details?.cached_tokens ?? null,
    prompt: usage?.prompt_tokens ?? run.request?.promptTokens.length ?? null,
  };
}

const orDash = (value, say) => (value === null || value === undefined ? "–" : say(value));

/** [name, value in words, what it means] of each figure of a run. */
export function figureList(run) {
  const { speed, perForward, accepted, judged, first, cached, prompt } = figuresOf(run);
  return [
    ["tokens/s", orDash(speed, (v) => fixed(v, v < 9.95 ? 2 : v < 99.5 ? 1 : 0)), "Tokens of the text by the time from request to end"],
    ["tokens / forward", orDash(perForward, (v) => fixed(v, 2)), "Tokens that one pass of the target model gave; 1 is plain decoding"],
    ["accepted of judged", judged ? `${whole(accepted)} of ${whole(judged)}` : "–", judged ? `${percent(accepted / judged)} of the guesses that were judged` : "No guess was judged"],
    ["first token", orDash(first, seconds), "From the request to its first token"],
    ["cached", orDash(cached, (v) => `${whole(v)} of ${whole(prompt)}`), "Tokens of the prompt that the server still held from before"],
  ];
}

/** The end of a run as a sentence, to be read aloud. */
export function endWords(run) {
  const { tokens, total, perForward } = figuresOf(run);
  const how = { done: "Done", stopped: "Stopped", failed: "Broken off" }[run.status.value];
  return `${how}: ${whole(tokens)} tokens in ${seconds(total)}, ${fixed(perForward ?? 0, 2)} tokens a forward.`;
}
