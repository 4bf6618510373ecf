"""Tokenizers that the library cannot hold, or that it takes very long with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.models import byte_tokenizer


def tokenizers(folder: Path) -> dict[str, Path]:
    """All of them as files."""
    whole = json.loads(byte_tokenizer().file_text())
    model = lambda **changes: whole | {"model": whole["model"] | changes}
    template = lambda n: {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "x", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"x": {"id": "x", "ids": [1] * n, "tokens": ["a"] * n}},
    }
    unigram = lambda pieces: whole | {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], *pieces]}}
    added = lambda text: {**whole["added_tokens"][0], "content": text, "id": 5000}
    made: dict[str, Any] = {
        "a piece of 200,000 letters": unigram([["a" * 200_000, -1.0]]),
        "a piece of a million letters": unigram([["ab" * 500_000, -1.0]]),
        "a template of 300,000 ids": whole | {"post_processor": template(300_000)},
        "a prefix of ten million letters": whole | {"normalizer": {"type": "Prepend", "prepend": "a" * 10_000_000}},
        "a replacement by ten million letters": whole
        | {"normalizer": {"type": "Replace", "pattern": {"String": "a" * 100_000}, "content": "b" * 10_000_000}},
        "a prefix of pieces": model(continuing_subword_prefix="a" * 10_000_000),
        "an ending of pieces": model(end_of_word_suffix="a" * 10_000_000),
        "an added token of ten million letters": whole | {"added_tokens": [*whole["added_tokens"], added("a" * 10_000_000)]},
        "an added token far away": whole | {"added_tokens": [*whole["added_tokens"], {**added("zz"), "id": 4_000_000_000}]},
        "a separator of ten million letters": whole
        | {"post_processor": {"type": "BertProcessing", "sep": ["a" * 10_000_000, 1], "cls": ["b", 1]}},
        "a decoder's prefix": whole | {"decoder": {"type": "WordPiece", "prefix": "a" * 10_000_000, "cleanup": True}},
    }
    files = {}
    for i, (name, spec) in enumerate(made.items()):
        (folder / str(i)).mkdir(parents=True)
        files[name] = folder / str(i) / "tokenizer.json"
        files[name].write_text(json.dumps(spec), encoding="utf-8")
    return files
