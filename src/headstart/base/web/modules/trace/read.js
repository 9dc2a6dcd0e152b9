// A trace: from the lines of a file, or of a stream, to requests with their steps. The form is headstart.engine.trace.format's.

import { listed } from "hs/base/format";

const VERSIONS = [1, 2, 3];
const MAKE_ONE = "Record one with: headstart generate --trace FILE";
const MEMBERS = {
  trace: ["headstart_trace"],
  request: ["request", "prompt_tokens", "seed"],
  step: ["request", "i", "position", "tokens", "parents", "path", "emitted", "procedure", "distributions", "nodes", "seconds"],
  end: ["request", "finish_reason", "tokens", "stats"],
};

/** What is no trace, in a whole sentence. kind: "empty", "foreign", "version" or "broken"; hint: what to do. */
export class TraceError extends Error {
  constructor(kind, message, { line = null, hint = MAKE_ONE } = {}) {
    super(message);
    Object.assign(this, { name: "TraceError", kind, line, hint });
  }
}

/**
 * @typedef {{number: number, prompt: string|null, promptTokens: number[], before: number[], sampling: object,
 *   greedy: boolean, seed: string, rule: "exact"|"coupled", steps: object[], end: object|null,
 *   texts: Map<number, string>, text: (token: number) => string}} Request
 * @typedef {{header: object|null, requests: Request[], warnings: string[]}} Trace
 */

/**
 * A trace from the text of a file, or from its lines as objects.
 *
 * @param {string|object[]} source @returns {Trace}
 * @throws {TraceError} it is no trace, of another version, or damaged. A last line that was cut off is left out, and
 *   `warnings` says so.
 */
export function parse(source) {
  const warnings = [];
  const lines = typeof source === "string" ? linesOf(source, warnings) : source.map((line, i) => [i + 1, line]);
  if (lines.length === 0) throw new TraceError("empty", "There is nothing in this file.");
  checkHeader(lines[0][1]);
  const { trace, add } = reader();
  for (const [number, line] of lines) add(line, number);
  trace.warnings.push(...warnings);
  for (const request of trace.requests) {
    if (!request.end) trace.warnings.push(`The recording ended before request ${request.number} did.`);
    const odd = request.steps.filter((step) => step.mismatch).map((step) => step.i);
    if (odd.length) {
      const rounds = `round${odd.length > 1 ? "s" : ""} ${listed(odd)}`;
      trace.warnings.push(`Request ${request.number}: the rule could not be repeated in ${rounds}; its weights there are not to be trusted.`);
    }
  }
  return trace;
}

/**
 * A trace that grows: `add` takes one line at a time, as an object, and returns the request that it belongs to.
 * A stream need not begin with a header.
 */
export function reader() {
  const trace = { header: null, requests: [], warnings: [] };
  const byNumber = new Map();

  function add(given, number = null) {
    const line = ofToday(given);
    checkLine(line, number);
    if (line.type === "trace") {
      checkHeader(line);
      if (trace.header) throw broken("is a second header", number);
      trace.header = line;
      return null;
    }
    if (line.type === "request") {
      byNumber.set(line.request, requestOf(line));
      trace.requests.push(byNumber.get(line.request));
    }
    const request = byNumber.get(line.request);
    if (!request) throw broken(`speaks of request ${line.request}, which has not begun`, number);
    for (const [token, text] of Object.entries(line.texts ?? {})) request.texts.set(Number(token), text);
    if (line.type === "step") request.steps.push({ ...line, seconds: partsOf(line.seconds) });
    if (line.type === "end") request.end = line;
    return request;
  }

  return { trace, add };
}

/** A line in the words of today: before version 3, distributions were "laws" and "law", and a uniform draw a "coin". */
function ofToday(line) {
  if (line?.type !== "step" || !line.laws) return line;
  const { laws, end, nodes, ...rest } = line;
  return {
    ...rest,
    distributions: laws,
    nodes: nodes.map(({ coin, ...node }) => (coin === undefined ? node : { ...node, uniform: coin })),
    end: end && { ...end, distribution: end.law },
  };
}

/** A step's seconds; in version 1 planning was called "commit", sampling "law", and the commit was not measured. */
const partsOf = ({ law, ...seconds }) =>
  law === undefined ? seconds : { ...seconds, plan: seconds.commit, sample: law, commit: 0 };

function requestOf(line) {
  const texts = new Map();
  return {
    number: line.request,
    prompt: line.prompt ?? null,
    promptTokens: line.prompt_tokens,
    before: line.before ?? [],
    sampling: line.sampling ?? {},
    greedy: (line.sampling?.temperature ?? 0) === 0,
    seed: String(line.seed),
    rule: line.rule ?? "exact",
    steps: [],
    end: null,
    texts,
    text: (token) => texts.get(token) ?? `<${token}>`,
  };
}

/** [number, object] of each line that is not blank; the last one may be cut off. */
function linesOf(text, warnings) {
  const found = [];
  const lines = text.replace(/^\ufeff/, "").split("\n");
  lines.forEach((line, i) => {
    if (line.trim() === "") return;
    try {
      found.push([i + 1, JSON.parse(line)]);
    } catch {
      if (found.length === 0) throw new TraceError("foreign", "This file is not a trace: its first line is not JSON.");
      // A line that ends with a line break was written whole
      if (i !== lines.length - 1) throw broken("is not JSON", i + 1);
      warnings.push(`Line ${i + 1}, the last one, was cut off and is left out: the run did not end by itself.`);
    }
  });
  return found;
}

function checkHeader(line) {
  if (line?.type !== "trace" || line.headstart_trace === undefined) {
    throw new TraceError("foreign", "This file is not a trace of headstart: it does not begin with the line of one.");
  }
  if (!VERSIONS.includes(line.headstart_trace)) {
    throw new TraceError(
      "version",
      `This is a trace of version ${line.headstart_trace}; this page reads versions ${VERSIONS.join(" and ")}.`,
      { hint: "Open it with a page of the headstart that recorded it." },
    );
  }
}

function checkLine(line, number) {
  const members = MEMBERS[line?.type];
  if (!members) throw broken("is of no kind that a trace has", number);
  const missing = members.filter((name) => line[name] === undefined);
  if (missing.length) throw broken(`(${line.type}) has no ${missing.join(", ")}`, number);
  if (line.type !== "step") return;
  const [nodes, distributions] = [line.tokens.length, line.distributions.length];
  const whole = line.nodes.length === nodes && line.parents.length === nodes && (distributions === 0 || distributions === nodes + 1);
  if (!whole) throw broken("(step) has not as many nodes, parents and distributions as tokens", number);
  if (line.parents.some((parent, node) => !(parent >= -1 && parent < node))) {
    throw broken("(step) has a node that comes before its parent", number);
  }
}

const broken = (words, line) =>
  new TraceError("broken", `${line === null ? "A line" : `Line ${line}`} of the trace ${words}.`, {
    line,
    hint: "The file was damaged or edited; record it again.",
  });
