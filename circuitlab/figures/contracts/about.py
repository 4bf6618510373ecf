"""What a figure is a figure of, in a few words each: the model and its step, the prompt where it was read, interventions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from circuitlab.counting import number_of
from circuitlab.engine.request import Answer
from circuitlab.figures.contracts.compare import with_reference
from circuitlab.figures.contracts.compare_questions import asked_heads
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
WITHOUT = "without the cut"  # of numbers that are of the weights, or of other texts, while something is cut


def drawn(panel: Panel, state: State, facts: Facts, now: Mapping[str, Answer], ref: Mapping[str, Answer]) -> Figure:
    """What the panel draws, beside the reference where there is one, and what it is drawn of."""
    figure = with_reference(panel, state, facts, now, ref)
    if not figure.grid:
        return figure
    aside = bool(state.subject.edits) and panel.of_heads and bool(now) and not read(now) & {"tokens", "edits"}
    crossed = any(getattr(mark, "struck", ()) for mark in figure.marks())
    which = f"{CUT} {short_words(state.subject.edits)}" if crossed else ""
    cut = " ".join(filter(None, (WITHOUT if aside and SAME not in figure.title else "", which)))
    figure = figure.with_caption("" if crossed else silenced(state, facts, now))
    return replace(figure, title=joined(figure.title, cut), about=about(state, facts, now))


def silenced(state: State, facts: Facts, now: Mapping[str, Answer]) -> str:
    """Which of the heads whose inner work is shown write nothing of it, because their output is zeroed; "" for none."""
    if state.compare == "reference" or "tokens" not in read(now):
        return ""
    shown = {head for answer in now.values() for head in asked_heads(answer.request.params)}
    cut = [e.site for e in state.subject.edits if e.op == "zero" and e.site.name in OUTPUT and e.path_from is None]
    every = range(facts.config.n_heads)
    gone = [Head(s.layer, h) for s in cut if not (s.positions or s.sources) for h in s.heads or every]
    named = [str(head) for head in dict.fromkeys(gone) if head in shown]
    if not named:
        return ""
    who = " ".join(named[:MOST_HEADS]) + (f" and {len(named) - MOST_HEADS} more" if len(named) > MOST_HEADS else "")
    return f"zeroed: {who} writes nothing of this" if len(named) == 1 else f"zeroed: {who} write nothing of this"


def read(now: Mapping[str, Answer]) -> set[str]:
    """What beside weights the answers are of: "tokens" of the prompt, with its interventions, or "edits" alone."""
    return {getattr(a.request.params, "needs", a.request.analysis.needs) for a in now.values()}


def about(state: State, facts: Facts, now: Mapping[str, Answer]) -> tuple[str, ...]:
    """Model, step, prompt, interventions; of weights alone no prompt is named."""
    of_weights = facts.steps and state.model.checkpoint is None
    parts = [*facts.name.split(BETWEEN), *(["final weights"] if of_weights else [])]
    of = read(now)
    if "tokens" in of:
        parts.append(prompt(state, facts))
    if of & {"tokens", "edits"}:
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
    """Whether a token that begins a sequence stands in front; nothing where the model has no words, and so no such token."""
    if not facts.has_tokenizer:
        return ""
    return ", BOS first" if facts.bos is not None and state.tokens[0] == facts.bos else ", no BOS"
