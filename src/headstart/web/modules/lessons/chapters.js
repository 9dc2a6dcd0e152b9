// The chapters, in their order.

import nothingChanges from "hs/lessons/chapters/04-nothing-changes";
import ruleToday from "hs/lessons/chapters/04b-the-rule-today";
import drafters from "hs/lessons/chapters/09-drafters";
import realTrace from "hs/lessons/chapters/12-a-real-trace";

export const chapters = [nothingChanges, ruleToday, drafters, realTrace];
