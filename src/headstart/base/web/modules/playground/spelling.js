// Which part of a text each token wrote. Texts come as whole characters, tokens may be parts of one: tokens that share
// a character share a piece, which belongs to the last of them.

const PART = /<0x[0-9A-F]{2}>/; // how a trace writes a byte that is no whole character

/**
 * Pairs tokens with text as both come.
 * @param {(token: number) => string} textOf what a token writes alone.
 */
export function speller(textOf) {
  const waiting = []; // tokens whose text has not come, or not wholly
  let text = "";
  const take = (count, length) => {
    const piece = text.slice(0, length);
    text = text.slice(length);
    return waiting.splice(0, count).map((token, i) => ({ ...token, text: i === count - 1 ? piece : "" }));
  };

  function settle(ended) {
    const found = [];
    while (waiting.length) {
      const own = textOf(waiting[0].token);
      if (!PART.test(own) && text.startsWith(own)) found.push(...take(1, own.length));
      else if (!ended && (text === "" || own.startsWith(text))) break;
      else {
        const group = together(ended);
        if (!group) break;
        found.push(...take(...group));
      }
    }
    return found;
  }

  /** [tokens, characters] that belong together at the beginning; null where that cannot be told yet. */
  function together(ended) {
    for (let next = 1; next < waiting.length; next++) {
      const own = textOf(waiting[next].token);
      const at = PART.test(own) || own === "" ? -1 : text.indexOf(own);
      if (at >= 0) return [next, at];
    }
    return ended ? [waiting.length, text.length] : null;
  }

  return {
    /** tokens: [{token, ...}] in order. Returns those whose text is known now, with `text`. */
    add(tokens, more) {
      waiting.push(...tokens);
      text += more;
      return settle(false);
    },
    /** The rest, at the end. */
    end: () => settle(true),
  };
}
