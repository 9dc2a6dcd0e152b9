// Another tokenizer: the same text in other pieces.

/** Words cut into pieces of at most three letters, as another tokenizer might: "cat sat" -> "ca|t s|at". */
export function rejoined(words) {
  const text = words.join(" ");
  const pieces = text.match(/.{1,3}/g) ?? [];
  return `“${pieces.join("|")}”`;
}
