// The families of drafters: what each looks at, what it costs, where it is good.

/** kind: as in the header of a trace. */
export const FAMILIES = [
  { kind: "draft", name: "A small model", looks: "at the whole text, with a small model of its own", costs: "one small forward for each guess", good: "everywhere a little; best where a model of the same family exists", range: ".6–.85, no training" },
  { kind: "ngram", name: "Look-up in the text", looks: "for the last few tokens earlier in the text, and copies what followed", costs: "almost nothing", good: "code, edits, tables, answers that quote their question", range: "spiky, no training" },
  { kind: "suffix", name: "Suffix look-up", looks: "for the longest end of the text, in this text and in earlier answers, and counts what followed", costs: "almost nothing", good: "agents and tools that repeat themselves from request to request", range: "spiky, no training" },
  { kind: "medusa", name: "Medusa heads", looks: "at the target’s last hidden state; each head guesses one place ahead", costs: "a few matrix products for the whole draft", good: "one model that you serve for long: 2 to 3 times, its paper reports", range: ".6–.75, heads are trained" },
  { kind: "eagle", name: "EAGLE", looks: "at the target’s hidden states and at its own guesses before", costs: "one small layer for each level of the tree", good: "chat and code, towards 3 times on a 70B model, its paper reports", range: ".8–.9, a small net is trained" },
  { kind: "lookahead", name: "Lookahead", looks: "at words that the target’s own forwards made on the side (Jacobi iteration)", costs: "a wider forward of the target", good: "where nothing can be trained and no small model fits", range: "spiky, no training" },
  { kind: "early-exit", name: "Early exit", looks: "through the first layers of the target itself", costs: "those layers for each guess", good: "where memory has no room for a second model", range: "depends on the layers, often trained for it" },
  { kind: "list", name: "A list of several", looks: "at what each would gain, and uses the best one", costs: "those of the one that is used", good: "mixed work: copying where one can, a model elsewhere", range: "as its members" },
  { kind: "translated", name: "A model with another tokenizer", looks: "at the text, not at tokens: its guess is split again with the target’s tokenizer", costs: "a small model, and cutting text", good: "when the only good small model is of another family", range: "lower than with the same tokenizer" },
];
