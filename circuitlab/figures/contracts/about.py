"""What a figure is of, in a few words each: the model and its step, the prompt where it was read, interventions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from circuitlab.caption_parts import Essential
from circuitlab.counting import number_of
from circuitlab.engine.request import Answer
from circuitlab.figures.contracts.compare import with_reference
from circuitlab.figures.contracts.compare_questions import heads_of_params
from circuitlab.figures.contracts.declaration import Panel
from circuitlab.figures.contracts.facts import Facts
from circuitlab.figures.contracts.pinned import SAME
from circuitlab.figures.marks import BETWEEN, Figure, joined
from circuitlab.model.subject import Head
from circuitlab.session.cuts import CUT, short_words, words
from circuitlab.session.state import State

LONGEST = 36  # letters of a prompt
MOST_EDITS = 2
MOST_HEADS = 4
OUTPUT = ("z", "result")  # of a head
WITHOUT = "without the cut"  # beside numbers of the weights or of other texts, on which no intervention acts


def drawn(panel: Panel, state: State, facts: Facts, now: Mapping[str, Answer], ref: Mapping[str, Answer]) -> Figure:
    """What the panel draws, beside the reference where there is one, with what it is of."""
    figure = with_reference(panel, state, facts, now, ref)
    if not figure.grid:
        return figure
    untouched = bool(state.subject.edits) and panel.of_heads and bool(now) and not inputs_read(now) & {"tokens", "edits"}
    has_struck_heads = any(getattr(mark, "struck", ()) for mark in figure.marks())
    which = f"{CUT} {short_words(state.subject.edits)}" if has_struck_heads else ""
    cut_words = " ".join(filter(None, (WITHOUT if untouched and SAME not in figure.title else "", which)))
    figure = figure.with_caption("" if has_struck_heads else silenced(state, facts, now))
    return replace(figure, title=joined(figure.title, cut_words), about=about(state, facts, now))


def silenced(state: State, facts: Facts, now: Mapping[str, Answer]) -> str:
    """Which of the heads shown write nothing to the stream, because their output is ablated to zero; "" for none."""
    if state.compare == "reference" or "tokens" not in inputs_read(now):
        return ""
    shown = {head for answer in now.values() for head in heads_of_params(answer.request.params)}
    zeroed = [e.site for e in state.subject.edits if e.op == "zero" and e.site.name in OUTPUT and e.path_from is None]
    every = range(facts.config.n_heads)
    silent = [Head(s.layer, h) for s in zeroed if not (s.positions or s.sources) for h in s.heads or every]
    names = [str(head) for head in dict.fromkeys(silent) if head in shown]
    if not names:
        return ""
    who = " ".join(names[:MOST_HEADS]) + (f" and {len(names) - MOST_HEADS} more" if len(names) > MOST_HEADS else "")
    return Essential(f"zeroed: {who} {'writes' if len(names) == 1 else 'write'} nothing of this")


def inputs_read(now: Mapping[str, Answer]) -> set[str]:
    """What the answers read beside weights: "tokens" of the prompt, with its interventions, or "edits" alone."""
    return {getattr(a.request.params, "needs", a.request.analysis.needs) for a in now.values()}


def about(state: State, facts: Facts, now: Mapping[str, Answer]) -> tuple[str, ...]:
    """Model, step, prompt, interventions; no prompt where the answers read weights alone."""
    of_weights = facts.steps and state.model.checkpoint is None
    parts = [*facts.name.split(BETWEEN), *(["final weights"] if of_weights else [])]
    inputs = inputs_read(now)
    if "tokens" in inputs:
        parts.append(prompt(state, facts))
    if inputs & {"tokens", "edits"}:
        edits = state.subject.edits
        parts += [words(e) for e in edits] if len(edits) <= MOST_EDITS else [number_of(len(edits), "intervention")]
    return tuple(part.replace(BETWEEN, " ") for part in parts if part)


def prompt(state: State, facts: Facts) -> str:
    """The beginning of the text in quotation marks, or of the tokens where there is none; how many tokens; whether BOS is one."""
    if not state.tokens:
        return ""
    text = state.text or "".join(facts.tokens(state.tokens[:LONGEST]))
    text = " ".join(text.split())
    if len(text) > LONGEST:
        text = (text[:LONGEST].rpartition(" ")[0] or text[:LONGEST]).rstrip(" ,;:.") + " …"
    return f"“{text}” ({number_of(len(state.tokens), 'token')}{_bos(state, facts)})"


def _bos(state: State, facts: Facts) -> str:
    """Whether the prompt starts with BOS; "" for a model without a tokenizer, which has no such token."""
    if not facts.has_tokenizer:
        return ""
    return ", BOS first" if facts.bos is not None and state.tokens[0] == facts.bos else ", no BOS"
