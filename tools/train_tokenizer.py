"""Train the bundled pair's tokenizer: byte-level BPE for Python, 6144 tokens, any bytes in and the same bytes out.

The pre-tokenizer keeps apart what a prompt may end between: a newline is its own token and so is the indentation after
it (a prompt that ends in a newline must leave the model an ordinary next token), digits stand singly, and a word takes
at most one sign before it (" self", ".append", "_name", "(x").
"""

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

END = "<|endoftext|>"  # ends a document and so begins the next: both EOS and BOS
PIECES = r"\n+| {2,}|[^\r\n\p{L}\p{N}]?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]+|\s"


def sample(corpus: Path, megabytes: float, seed: int) -> Iterator[str]:
    """Files of the corpus in random order, until there are enough."""
    lines = corpus.read_text().splitlines()
    random.Random(seed).shuffle(lines)
    left = megabytes * 1e6
    for line in lines:
        if left <= 0:
            return
        text = json.loads(line)["text"]
        left -= len(text)
        yield text


def build(texts: Iterator[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """A tokenizer with exactly `vocabulary` tokens that puts END before each text it encodes."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=24,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{END} $A", pair=f"{END} $A $B", special_tokens=[(END, tokenizer.token_to_id(END))]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END,
        eos_token=END,
        pad_token=END,
        clean_up_tokenization_spaces=False,
        model_max_length=2048,
    )


def check(tokenizer: PreTrainedTokenizerFast, vocabulary: int) -> None:
    """Refuse a tokenizer that loses a byte or has another size."""
    everything = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x11000)]))
    code = "def f(x):\r\n\tif x == 1234:\n\n\n        return [ ]   \n    # naïve — 日本\n"
    for text in (everything, code, code.replace("\n", " "), "   "):
        if tokenizer.decode(tokenizer.encode(text), skip_special_tokens=True) != text:
            raise SystemExit(f"decode(encode(x)) differs from x for {text[:40]!r}...")
    if len(tokenizer) != vocabulary:
        raise SystemExit(f"{len(tokenizer)} tokens instead of {vocabulary}: give it more text")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="train.jsonl of tools/corpus.py")
    parser.add_argument("--out", type=Path, required=True, help="directory to write")
    parser.add_argument("--vocabulary", type=int, default=6144)
    parser.add_argument("--megabytes", type=float, default=40.0, help="how much of the corpus to read")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    texts = list(sample(options.corpus, options.megabytes, options.seed))
    tokenizer = build(iter(texts), options.vocabulary)
    check(tokenizer, options.vocabulary)
    tokenizer.save_pretrained(options.out)
    some = texts[:200]
    tokens = sum(map(len, tokenizer(some)["input_ids"]))
    print(f"{len(tokenizer)} tokens, {sum(len(t.encode()) for t in some) / tokens:.2f} bytes per token")


if __name__ == "__main__":
    main()
