// From values to places on the screen, and the round values that an axis names.

/**
 * @typedef {{label: string, min: number, max: number, ticks?: number[], log?: boolean, format?: (x: number) => string}} Axis
 */

/** Maps a value of the axis to a place between `from` and `to`. */
export function scaleOf(axis, from, to) {
  const f = axis.log ? Math.log : (value) => value;
  return (value) => from + ((f(value) - f(axis.min)) / (f(axis.max) - f(axis.min))) * (to - from);
}

/** A value as the axis writes it. */
export const written = (axis, value) => (axis.format ?? ((each) => String(Number(each.toPrecision(6)))))(value);

/** Round steps of 1, 2 or 5 between the ends of an axis; on a logarithmic one see `powers`. */
export function ticksOf({ min, max, log }, about = 5) {
  if (log) return powers(min, max);
  const raw = (max - min) / about;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= raw * 0.999);
  const first = Math.ceil(min / step - 1e-9);
  return Array.from({ length: Math.floor(max / step + 1e-9) - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

const FINER = [[1], [1, 2, 5], [1, 1.5, 2, 3, 4, 5, 7]];

/** Powers of ten, seven at most; between them as many round values as it takes to have three. */
function powers(min, max) {
  if (max < 2.5 * min) return ticksOf({ min, max });
  const [first, last] = [Math.floor(Math.log10(min) - 1e-9), Math.ceil(Math.log10(max) + 1e-9)];
  const stride = Math.ceil((last - first) / 7);
  let ticks = [];
  for (const steps of FINER) {
    ticks = Array.from({ length: last - first + 1 }, (_, i) => first + i).filter((power) => steps.length > 1 || power % stride === 0)
      .flatMap((power) => steps.map((step) => Number((step * 10 ** power).toPrecision(12))))
      .filter((tick) => tick >= min * 0.999 && tick <= max * 1.001);
    if (ticks.length >= 3) break;
  }
  return ticks;
}

/** Ticks with so many px between neighbours. */
export function thinned(ticks, at, gap) {
  const kept = [];
  for (const tick of ticks) if (!kept.length || Math.abs(at(tick) - at(kept.at(-1))) >= gap * 0.8) kept.push(tick);
  return kept;
}

/** Words in lines of about `width` letters; four lines at most. */
export function linesOf(words, width = 18) {
  const lines = [""];
  for (const word of String(words).split(/\s+/).flatMap((each) => each.match(new RegExp(`.{1,${width}}`, "gsu")) ?? [])) {
    if (lines.at(-1) && lines.at(-1).length + word.length >= width) lines.push(word);
    else lines[lines.length - 1] = [lines.at(-1), word].filter(Boolean).join(" ");
  }
  return lines.length > 4 ? [...lines.slice(0, 3), `${lines[3]} …`] : lines;
}
