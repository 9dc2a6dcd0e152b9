// The chapters, in their order.

import nothingChanges from "hs/lessons/chapters/04-nothing-changes";

export const chapters = [nothingChanges];
