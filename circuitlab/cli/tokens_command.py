"""`circuitlab tokens MODEL --text …`: ids, pieces, positions and words of a text, as a table or as JSON."""

from __future__ import annotations

import argparse
import json

import numpy as np

from circuitlab import api
from circuitlab.analysis.base import Column, Table
from circuitlab.cli.output import print_table
from circuitlab.cli.reading_arguments import begins
from circuitlab.counting import number_of
from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore


def run(args: argparse.Namespace, text: str | None) -> int:
    """Print them. Without a text nothing but how many tokens the model has would be known, so one is asked for by the parser."""
    bos = begins(args)
    model = api.open(args.model, use=Engine(ModelStore()), bos=bos, special=not args.no_special)
    result = model.tokenized(text or "")
    if args.json:
        print(json.dumps({"tokens": result.rows(), "words": list(result.words)}, ensure_ascii=False, indent=1))
        return 0
    rows = result.rows()
    print(f"{model.ref.name} · {number_of(len(rows), 'token')} of {model.config.n_ctx} · {number_of(len(result.words), 'word')}")
    print_table(
        Table(
            (
                Column("position", np.array([r["position"] for r in rows], dtype=np.int64), of="position"),
                Column("id", np.array([r["id"] for r in rows], dtype=np.int64)),
                Column("piece", np.array([r["piece"] for r in rows], dtype=object)),
                Column("word", np.array([r["word_text"] or "" for r in rows], dtype=object)),
            )
        )
    )
    return 0
