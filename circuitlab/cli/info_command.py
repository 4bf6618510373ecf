"""`circuitlab info MODEL`: its configuration and files, what was assumed of them, what papers say of its heads."""

from __future__ import annotations

import argparse
import json
import shutil
import textwrap

from circuitlab import api
from circuitlab.analysis.checks.model_facts import ModelFactsParams, ModelFactsResult, model_facts
from circuitlab.counting import number_of
from circuitlab.engine.codec import to_json
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.model.archives.offering import how_to_get, obtainable
from circuitlab.model.loading.assumptions import Assumption, pairs
from circuitlab.model.records.known_heads import KnownHeads, complaints, known_heads
from circuitlab.model.subject import Head
from circuitlab.model.text.tokenizer import visible
from circuitlab.terminal import on_one_line

SHOWN = 20  # special tokens that are listed
Fact = tuple[str, str, str]  # its group, its name, its words


def run(args: argparse.Namespace) -> int:
    """Print it, as lines or as JSON."""
    model = api.open(args.model, use=Engine(ModelStore()), assume=dict(pairs(args.assume)))
    measured = model.engine.answer(Request(model_facts, ModelFactsParams(), model.subject())).result
    if args.json:
        print(json.dumps(_table(model, measured), ensure_ascii=False, indent=1))
    else:
        _print_facts(_facts(model, measured))
    return 0


def _table(model: api.Model, measured: ModelFactsResult) -> dict[str, object]:
    """What there is to know, as plain values."""
    open_model = model.engine.store.open(model.ref)
    opened, sha256, settings = open_model.opened, model.engine.store.sha256(model.ref), open_model.settings_sha256
    tokenizer = opened.weights.tokenizer
    return {
        "source": model.ref.source,
        "family": opened.family,
        "config": model.config.to_json(),
        "n_parameters": measured.n_parameters,
        "exactness": measured.exactness,
        "notes": list(opened.notes),
        "assumptions": to_json(opened.assumptions),
        "published_heads": _published(known_heads(model.config, model.ref.source, sha256, settings)),
        "tokenizer": None
        if tokenizer is None
        else {"n_tokens": tokenizer.n_tokens, "bos": tokenizer.bos, "special": _special(model)},
        "sha256": sha256,
        "settings": settings,
        "checkpoints": list(opened.steps),
    }


def _facts(model: api.Model, measured: ModelFactsResult) -> list[Fact]:
    """What there is to know, for reading."""
    open_model = model.engine.store.open(model.ref)
    opened, published = (
        open_model.opened,
        known_heads(model.config, model.ref.source, open_model.sha256, open_model.settings_sha256),
    )
    notes = [note for note in opened.notes if note != "unembedding tied to the embedding"]  # shown among the options
    rows = [("loading", "note", note) for note in (*notes, *complaints())]
    rows += [("assumed", a.name, f"{a.value} ({a.why})" + _others(a)) for a in opened.assumptions]
    rows += [("published", number_of(len(published.hints), "head"), published.caption)] if published is not None else []
    rows += _fronts(model) + _training(model)
    return [("model", "family", opened.family or "circuitlab"), *measured.facts, *rows]


def _special(model: api.Model) -> dict[str, int]:
    """The ids of the special tokens by their spellings."""
    tokenizer = model.engine.store.open(model.ref).opened.weights.tokenizer
    return {} if tokenizer is None else {text: i for i, text in tokenizer.special_tokens.items()}


def _fronts(model: api.Model) -> list[Fact]:
    """Which tokens can stand in front of a prompt, and which does if nobody says otherwise."""
    special, tokenizer = _special(model), model.engine.store.open(model.ref).opened.weights.tokenizer
    if tokenizer is None or not special:
        return []
    shown = [visible(text) for text in list(special)[:SHOWN]]
    more = [f"… {len(special)} in all"] if len(special) > SHOWN else []
    bos = "none" if tokenizer.bos is None else f"{tokenizer.display(tokenizer.bos)}, id {tokenizer.bos}"
    first = tokenizer.front(model.config.prepend_bos)
    return [
        ("text", "BOS", bos),
        ("text", "in front", tokenizer.display(first[0]) if first else "nothing, unless --bos or --front says so"),
        ("text", "special", " ".join([*shown, *more])),
    ]


def _training(model: api.Model) -> list[Fact]:
    """The steps whose weights are here, and how those that are not can be got."""
    steps, archive = model.steps, obtainable(model.ref)
    rows = [("training", number_of(len(steps), "checkpoint"), f"of step {' '.join(map(str, steps))}")] if steps else []
    return rows + ([("training", "not here", how_to_get(archive))] if archive is not None else [])


def _print_facts(facts: list[Fact]) -> None:
    """One line per fact, wrapped at the width of the terminal; a group is named once."""
    room, before = max(60, shutil.get_terminal_size().columns), ""
    for group, name, value in facts:
        first = f"{'' if group == before else group:<12}{on_one_line(name):<21} "
        whole = value.replace("--assume ", "--assume\u00a0")  # keep it on one line, to be copied
        lines = textwrap.wrap(whole, room - 34, break_long_words=False, break_on_hyphens=False)
        print(first + f"\n{' ' * 34}".join(lines).replace("\u00a0", " "))
        before = group


def _published(published: KnownHeads | None) -> dict[str, object] | None:
    """Published roles of heads as JSON: the model of the papers, how this one was recognised, roles by head."""
    if published is None:
        return None
    roles = {str(Head(*head)): published.words(Head(*head)) for head in sorted(published.hints)}
    return {"model": published.model, "matched_by": published.by, "heads": roles}


def _others(assumption: Assumption) -> str:
    others = [c for c in assumption.choices if c != assumption.value]
    return f"; --assume {assumption.name}={'|'.join(others)}" if others else ""
