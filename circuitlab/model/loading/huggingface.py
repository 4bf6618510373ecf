"""Reading Hugging Face `config.json` files: typed fields, activations, windows, and the note on the score scale.

Field names and defaults are those of `transformers`. A missing field that the architecture needs is an error; a default that is
used is noted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from circuitlab.disk.json_types import JsonObject
from circuitlab.errors import BadModel, quoted
from circuitlab.model.config import Activation

ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_new",
    "gelu_fast": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
    "gelu_accurate": "gelu_new",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "relu2": "relu2",
    "silu": "silu",
    "swish": "silu",
}
_NEEDED = object()


def size(config: JsonObject, name: str, default: object = _NEEDED) -> int:
    """A whole number. Raises `BadModel`."""
    value = config.get(name)
    value = default if value is None else value
    if value is _NEEDED or not isinstance(value, int) or isinstance(value, bool):
        got = "nothing" if value is _NEEDED else quoted(value)
        raise BadModel(f"config.json: {name} is not a whole number.", expected="a size", got=got)
    most = 10_000 if "layer" in name else 65_536 if "head" in name else 2**40  # refused before anything of that size is allocated
    if abs(value) > most:
        raise BadModel(f"config.json: {name} is beyond any model.", expected=f"at most {most}", got=str(value))
    return value


def number(config: JsonObject, name: str, default: object = _NEEDED) -> float:
    """A finite number. Raises `BadModel`."""
    value = config.get(name)
    value = default if value is None else value
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        got = "nothing" if value is _NEEDED else quoted(value)
        raise BadModel(f"config.json: {name} is not a number.", expected="a finite number", got=got)
    return float(value)


def flag(config: Mapping[str, object], name: str, default: bool) -> bool:
    """True or false. Raises `BadModel`."""
    value = config.get(name)
    value = default if value is None else value
    if not isinstance(value, bool):
        raise BadModel(f"config.json: {name} is neither true nor false.", expected="true or false", got=quoted(value))
    return value


def activation(config: Mapping[str, object], name: str, default: str) -> Activation:
    """The MLP's nonlinearity. Raises `BadModel` for one that is not known."""
    value = config.get(name) or default
    if not isinstance(value, str) or value not in ACTIVATIONS:
        raise BadModel("The activation is not known.", expected=" ".join(ACTIVATIONS), got=quoted(value))
    return ACTIVATIONS[value]


def head_size(config: Mapping[str, object], d_model: int, n_heads: int, name: str = "head_dim") -> int:
    """Columns per head: stated, or d_model / heads. Raises `BadModel` where neither works."""
    if config.get(name) is not None:
        return size(config, name)
    if n_heads < 1 or d_model < 1 or d_model % n_heads:
        raise BadModel(
            "config.json: heads do not divide the width.", expected="a multiple of the heads", got=f"{d_model}, {n_heads}"
        )
    if d_model // n_heads > 65_536:
        raise BadModel("config.json: heads beyond any model.", expected="at most 65536 columns", got=f"{d_model // n_heads}")
    return d_model // n_heads


def refuse(config: Mapping[str, object], reasons: Mapping[str, str]) -> None:
    """Raise `BadModel` where a field is set that changes the architecture into one that is not known."""
    for name, what in reasons.items():
        if config.get(name):
            raise BadModel(f"{what} is not supported.", expected=f"a model without {name}", got=f"{name} {config[name]!r}"[:120])


def sliding_windows(config: JsonObject, n_layers: int, slides: Callable[[int], bool]) -> tuple[int, ...]:
    """[layer] positions that a destination sees, by `layer_types` where stated, else by `slides(layer)`; () without windows."""
    if config.get("sliding_window") is None:
        return ()
    width = size(config, "sliding_window")
    kinds = config.get("layer_types")
    if isinstance(kinds, list):
        if len(kinds) != n_layers:
            raise BadModel("config.json: layer_types has the wrong length.", expected=str(n_layers), got=str(len(kinds)))
        if unknown := sorted({str(k) for k in kinds} - {"sliding_attention", "full_attention"}):
            raise BadModel("config.json names attention that is not known.", expected="sliding or full", got=unknown[0][:60])
        windows = tuple(width if kind == "sliding_attention" else 0 for kind in kinds)
    else:
        windows = tuple(width if slides(i) else 0 for i in range(n_layers))
    return windows if any(windows) else ()


def scale_note(scale: float, d_head: int, why: str) -> str:
    """A note on the factor of `q·k` and its origin: a wrong one is the usual silent error of model conversions."""
    usual = abs(scale * math.sqrt(d_head) - 1) < 1e-9
    return f"score scale {scale:.4g} ({'1/√d_head, ' if usual else 'none, ' if scale == 1 else ''}{why})"
