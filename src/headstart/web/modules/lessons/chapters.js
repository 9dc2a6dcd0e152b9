// The chapters, in their order.

import nothingChanges from "hs/lessons/chapters/04-nothing-changes";
import theRuleToday from "hs/lessons/chapters/04b-the-rule-today";
import tokensARound from "hs/lessons/chapters/06-tokens-a-round";
import theCliff from "hs/lessons/chapters/07-the-cliff";
import goodGuesses from "hs/lessons/chapters/08-good-guesses";
import drafters from "hs/lessons/chapters/09-drafters";
import whenItHurts from "hs/lessons/chapters/10-when-it-hurts";
import keepItGood from "hs/lessons/chapters/11-keep-it-good";
import realTrace from "hs/lessons/chapters/12-a-real-trace";

export const chapters = [
  nothingChanges,
  theRuleToday,
  tokensARound,
  theCliff,
  goodGuesses,
  drafters,
  whenItHurts,
  keepItGood,
  realTrace,
];
