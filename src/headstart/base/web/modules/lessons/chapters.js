// The chapters, in their order.

import twoTypists from "hs/lessons/chapters/00-two-typists";
import memory from "hs/lessons/chapters/01-memory";
import oneForward from "hs/lessons/chapters/02-one-forward";
import aRound from "hs/lessons/chapters/03-a-round";
import nothingChanges from "hs/lessons/chapters/04-nothing-changes";
import theRuleToday from "hs/lessons/chapters/04b-the-rule-today";
import findTheBug from "hs/lessons/chapters/05-find-the-bug";
import tokensARound from "hs/lessons/chapters/06-tokens-a-round";
import theCliff from "hs/lessons/chapters/07-the-cliff";
import goodGuesses from "hs/lessons/chapters/08-good-guesses";
import drafters from "hs/lessons/chapters/09-drafters";
import newIdeas from "hs/lessons/chapters/09b-new-ideas";
import whenItHurts from "hs/lessons/chapters/10-when-it-hurts";
import keepItGood from "hs/lessons/chapters/11-keep-it-good";
import aRealTrace from "hs/lessons/chapters/12-a-real-trace";

export const chapters = [
  twoTypists,
  memory,
  oneForward,
  aRound,
  nothingChanges,
  theRuleToday,
  findTheBug,
  tokensARound,
  theCliff,
  goodGuesses,
  drafters,
  newIdeas,
  whenItHurts,
  keepItGood,
  aRealTrace,
];
