"""What a figure is of, in a few words each: the model and its step, the prompt where it was read, interventions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from circuitlab.caption_parts import Essential, Intervened
from circuitlab.counting import number_of
from circuitlab.engine.request import STORED_WORDS, Answer
from circuitlab.figures.contracts.compare import with_reference
from circuitlab.figures.contracts.compare_questions import heads_of_params
from circuitlab.figures.contracts.declaration import Panel
from circuitlab.figures.contracts.facts import Facts, as_answered, edits_read, inputs_read
from circuitlab.figures.contracts.questions import Questions
from circuitlab.figures.marks import Figure
from circuitlab.figures.marks.title import with_parts
from circuitlab.model.subject import Head
from circuitlab.state.cuts import CUT, edit_words, short_words
from circuitlab.state.state import State

LONGEST = 36  # characters of a prompt
MOST_HEADS = 4  # that a caption names
OUTPUT = ("z", "result")  # sites at which a head's output is ablated


def labelled_figure(
    panel: Panel,
    state: State,
    facts: Facts,
    now: Mapping[str, Answer],
    ref: Mapping[str, Answer],
    asked: Questions | None = None,
) -> Figure:
    """What the panel draws, beside the reference where there is one, with what it is of."""
    state = as_answered(state, now)
    if asked is None or not asked.of(state, facts):
        asked = Questions(panel.ask(state, facts))
    figure, is_reference = with_reference(panel, asked, now, ref)
    if not figure.grid:
        return figure
    if is_reference:
        now = ref or now  # the answers of both sides where nothing that they read differs
        state, facts = _reference_side(state, facts, now)
    crosses_heads = any(getattr(mark, "struck", ()) for mark in figure.marks())
    cut = short_words(edits_read(now)) if crosses_heads or not is_reference else ""
    cut_words = f"{CUT} {cut}" if crosses_heads else cut
    title = figure.title if cut_words in figure.title else with_parts(figure.title, cut=cut_words)
    figure = figure.with_caption("" if crosses_heads else silent_heads(state, facts, now), stored(now, ref))
    return replace(figure, title=title, cut=cut_words, about=about(state, facts, now))


def _reference_side(state: State, facts: Facts, ref: Mapping[str, Answer]) -> tuple[State, Facts]:
    """The State that a figure of the reference shows, and its model."""
    pin = state.reference
    assert pin is not None
    at = replace(state.at(pin), compare="now")
    return as_answered(at, ref), facts if pin.subject.model == state.model else facts.others(pin.subject.model) or facts


def stored(now: Mapping[str, Answer], ref: Mapping[str, Answer]) -> str:
    """For the caption: whether its numbers were read from a session file, all or some of them; "" for none."""
    each = [answer.provenance.stored for answer in (*now.values(), *ref.values())]
    return Essential(STORED_WORDS if all(each) else f"partly {STORED_WORDS}") if any(each) else ""


def silent_heads(state: State, facts: Facts, now: Mapping[str, Answer]) -> str:
    """For the caption: which heads of the answers write nothing to the stream, as their output is zero-ablated; "" for none."""
    if "tokens" not in inputs_read(now):
        return ""
    requested = {head for answer in now.values() for head in heads_of_params(answer.request.params)}
    sites = [e.site for e in edits_read(now) if e.op == "zero" and e.site.name in OUTPUT]
    all_heads = range(facts.config.n_heads)
    zeroed = [Head(s.layer, h) for s in sites if not (s.positions or s.sources) for h in s.heads or all_heads]
    names = [str(head) for head in dict.fromkeys(zeroed) if head in requested]
    if not names:
        return ""
    more = f" and {len(names) - MOST_HEADS} more" if len(names) > MOST_HEADS else ""
    verb = "writes" if len(names) == 1 else "write"
    return Essential(f"zeroed: {' '.join(names[:MOST_HEADS])}{more} {verb} nothing of this")


def about(state: State, facts: Facts, now: Mapping[str, Answer]) -> tuple[str, ...]:
    """Model, step, prompt, interventions; no prompt where the answers read weights alone. Interventions must stay in sight."""
    parts = list(name_and_weights(state, facts))
    inputs = inputs_read(now)
    if "tokens" in inputs:
        parts.append(prompt(state, facts))
    parts += map(Intervened, edit_words(edits_read(now)))
    return tuple(filter(None, parts))


def name_and_weights(state: State, facts: Facts | None) -> tuple[str, ...]:
    """The model's name and its training step, or that it has its final weights. None: nothing is known but where it is from."""
    if facts is None:
        return state.model.name_parts
    return (*facts.name_parts, *(("final weights",) if facts.steps and state.model.checkpoint is None else ()))


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
    """Which special token the prompt starts with, BOS by that name; "" for a model without a tokenizer, which has none."""
    if not facts.has_tokenizer:
        return ""
    first = state.tokens[0]
    if first == facts.bos:
        return ", BOS first"
    return f", {facts.token_text(first)} first" if first in facts.special else ", no BOS"
