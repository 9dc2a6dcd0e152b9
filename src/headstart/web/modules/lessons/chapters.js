// The chapters, in their order.

import nothingChanges from "hs/lessons/chapters/04-nothing-changes";
import ruleToday from "hs/lessons/chapters/04b-the-rule-today";
import findTheBug from "hs/lessons/chapters/05-find-the-bug";

export const chapters = [nothingChanges, ruleToday, findTheBug];
