// Has acceptance fallen? Evidence that grows by betting, so that one may look after every request.
//
// e-CUSUM (Shin, Ramdas, Rinaldo: "E-detectors", 2022). X_t in [0, 1] is a request's acceptance, and the claim is that
// its mean, given the past, is at least m. A bet l in (0, 1/(1-m)) multiplies its capital by 1 + l (m - X_t), which on
// average loses while the claim holds, and starts again at 1 whenever it is below. An alarm at the level A, raised
// where the mean of all bets' capital reaches A, comes on average no sooner than after A requests without a drift.

/** Shares of the greatest allowed bet: a mixture need not know how far the mean has fallen. */
export const BETS = [0.05, 0.1, 0.2, 0.4, 0.8];

/** A detector of a mean below m; `add` takes the next X and gives the evidence so far. */
export function eCusum(m, bets = BETS) {
  if (!(m > 0 && m < 1)) throw new RangeError("m must be a number between 0 and 1");
  const sizes = bets.map((share) => share / (1 - m));
  let capital = sizes.map(() => 0);
  return {
    add(x) {
      capital = capital.map((held, i) => Math.max(1, held) * (1 + sizes[i] * (m - x)));
      return capital.reduce((a, b) => a + b, 0) / capital.length;
    },
  };
}

/** The evidence after each X, and the index of the first that reaches the alarm; -1 where none does. */
export function detect(xs, { m, alarm = 1000, bets = BETS }) {
  const detector = eCusum(m, bets);
  const evidence = xs.map((x) => detector.add(x));
  return { evidence, at: evidence.findIndex((each) => each >= alarm) };
}

/** A bound that the mean of numbers in [0, 1] is below with probability at most `level` (Hoeffding 1963). */
export function lowerBound(xs, level = 0.01) {
  const mean = xs.reduce((a, b) => a + b, 0) / xs.length;
  return Math.max(0, mean - Math.sqrt(Math.log(1 / level) / (2 * xs.length)));
}
