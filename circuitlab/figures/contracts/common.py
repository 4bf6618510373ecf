"""What several panels share: the position that is read, axes of tokens, captions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache

import numpy as np

from circuitlab.analysis.base import Result
from circuitlab.analysis.circuits.token_readings import reads_normed
from circuitlab.analysis.ordering import head_names
from circuitlab.caption_parts import About, Essential, Sense, of_each
from circuitlab.counting import number
from circuitlab.engine.request import Answer
from circuitlab.figures.contracts.facts import Facts
from circuitlab.figures.marks import Axis, Hit, RowColumn, joined
from circuitlab.model.subject import Head
from circuitlab.state.cuts import CUT, heads_of, words
from circuitlab.state.state import State


def with_error(value: float, error: float) -> str:
    """A number in running text, with its standard error if that is finite."""
    return number(value) + (f" ± {error:.2f}" if np.isfinite(error) else "")


def destination(state: State) -> int:
    """The position that is read: the selected one, else the last. -1 without tokens."""
    chosen = state.selection.destination
    return len(state.tokens) - 1 if chosen is None else min(chosen, len(state.tokens) - 1)


def prompt_of(answer: Answer[Result]) -> tuple[int, ...]:
    """The token ids [pos] that an answer was computed on: the State's may be another prompt's by now."""
    return answer.request.subject.tokens


def token_at(position: int, token_ids: tuple[int, ...], facts: Facts) -> str:
    """A position and its token in a sentence: 3 ‘ the’."""
    return f"{position} {quoted(facts.token_text(token_ids[position]))}"


def token_axis(label: str, token_ids: tuple[int, ...], facts: Facts) -> Axis:
    """An axis with a token at each step; the same object for the same texts, so that another head lays nothing out again."""
    return _token_axis(label, facts.tokens(token_ids))


@lru_cache(maxsize=16)
def _token_axis(label: str, texts: tuple[str, ...]) -> Axis:
    return Axis(label, texts, tokens=True)


def equal_column(equal: np.ndarray) -> tuple[RowColumn, ...]:
    """Beside a rank: how many have it, `equal` [row], where more than one has it anywhere; () elsewhere."""
    values = np.where(equal > 0, equal, np.nan)
    tip = "how many have this rank, as they are exactly equal; none of them is first"
    return (RowColumn("equal", values, digits=0, tip=tip),) if (equal > 1).any() else ()


def head_column(layers: Iterable[int], heads: Iterable[int], name: str = "head") -> RowColumn:
    """The column of a table that names the head of each row."""
    return RowColumn(name, head_names(layers, heads).astype(object))


def caption(answer: Answer, *more: str) -> tuple[str, ...]:
    """The parts of a caption: conventions, sample, `more`, and a remainder where something was decomposed; "" is none."""
    remainder = "" if answer.result.remainder is None else answer.result.remainder.words()
    progress = "" if answer.complete else Essential(f"so far: {answer.result.done:.0%}", Sense(About.PROGRESS))
    return tuple(filter(None, (*answer.result.conventions, *more, remainder, progress)))


def captions(answers: Mapping[str, Answer | None], *more: str) -> tuple[str, ...]:
    """The parts of one caption for several answers, by what a reader calls them; None is none.

    A part that all say stands by itself, one that only some say behind their names.
    """
    said = {name: caption(answer) for name, answer in answers.items() if answer is not None}
    return (*of_each(said), *filter(None, more))


def edit_notes(state: State, facts: Facts) -> dict[tuple[int, int], str]:
    """By layer and head: which interventions act on the head; heads without any are left out."""
    by_head: dict[tuple[int, int], list[str]] = {}
    for edit in state.subject.edits:
        for head in heads_of(edit, facts.config):
            if head.layer < facts.config.n_layers and head.head < facts.config.n_heads:
                by_head.setdefault((head.layer, head.head), []).append(words(edit))
    return {head: f"{CUT} {', '.join(edits)}" for head, edits in by_head.items()}


def with_edit_notes(notes: Mapping[tuple[int, int], str], edits: Mapping[tuple[int, int], str]) -> Mapping[tuple[int, int], str]:
    """Notes on heads, with what is ablated or patched in them; the same object where nothing is."""
    if not edits:
        return notes
    return {head: joined(edits.get(head, ""), notes.get(head, "")) for head in {**notes, **edits}}


def rows_of_heads(state: State, keys: np.ndarray) -> tuple[int, ...]:
    """The rows of the chosen heads in a table with `keys` [n, (layer, head)], the leading head's first."""
    place = {tuple(key): i for i, key in enumerate(keys.tolist())}
    return tuple(place[head] for h in state.selection.heads if (head := (h.layer, h.head)) in place)


def hints(facts: Facts) -> Mapping[tuple[int, int], str]:
    """By layer and head: what papers call it, with the source, and the person's note; {} where there is nothing of either."""
    known_heads = facts.known_heads()
    return {} if known_heads is None else known_heads.hints


def edge_hints(facts: Facts) -> Mapping[tuple[Head, Head], str]:
    """By source and destination: the person's note on the edge; {} without any."""
    known_heads = facts.known_heads()
    return {} if known_heads is None else known_heads.edge_hints


def published(facts: Facts) -> str:
    """For a caption: which papers name heads of this model, how it was recognised, and which heads are noted; "" for neither."""
    known_heads = facts.known_heads()
    return "" if known_heads is None else known_heads.caption


def top_level(values: np.ndarray, fallback: float = 1.0) -> float:
    """The largest finite magnitude, `fallback` where there is none."""
    finite = values[np.isfinite(values)]
    top = float(np.abs(finite).max()) if finite.size else 0.0
    return top or fallback


def texts(token_ids: np.ndarray, facts: Facts) -> np.ndarray:
    """[n] display forms of token ids [n]; a small vocabulary fills a table with −1, which is no token."""
    return np.array([facts.token_text(int(i)) if i >= 0 else "" for i in token_ids], dtype=object)


def digits(top: float) -> int:
    """Digits after the decimal point for values up to `top`: two, and more where all values are small."""
    return max(2, 2 - math.floor(math.log10(top))) if 0 < top < 1 else 2


def rotates(facts: Facts) -> bool:
    """Whether this model's weights can be read at a distance between positions (rotary embeddings)."""
    return facts.config.positions == "rotary"


def has_mlps(facts: Facts) -> bool:
    """Whether tokens pass an MLP."""
    return not facts.config.attention_only


def reads_normed_tokens(facts: Facts) -> bool:
    """Whether attention reads tokens through a norm, so that rows of W_E can be read with its scale or without."""
    return reads_normed(facts.config)


def quoted(text: str) -> str:
    """A token in a sentence."""
    return f"‘{text}’"


def pick_position(state: State, hit: Hit) -> State:
    """Hover moves the destination unless it is locked, leaving releases it; a click locks it, a second click unlocks it."""
    selection = state.selection
    if hit.gesture == "leave" or not hit.id:
        return state if selection.locked else state.select(destination=None)
    position = hit.id[0]
    if hit.gesture == "hover":
        return state if selection.locked else state.select(destination=position)
    if selection.locked and selection.destination == position:
        return state.select(locked=False, destination=None, source=None)
    return state.select(destination=position, locked=True, token=None)
