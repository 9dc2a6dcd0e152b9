// Server-sent events: what a stream's data lines say, however the network cuts it into pieces.

/** Takes text as it comes, and gives the data of each event that is complete. */
export function eventReader() {
  let rest = "";
  let data = [];
  return (text) => {
    const lines = (rest + text).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop();
    const found = [];
    for (const line of lines) {
      if (line === "") {
        if (data.length) found.push(data.join("\n"));
        data = [];
      } else if (line.startsWith("data:")) {
        data.push(line.slice(line[5] === " " ? 6 : 5));
      } // comments (pings) and other fields say nothing here
    }
    return found;
  };
}

/**
 * The objects of a stream, until it says that it is done.
 * @param {ReadableStream<Uint8Array>} body
 * @returns {AsyncGenerator<object, boolean>} its value at the end is whether the stream said so itself.
 */
export async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  const read = eventReader();
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return false;
      for (const data of read(value)) {
        if (data === "[DONE]") return true;
        yield JSON.parse(data);
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // it may be closed already
  }
}
