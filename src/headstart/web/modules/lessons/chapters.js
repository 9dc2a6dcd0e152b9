// The chapters, in their order.

import nothingChanges from "hs/lessons/chapters/04-nothing-changes";
import ruleToday from "hs/lessons/chapters/04b-the-rule-today";
import tokensARound from "hs/lessons/chapters/06-tokens-a-round";
import theCliff from "hs/lessons/chapters/07-the-cliff";
import goodGuesses from "hs/lessons/chapters/08-good-guesses";

export const chapters = [nothingChanges, ruleToday, tokensARound, theCliff, goodGuesses];
