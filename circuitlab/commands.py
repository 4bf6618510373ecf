"""The commands that compute: each a function of its parsed arguments that returns the exit status."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from circuitlab import api
from circuitlab.analysis.base import Table, analyses, find_analysis
from circuitlab.engine.codec import fields, parse, parse_params, type_name
from circuitlab.engine.engine import GIB, Engine
from circuitlab.engine.export_data import csv_text, described, json_text, write_answer
from circuitlab.engine.request import Answer, Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, UsageError
from circuitlab.model.subject import Head
from circuitlab.session.state import State

ROWS = 40


def _open(args: argparse.Namespace) -> api.Model:
    torch.set_num_threads(max(1, args.threads))
    return api.open(args.model, Engine(ModelStore(), int(args.budget * GIB)))


def _prompt(args: argparse.Namespace) -> tuple[str | None, tuple[int, ...]]:
    if args.tokens is not None:
        return None, parse(tuple[int, ...], args.tokens, "--tokens")
    if args.text_file is not None:
        try:
            return Path(args.text_file).read_text(encoding="utf-8"), ()
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput("The text cannot be read.", expected="a UTF-8 file", got=str(error)) from error
    return args.text, ()


def _pairs(given: list[str]) -> dict[str, str]:
    pairs = {}
    for item in given:
        key, equals, value = item.partition("=")
        if not equals:
            raise UsageError("A parameter has no value.", expected="KEY=VALUE", got=item)
        pairs[key] = value
    return pairs


def compute(args: argparse.Namespace) -> int:
    """`circuitlab compute`."""
    found = find_analysis(args.analysis)
    params = parse_params(found.params, _pairs(args.set))
    model = _open(args)
    text, tokens = _prompt(args)
    subject = model.subject(text, tokens, False if args.no_bos else None)
    model.engine.store.sha256(model.ref)
    answer = model.engine.answer(Request(args.analysis, params, subject), fresh=True)
    written = False
    for form, as_text in (("json", json_text), ("csv", csv_text), ("npz", None)):
        target = getattr(args, form)
        if target is None:
            continue
        written = True
        if target == "-" and as_text is not None:
            print(as_text(answer))
        else:
            write_answer(answer, Path(target).with_suffix(f".{form}") if not Path(target).suffix else Path(target))
    if not written:
        _print_answer(answer)
    return 0


def _print_answer(answer: Answer) -> None:
    about = described(answer)
    print(f"{about['analysis']} · {answer.request.subject.model.name} · {' · '.join(about['conventions'])}")
    if about["remainder"]:
        print(f"remainder {about['remainder']}")
    _print_table(answer.result.table())


def _print_table(table: Table) -> None:
    heads = [f"{c.name} ({c.unit})" if c.unit else c.name for c in table.columns]
    shown = min(table.n_rows, ROWS)
    cells = [[_cell(c.values[i]) for c in table.columns] for i in range(shown)]
    widths = [max(len(h), *(len(r[i]) for r in cells), 1) if cells else len(h) for i, h in enumerate(heads)]
    for row in (heads, *cells):
        print("  ".join(text.rjust(w) for text, w in zip(row, widths, strict=True)))
    if table.n_rows > shown:
        print(f"showing {shown} of {table.n_rows:,} rows; --csv FILE writes all")


def _cell(value: Any) -> str:
    if isinstance(value, (float, np.floating)):
        return "not computed" if np.isnan(value) else f"{value:.5g}"
    return str(value)


def list_analyses(args: argparse.Namespace) -> int:
    """`circuitlab analyses`."""
    for name, found in analyses().items():
        print(f"{name}  ({found.needs}, {found.lane}, version {found.version})\n    {found.summary}")
        for field, (kind, default) in fields(found.params).items():
            print(f"    --set {field}={_default(default)}  {type_name(kind)}")
    return 0


def _default(value: Any) -> str:
    if value is dataclasses.MISSING:
        return "…"
    return ",".join(map(str, value)) or "all" if isinstance(value, tuple) else str(value)


def list_panels(args: argparse.Namespace) -> int:
    """`circuitlab panels`."""
    from circuitlab.figures.panel import panels

    for name, panel in panels().items():
        print(f"{name}  {panel.title}\n    {panel.help}")
        for field, (kind, default) in fields(panel.view).items():
            print(f"    --set {field}={_default(default)}  {type_name(kind)}")
    return 0


def figure(args: argparse.Namespace) -> int:
    """`circuitlab figure`."""
    from circuitlab.figures.panel import find_panel
    from circuitlab.report.render import write_figure

    panel = find_panel(args.panel)
    view = parse_params(panel.view, _pairs(args.set))
    heads = parse(tuple[Head, ...], args.heads, "--heads")
    model = _open(args)
    text, tokens = _prompt(args)
    subject = model.subject(text, tokens, False if args.no_bos else None)
    state = State(model.ref).with_text(text or "", subject.tokens).with_view(panel.name, view)
    state = replace(state, bos=not args.no_bos and model.config.prepend_bos)
    if heads:
        state = state.select(heads=heads)
    if args.destination is not None:
        if not 0 <= args.destination < len(subject.tokens):
            raise BadInput(
                "There is no such position.", expected=f"0..{len(subject.tokens) - 1}", got=str(args.destination)
            )
        state = state.select(destination=args.destination, locked=True)
    write_figure(model.engine, panel, state, Path(args.out), args.width)
    return 0


def info(args: argparse.Namespace) -> int:
    """`circuitlab info`."""
    model = api.open(args.model, Engine(ModelStore()))
    opened = model.engine.store.open(model.ref)
    answer = model.compute("model_facts")
    facts = answer.result.facts  # type: ignore[attr-defined]
    if args.json:
        tokenizer = opened.opened.weights.tokenizer
        about = {
            "source": model.ref.source,
            "family": opened.opened.family,
            "config": model.config.to_json(),
            "n_parameters": model.config.n_parameters(),
            "exactness": answer.result.exactness,  # type: ignore[attr-defined]
            "notes": list(opened.opened.notes),
            "tokenizer": None if tokenizer is None else {"n_tokens": tokenizer.n_tokens, "bos": tokenizer.bos},
            "sha256": model.engine.store.sha256(model.ref),
        }
        print(json.dumps(about, ensure_ascii=False, indent=1))
        return 0
    for group, name, value in (*facts, *(("loading", "note", n) for n in opened.opened.notes)):
        print(f"{group:<12}{name:<22}{value}")
    return 0


RUN: dict[str, Callable[[argparse.Namespace], int]] = {
    "compute": compute,
    "analyses": list_analyses,
    "panels": list_panels,
    "figure": figure,
    "info": info,
}
