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
from circuitlab.figures.contracts.facts import Facts, as_answered, inputs_read
from circuitlab.figures.contracts.pinned import SAME
from circuitlab.figures.marks import Figure, joined
from circuitlab.model.subject import Head
from circuitlab.session.cuts import CUT, short_words, words
from circuitlab.session.state import State

LONGEST = 36  # characters of a prompt
MOST_EDITS = 2  # that are named one by one
MOST_HEADS = 4  # that a caption names
OUTPUT = ("z", "result")  # sites at which a head's output is ablated
WITHOUT = "without the cut"  # beside numbers of the weights or of other texts, on which no intervention acts


def labelled_figure(panel: Panel, state: State, facts: Facts, now: Mapping[str, Answer], ref: Mapping[str, Answer]) -> Figure:
    """What the panel draws, beside the reference where there is one, with what it is of."""
    state = as_answered(state, now)
    figure = with_reference(panel, state, facts, now, ref)
    if not figure.grid:
        return figure
    edits = state.subject.edits
    ignores_edits = bool(edits) and panel.of_heads and bool(now) and not inputs_read(now)
    crosses_heads = any(getattr(mark, "struck", ()) for mark in figure.marks())
    without = WITHOUT if ignores_edits and SAME not in figure.title else ""
    edit_words = " ".join(filter(None, (without, f"{CUT} {short_words(edits)}" if crosses_heads else "")))
    figure = figure.with_caption("" if crosses_heads else silent_heads(state, facts, now))
    return replace(figure, title=joined(figure.title, edit_words), about=about(state, facts, now))


def silent_heads(state: State, facts: Facts, now: Mapping[str, Answer]) -> str:
    """For the caption: which heads of the answers write nothing to the stream, as their output is zero-ablated; "" for none."""
    if state.compare == "reference" or "tokens" not in inputs_read(now):
        return ""
    requested = {head for answer in now.values() for head in heads_of_params(answer.request.params)}
    sites = [e.site for e in state.subject.edits if e.op == "zero" and e.site.name in OUTPUT]
    all_heads = range(facts.config.n_heads)
    zeroed = [Head(s.layer, h) for s in sites if not (s.positions or s.sources) for h in s.heads or all_heads]
    names = [str(head) for head in dict.fromkeys(zeroed) if head in requested]
    if not names:
        return ""
    more = f" and {len(names) - MOST_HEADS} more" if len(names) > MOST_HEADS else ""
    verb = "writes" if len(names) == 1 else "write"
    return Essential(f"zeroed: {' '.join(names[:MOST_HEADS])}{more} {verb} nothing of this")


def about(state: State, facts: Facts, now: Mapping[str, Answer]) -> tuple[str, ...]:
    """Model, step, prompt, interventions; no prompt where the answers read weights alone."""
    of_weights = facts.steps and state.model.checkpoint is None
    parts = [*facts.name_parts, *(["final weights"] if of_weights else [])]
    inputs = inputs_read(now)
    if "tokens" in inputs:
        parts.append(prompt(state, facts))
    if inputs:
        edits = state.subject.edits
        parts += [words(e) for e in edits] if len(edits) <= MOST_EDITS else [number_of(len(edits), "intervention")]
    return tuple(filter(None, parts))


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
