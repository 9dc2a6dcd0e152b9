// The chapters, in their order.

import nothingChanges from "hs/lessons/chapters/04-nothing-changes";
import ruleToday from "hs/lessons/chapters/04b-the-rule-today";
import whenItHurts from "hs/lessons/chapters/10-when-it-hurts";
import keepItGood from "hs/lessons/chapters/11-keep-it-good";

export const chapters = [nothingChanges, ruleToday, whenItHurts, keepItGood];
