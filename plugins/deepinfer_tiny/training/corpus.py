"""Which documents does training see, how often, and in which rows?

    python -m training.corpus CORPUS TEXTS OUT

CORPUS: folder of the corpus scripts' data; TEXTS: folder with ``seed1`` .. ``seed3``, outputs of
``assemble.py --seed N``; OUT receives ``tokens.npy`` (all documents, each once), ``documents.npz``
(offset, length and source of each), ``short.npy``/``long.npy`` (document ids of every row, -1
filled), ``prompts.npz``, ``keys.json`` and ``valid.npz``.

Repeats of a document are spread evenly over the plan.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import random
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from . import generators
from .chat_encoding import DocumentEncoder, content_bytes, read_documents
from .ngram import compressed_vocabulary
from .prompts import write_prompts
from .rows import ALIGNMENT, LONG_TOKENS, SHORT_TOKENS, pack

__all__ = ["PASSES"]

Document = dict[str, Any]

# How often the plan shows a document of each source. "tinystories" holds four variants of each
# story, "story_chat" and "continue" two draws each: their texts come back more often than stated.
PASSES = {
    "tinystories": 1.5, "requests": 1.0, "story_chat": 1.0, "continue": 1.0, "made_stories": 1.0,
    "books": 5.0, "tales": 5.0, "words": 2.0, "code": 2.0, "json": 1.5, "tools": 1.0,
    "recall": 1.5, "mixed": 2.0, "facts": 2.0, "sums": 2.0, "talk": 2.0, "languages": 2.0,
}  # fmt: skip
_TOOL_DOCUMENTS = 4000
_VARIANTS = 4  # the story itself and three retellings
_SEPARATOR = "\n<|endofdoc|>\n"


def is_held_out(text: str) -> bool:
    """The corpus' own rule: one text in a hundred, by its hash, is never trained on."""
    digest = hashlib.sha1(text.encode()).digest()
    return int.from_bytes(digest[:4], "big") < 0.01 * 2**32


def gather(corpus: Path, texts: Path) -> tuple[list[Document], list[Document]]:
    """Documents for short rows and for long rows."""
    rng = random.Random(20260910)
    seeds = [read_documents(texts / f"seed{n}" / "train.jsonl") for n in (1, 2, 3)]
    first = seeds[0]
    tiny = [d["text"] for d in first if d["source"] == "tinystories"]
    documents = [d for d in first if d["source"] != "tools"]
    documents += [d for d in first if d["source"] == "tools"][:_TOOL_DOCUMENTS]
    documents += [d for d in seeds[1] if d["source"] in ("story_chat", "continue", "sums", "facts")]
    documents += [d for d in seeds[2] if d["source"] in ("mixed", "recall")]
    for _ in range(_VARIANTS - 1):
        documents += [
            {"kind": "text", "source": "tinystories", "text": generators.retold(rng, t)}
            for t in tiny
        ]
    documents += [generators.story_request(rng, generators.retold(rng, t)) for t in tiny]
    return documents, _long_documents(rng, corpus, tiny)


def _long_documents(rng: random.Random, corpus: Path, tiny: list[str]) -> list[Document]:
    with lzma.open(corpus / "childrens_books.txt.xz", "rt", encoding="utf-8") as f:
        pieces = [p for p in f.read().split(_SEPARATOR) if p.strip()]
    kept = [None if is_held_out(p) else p for p in pieces]
    # 3.3 characters a token on books, 3.9 on stories; a little below the row.
    texts = generators.joined(kept, int(LONG_TOKENS * 3.2))
    found = [{"kind": "text", "source": "books", "text": t} for t in texts if len(t) > 12000]
    found += [
        generators.long_recall(rng, tiny, rng.randint(12000, int(LONG_TOKENS * 3.6)))
        for _ in range(120)
    ]
    return found


def _spread(rng: random.Random, ids: list[int], passes: dict[int, float]) -> list[int]:
    """Every id as often as asked, its repeats evenly over the plan."""
    found = []
    for i in ids:
        times = int(passes[i]) + (rng.random() < passes[i] % 1)
        phase = rng.random()
        found += [((n + phase) / max(times, 1), i) for n in range(times)]
    return [i for _, i in sorted(found)]


def _aligned(ids: list[list[int]]) -> list[int]:
    return [-(-len(x) // ALIGNMENT) * ALIGNMENT for x in ids]


def main() -> None:
    """Command line, see the module's first lines."""
    corpus, texts, out = map(Path, sys.argv[1:4])
    out.mkdir(parents=True, exist_ok=True)
    encode = DocumentEncoder(corpus.parent / "tokenizer-4096.json")
    rng = random.Random(1)
    short, long = gather(corpus, texts)
    sources = sorted({d["source"] for d in short})
    encoded = [encode(d) for d in short] + [encode(d) for d in long]
    lengths = _aligned(encoded)
    passes = {i: PASSES[d["source"]] for i, d in enumerate(short)}
    fitting = [i for i in range(len(short)) if lengths[i] <= SHORT_TOKENS]
    order = _spread(rng, fitting, passes)
    np.save(out / "short.npy", pack(lengths, order, SHORT_TOKENS))
    long_ids = [i for i in range(len(short), len(encoded)) if lengths[i] <= LONG_TOKENS]
    rng.shuffle(long_ids)
    np.save(out / "long.npy", pack(lengths, [*long_ids, *order[: len(order) // 40]], LONG_TOKENS))
    np.save(out / "tokens.npy", np.concatenate([np.array(x, dtype=np.uint16) for x in encoded]))
    source = [sources.index(d["source"]) for d in [*short, *long]]
    np.savez(
        out / "documents.npz",
        length=np.array([len(x) for x in encoded], dtype=np.int32),
        source=np.array(source, dtype=np.int8),
    )
    valid = read_documents(texts / "seed1" / "valid.jsonl")
    _write_valid(out, encode, valid)
    write_prompts(
        out / "prompts.npz",
        [(d["source"], d["kind"] == "chat", x) for d, x in zip(short, encoded, strict=False)],
        [(d["source"], d["kind"] == "chat", encode(d)) for d in valid],
    )
    keys = compressed_vocabulary(corpus.parent / "tokenizer-4096.json")
    (out / "keys.json").write_text(json.dumps(keys))
    _report(short, encoded, passes, out)


def _write_valid(out: Path, encode: DocumentEncoder, documents: list[Document]) -> None:
    encoded = [encode(d) for d in documents]
    sources = sorted({d["source"] for d in documents})
    keep = [i for i, x in enumerate(encoded) if len(x) <= SHORT_TOKENS - ALIGNMENT]
    np.savez(
        out / "valid.npz",
        tokens=np.concatenate([np.array(encoded[i], dtype=np.uint16) for i in keep]),
        length=np.array([len(encoded[i]) for i in keep]),
        source=np.array([sources.index(documents[i]["source"]) for i in keep]),
        bytes=np.array([content_bytes(documents[i]) for i in keep]),
        rows=pack(_aligned([encoded[i] for i in keep]), list(range(len(keep))), SHORT_TOKENS),
        names=np.array(sources),
    )


def _report(
    short: list[Document], encoded: list[list[int]], passes: dict[int, float], out: Path
) -> None:
    total: dict[str, list[float]] = defaultdict(lambda: [0, 0, 0])
    for i, d in enumerate(short):
        entry = total[d["source"]]
        entry[0] += 1
        entry[1] += len(encoded[i])
        entry[2] += len(encoded[i]) * passes[i]
    stats = {
        k: {"documents": int(n), "tokens": int(t), "tokens_in_plan": int(p)}
        for k, (n, t, p) in sorted(total.items())
    }
    (out / "stats.json").write_text(json.dumps(stats, indent=1) + "\n")
    for name, entry in stats.items():
        print(f"{name:14s}", entry)


if __name__ == "__main__":
    main()
