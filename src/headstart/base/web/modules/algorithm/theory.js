// Everything that speculation can give, on paper: the formulas of headstart.theory in one place.

export * from "hs/algorithm/distributions";
export * from "hs/algorithm/machine";
export * from "hs/algorithm/mixture";
export * from "hs/algorithm/speed";
export * from "hs/algorithm/stacks";
