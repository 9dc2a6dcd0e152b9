"""Draw a smaller corpus from a big one, mixed and cut into documents as tools/train_target.py does.

The draft needs a few megabytes of what the target has read: `headstart train draft` reads the JSONL that this writes.
"""

import argparse
import json
import random
from pathlib import Path

from train_target import WEIGHTS, documents, read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="folder written by tools/corpus.py")
    parser.add_argument("--out", type=Path, required=True, help="JSONL to write")
    parser.add_argument("--megabytes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    texts = read(options.corpus / "train.jsonl")
    # A file is kept in proportion to its source's weight, as often as the target met it in one pass.
    kept = [t for t in texts if chance.random() < WEIGHTS.get(t.source, 1.0) / max(WEIGHTS.values())]
    chance.shuffle(kept)
    left = options.megabytes * 1e6
    with options.out.open("w") as out:
        for text in kept:
            for part in documents(text.text, chance):
                if left <= 0:
                    return
                left -= len(part)
                out.write(json.dumps({"text": part, "source": text.source}) + "\n")


if __name__ == "__main__":
    main()
