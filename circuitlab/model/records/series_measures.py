"""Measures of a model along its training: `series.safetensors` beside its weights, so that drawing curves needs no weights.

A *point* is a checkpoint of the series, or the final weights. Arrays have the point as their first axis (`layer`, `head` as in
the model; losses in nats), and all are float32:

    loss [point], loss_by_index [point, context − 1]            held-out text; index i is the token at position i + 1
    repeated_loss_by_index [point, 2 · block]                   random tokens, a block and the same block again
    repeated_text_loss_by_index [point, 2 · half]               held-out text, a piece and the same piece again
    token_loss [point, text]                                    one fixed token in each of many texts, the same for all
    prefix_matching, previous_token, duplicate_token, first_token, copying     [point, layer, head]
    zeroed_text, zeroed_repeated [point, layer, head]           rise of the mean loss without the head, patterns frozen
    early_by_text, late_by_text [point, held-out text]          mean loss of each text over the early and over the late positions
    own_token_top_1, own_token_top_10 [point, layer, head]      share of OV rows whose own token is among the first 1, 10

The last four were added later: a file without them is read with NaN ("not measured") in their place, as are points whose weights
were not kept until then.

`training/series_measuring.py` writes the file; `protocol` ("said" in the file): what was measured, on what, with which seeds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from circuitlab.counting import number_of
from circuitlab.disk.files import write_whole
from circuitlab.disk.json_types import JsonObject
from circuitlab.errors import BadModel, cause

FILE = "series.safetensors"
FORMAT = "circuitlab-series-1"
GONE = -2  # in place of a checkpoint's index: it was measured, its weights were not kept
LARGEST = 256 * 2**20  # bytes: no file of measures is larger
MOST = 2**53  # steps and tokens: whole numbers are exact in float64 up to here
TEXT_ARRAYS = ("early_by_text", "late_by_text")
OWN_ARRAYS = ("own_token_top_1", "own_token_top_10")
_HEADS = ("prefix_matching", "previous_token", "duplicate_token", "first_token", "copying", "zeroed_text", "zeroed_repeated")
HEAD_ARRAYS = (*_HEADS, *OWN_ARRAYS)
_REQUIRED = ("loss", "loss_by_index", "repeated_loss_by_index", "repeated_text_loss_by_index", "token_loss", *_HEADS)


@dataclass(frozen=True, eq=False)
class SeriesMeasures:
    """`steps`, `tokens` [point]: optimiser steps done and tokens seen; `checkpoints` [point]: index into the checkpoint series,
    None for the final weights, `GONE` where the weights were not kept. `arrays` and `protocol`: see the module.
    """

    steps: tuple[int, ...]
    tokens: tuple[int, ...]
    checkpoints: tuple[int | None, ...]
    arrays: Mapping[str, np.ndarray]
    protocol: JsonObject

    def __getitem__(self, name: str) -> np.ndarray:
        return self.arrays[name]


def write_series(folder: Path, measures: SeriesMeasures) -> None:
    """Write `series.safetensors` whole or not at all. Raises `BadMachine`."""
    about = {
        "format": FORMAT,
        "steps": list(measures.steps),
        "tokens": list(measures.tokens),
        "checkpoints": list(measures.checkpoints),
        "said": dict(measures.protocol),
    }
    arrays = {name: np.ascontiguousarray(a, np.float32) for name, a in measures.arrays.items()}
    write_whole(folder / FILE, save(arrays, {"about": json.dumps(about, ensure_ascii=True)}))


def has_series(folder: Path) -> bool:
    """Whether measures lie beside the model's weights."""
    return (folder / FILE).is_file()


def read_series(folder: Path) -> SeriesMeasures:
    """The measures beside a model's weights. Raises `BadModel` where there are none or they contradict themselves."""
    path = folder / FILE
    if not path.is_file():
        raise BadModel(
            "This model's training was not measured.",
            expected=f"{FILE} beside its weights",
            got="none",
            remedy="Measure its checkpoints: circuitlab measure MODEL --text FILES.",
        )
    if path.stat().st_size > LARGEST:
        raise BadModel(
            f"{FILE} is too large.",
            expected=f"at most {LARGEST} bytes",
            got=str(path.stat().st_size),
            remedy="Measure the checkpoints again: circuitlab measure MODEL --text FILES.",
        )
    try:
        with safe_open(str(path), framework="numpy") as file:
            about = json.loads((file.metadata() or {}).get("about", "{}"))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, TypeError, RecursionError) as error:  # TypeError: a dtype that NumPy lacks
        raise BadModel(
            f"{FILE} cannot be read.",
            expected=f"a file of format {FORMAT}",
            got=cause(error),
            remedy="Measure the checkpoints again: circuitlab measure MODEL --text FILES.",
        ) from error
    return _checked(about, arrays)


def _checked(about: object, arrays: dict[str, np.ndarray]) -> SeriesMeasures:
    wrong = lambda expected, got: BadModel(
        f"{FILE} contradicts itself.",
        expected=expected,
        got=str(got)[:200],
        remedy="Measure the checkpoints again: circuitlab measure MODEL --text FILES.",
    )
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise wrong(f"format {FORMAT}", about.get("format") if isinstance(about, dict) else about)
    lists = [about.get(name) for name in ("steps", "tokens", "checkpoints")]
    n = len(lists[0]) if isinstance(lists[0], list) else 0
    whole = lambda v, none: (type(v) is int and 0 <= v <= MOST) or (none and (v is None or (type(v) is int and v == GONE)))
    for name, values in zip(("steps", "tokens", "checkpoints"), lists, strict=True):
        if not isinstance(values, list) or len(values) != n or not all(whole(v, name == "checkpoints") for v in values):
            raise wrong(f"{name}: one whole number for each point", values)
    for name, values in zip(("steps", "tokens"), lists, strict=False):
        if not n or sorted(values or ()) != values:
            raise wrong(f"{name} in the order of training", values)
    if complaint := _complaint(arrays, n):
        raise wrong(*complaint)
    arrays = _unmeasured(arrays, n) | arrays
    for array in arrays.values():
        array.setflags(write=False)
    protocol = about.get("said")
    steps, tokens, checkpoints = (tuple(values or ()) for values in lists)
    return SeriesMeasures(steps, tokens, checkpoints, arrays, protocol if isinstance(protocol, dict) else {})


def _complaint(arrays: Mapping[str, np.ndarray], n: int) -> tuple[str, str] | None:
    """(expected, got) of the first array whose shape or dtype is not as documented above for `n` points."""
    if missing := [name for name in _REQUIRED if name not in arrays]:
        return f"arrays {' '.join(_REQUIRED)}", f"without {' '.join(missing)}"
    for name in (*_REQUIRED, *(later for later in (*TEXT_ARRAYS, *OWN_ARRAYS) if later in arrays)):
        array, dims = arrays[name], 1 if name == "loss" else 3 if name in HEAD_ARRAYS else 2
        if array.dtype != np.float32 or array.ndim != dims or len(array) != n:
            return f"{name}: float32, {dims} axes, {number_of(n, 'point')}", f"{array.dtype} {array.shape}"
        if name in TEXT_ARRAYS and array.shape != (shape := arrays.get(TEXT_ARRAYS[0], array).shape):
            return f"{name}: the texts of {TEXT_ARRAYS[0]}, {shape}", f"{array.shape}"
        if dims == 2 and not array.shape[1]:
            return f"{name}: at least one loss a point", f"{array.shape}"
        if dims == 3 and array.shape != (shape := arrays[HEAD_ARRAYS[0]].shape):
            return f"{name}: the layers and heads of {HEAD_ARRAYS[0]}, {shape}", f"{array.shape}"
    return None


def _unmeasured(arrays: Mapping[str, np.ndarray], n: int) -> dict[str, np.ndarray]:
    """NaN for the arrays that files of `n` points may lack."""
    nothing = lambda shape: np.full(shape, np.nan, np.float32)
    per_text = {name: nothing((n, 1)) for name in TEXT_ARRAYS}
    return per_text | {name: nothing(arrays[_HEADS[0]].shape) for name in OWN_ARRAYS}


def beside(measures: SeriesMeasures, steps: Sequence[int]) -> SeriesMeasures:
    """The measures with `checkpoints` as indices into the present files, which are of `steps`; `GONE` where there is no file.

    Checkpoints may have been added or removed since the measurement, and an index would then mean another step.
    """
    index = {step: i for i, step in enumerate(steps)}
    pairs = zip(measures.steps, measures.checkpoints, strict=True)
    return replace(measures, checkpoints=tuple(None if c is None else index.get(step, GONE) for step, c in pairs))
