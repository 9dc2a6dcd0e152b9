// The chapters, in their order.

import twoTypists from "hs/lessons/chapters/00-two-typists";
import memory from "hs/lessons/chapters/01-memory";
import oneForward from "hs/lessons/chapters/02-one-forward";
import aRound from "hs/lessons/chapters/03-a-round";
import nothingChanges from "hs/lessons/chapters/04-nothing-changes";

export const chapters = [twoTypists, memory, oneForward, aRound, nothingChanges];
