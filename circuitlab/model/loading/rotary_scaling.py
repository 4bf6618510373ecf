"""Rotary frequencies as Hugging Face configurations state them, with the rescalings that families use for longer contexts.

`rope_parameters` (newer files) or `rope_theta` with `rope_scaling` (older ones). Everything becomes explicit frequencies θ and an
amplitude, so that the rotation itself knows one form only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from circuitlab.errors import BadModel
from circuitlab.model.config import Rotary
from circuitlab.model.loading.huggingface import number

Scaling = Callable[[tuple[float, ...], Mapping[str, Any], Mapping[str, Any]], tuple[tuple[float, ...], float, str]]


def rotary(
    config: Mapping[str, Any], d_head: int, base: float = 10000.0, partial: float = 1.0, kind: str = "full_attention"
) -> tuple[Rotary, tuple[str, ...]]:
    """The rotation of a configuration and notes about it; `base` and `partial` are the family's defaults, `kind` the layers'.

    Raises `BadModel` for a rescaling that is not known.
    """
    stated = _stated(config, kind)
    base = number(stated, "rope_theta", number(config, "rope_theta", base))
    partial = number(stated, "partial_rotary_factor", number(config, "partial_rotary_factor", partial))
    dims = int(d_head * partial)
    dims = 0 if dims == d_head else dims
    plain = Rotary(base=base, dims=dims)
    name = str(stated.get("rope_type") or stated.get("type") or "default")
    if name == "default":
        return plain, ()
    if name not in _SCALINGS:
        raise BadModel("The rotary rescaling is not known.", expected=" ".join(("default", *_SCALINGS)), got=name[:60])
    theta, amplitude, said = _SCALINGS[name](plain.frequencies(d_head), stated, config)
    return Rotary(base=base, dims=dims, theta=theta, amplitude=amplitude), (f"rotary frequencies rescaled: {said}",)


def _stated(config: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """The rescaling's own fields; of files that state one for each kind of layer, that kind's."""
    found = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if isinstance(found, Mapping) and isinstance(found.get(kind), Mapping):
        found = found[kind]
    if not isinstance(found, Mapping):
        raise BadModel("config.json: the rotary parameters cannot be read.", expected="an object", got=repr(found)[:80])
    return found


def _linear(
    theta: tuple[float, ...], stated: Mapping[str, Any], config: Mapping[str, Any]
) -> tuple[tuple[float, ...], float, str]:
    factor = number(stated, "factor")
    return tuple(t / factor for t in theta), 1.0, f"linear, factor {factor:g}"


def _llama3(
    theta: tuple[float, ...], stated: Mapping[str, Any], config: Mapping[str, Any]
) -> tuple[tuple[float, ...], float, str]:
    """Long wavelengths divided by `factor`, short ones kept, a ramp between (Llama 3.1)."""
    factor, low, high = (number(stated, n) for n in ("factor", "low_freq_factor", "high_freq_factor"))
    old = number(stated, "original_max_position_embeddings")

    def scaled(t: float) -> float:
        turns = old * t / (2 * math.pi)  # of this pair over the original context
        share = min(1.0, max(0.0, (turns - low) / (high - low)))
        return share * t + (1 - share) * t / factor

    return tuple(map(scaled, theta)), 1.0, f"Llama 3, factor {factor:g} over {old:g} positions"


_SCALINGS: dict[str, Scaling] = {"linear": _linear, "llama3": _llama3}
