"""What the entries along an axis of an array are: heads, positions with their tokens, names, or numbers from 0."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from circuitlab.analysis._results import Result

PAIR = "(layer, head)"  # the last axis of an array whose rows are heads
IN_PROMPT = ("position", "destination", "source")  # axes that may be those of the prompt
TokenText = Callable[[int], str]


@dataclass(frozen=True, eq=False)
class Axis:
    """One axis of an array. `entries` [size]: a whole number or a name for each; `more`: further columns, [size] each, by name.

    `name` as declared, with its number from the second of one name on.
    """

    name: str
    entries: np.ndarray
    more: Mapping[str, np.ndarray]


def axes_with_labels(result: Result, name: str, prompt: tuple[int, ...] = (), text: TokenText | None = None) -> tuple[Axis, ...]:
    """The axes of an array of a result. `prompt`: the tokens that it is of, () if it is of none; `text`: that of a token."""
    axes: list[Axis] = []
    for declared, size in zip(result.axes_of(name), result.arrays()[name].shape, strict=True):
        n = sum(axis.name.partition(" (")[0] == declared for axis in axes) if declared != PAIR else 0
        labelled = _labelled(result, declared, size, prompt, text)
        axes.append(Axis(f"{declared} ({n + 1})", labelled.entries, {}) if n else labelled)
    return tuple(axes)


def token_texts(ids: np.ndarray, text: TokenText) -> np.ndarray:
    """The text of each token, "" for an id below 0. Each id is looked up once."""
    known, places = np.unique(ids, return_inverse=True)
    return np.array([text(int(i)) if i >= 0 else "" for i in known], dtype=object)[places].reshape(ids.shape)


def _labelled(result: Result, axis: str, size: int, prompt: tuple[int, ...], text: TokenText | None) -> Axis:
    if (words := _own_words(axis, size)) is not None:
        return Axis(axis, words, {})
    names = _names(result, axis, size)
    arrays = {name: array for name, array in result.arrays().items() if result.axes_of(name) == (axis,) and len(array) == size}
    further = {name: array for name, array in arrays.items() if array.dtype.kind in "iub" and name != "positions"}
    more: dict[str, np.ndarray] = {}
    places = arrays.get("positions")
    prompt = _own_tokens(result) or prompt
    if places is None and axis in IN_PROMPT and size == len(prompt):
        places = np.arange(size)
    if places is not None:
        entries = places
        if text is not None and prompt:
            # a position below 0, or of another prompt, has no text
            ids = np.array([prompt[i] if 0 <= i < len(prompt) else -1 for i in places.tolist()], dtype=int)
            more[f"{axis} token"] = token_texts(ids, text)
    elif (own := result.entries_along(axis)) is not None and len(own) == size:
        entries = np.array(own) if np.asarray(own).dtype.kind in "iu" else np.array(own, dtype=object)
    elif names:
        entries = names.pop(next(iter(names)))
    else:
        entries = np.arange(size)
    return Axis(axis, entries, more | names | further)


def _own_tokens(result: Result) -> tuple[int, ...]:
    """The tokens that a result says it is of, which need not be the prompt; () if it says none."""
    tokens = result.arrays().get("tokens")
    named = tokens is not None and result.axes_of("tokens") == ("position",) and result.unit_of("tokens") == "token id"
    return tuple(tokens.tolist()) if named and tokens is not None else ()


def _own_words(axis: str, size: int) -> np.ndarray | None:
    """Of an axis that is called after its entries: "(layer, head)", "target and other"."""
    words = axis.strip("()").split(", ") if axis.startswith("(") else axis.split(" and ")
    return np.array(words, dtype=object) if len(words) == size > 1 else None


def _names(result: Result, axis: str, size: int) -> dict[str, np.ndarray]:
    """All names of the entries of an axis, by field: declared ones, texts, heads."""
    named = {field: np.array(names, dtype=object) for field, names in result.naming(axis).items() if len(names) == size}
    for name, array in result.arrays().items():
        axes = result.axes_of(name)
        if axes == (axis,) and array.dtype.kind == "U" and len(array) == size:
            named[name] = array.astype(object)
        if axes == (axis, PAIR) and len(array) == size:
            named[name] = np.array([f"L{layer}H{head}" if min(layer, head) >= 0 else "" for layer, head in array], dtype=object)
    return named
