// Numbers of tables, rounded as one does by hand.

import { fixed } from "hs/base/format";

const HAIR = 1e-9;

/** A number with two decimals (or `digits`). A tie goes up, even where binary arithmetic ends a hair below it: 1.825 is 1.83. */
export const rounded = (x, digits = 2) => fixed(x + Math.sign(x) * HAIR, digits);

/** A speedup. A star says slower than plain decoding, so that colour does not say it alone. */
export const starred = (x) => `${rounded(x)}${x < 1 - HAIR ? "*" : ""}`;
