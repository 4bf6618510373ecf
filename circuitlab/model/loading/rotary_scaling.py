"""Rotary frequencies as Hugging Face configurations state them, with the rescalings that families use for longer contexts.

`rope_parameters` (newer files, flat or one for each kind of layer) or `rope_theta` with `rope_scaling` (older ones). Everything
becomes explicit frequencies θ and an amplitude, so that the rotation itself knows one form only. Where the frequencies depend on
the prompt's length ("dynamic", "longrope"), the context ends where they would begin to change: `context` says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from circuitlab.counting import number_of
from circuitlab.errors import BadModel
from circuitlab.model.config import Rotary
from circuitlab.model.loading.huggingface import flag, number, size

Frequencies = tuple[float, ...]


@dataclass(frozen=True)
class _Scaling:
    """A rescaling: the frequencies without it, the columns that turn, its own fields and the whole configuration."""

    theta: Frequencies
    base: float
    dims: int
    stated: Mapping[str, Any]
    config: Mapping[str, Any]

    def original(self) -> float:
        """Positions of the context the model was first trained on."""
        return _original(self.stated, self.config)

    def factor(self) -> float:
        """How many times longer the context has become."""
        if self.stated.get("factor") is None:
            return number(self.config, "max_position_embeddings") / self.original()
        return number(self.stated, "factor")


Scaling = Callable[[_Scaling], tuple[Frequencies, float, str]]


def rotary(
    config: Mapping[str, Any], d_head: int, base: float = 10000.0, partial: float = 1.0, kind: str = "full_attention"
) -> tuple[Rotary, tuple[str, ...]]:
    """The rotation of a configuration and notes about it; `base` and `partial` are the family's defaults, `kind` the layers'.

    Raises `BadModel` for a rescaling that is not known.
    """
    stated = _stated(config, kind)
    notes = () if "rope_theta" in stated or "rope_theta" in config else (f"rotary base {base:g}, as the file states none",)
    base = number(stated, "rope_theta", number(config, "rope_theta", base))
    partial = number(stated, "partial_rotary_factor", number(config, "partial_rotary_factor", partial))
    if base <= 0:
        raise BadModel("config.json: the rotary base is not above zero.", expected="a number such as 10000", got=f"{base:g}")
    dims = int(d_head * partial)
    dims = 0 if dims == d_head else dims
    plain = Rotary(base=base, dims=dims)
    name = _name(stated)
    if name == "default":
        return plain, notes
    if name not in _SCALINGS:
        raise BadModel("The rotary rescaling is not known.", expected=" ".join(("default", *_SCALINGS)), got=name[:60])
    try:
        theta, amplitude, rescaling = _SCALINGS[name](_Scaling(plain.frequencies(d_head), base, dims or d_head, stated, config))
    except (ArithmeticError, ValueError) as error:
        raise BadModel(
            f"The rotary rescaling {name} has impossible values.", expected="factors above 0", got=str(error)
        ) from error
    return Rotary(base=base, dims=dims, theta=theta, amplitude=amplitude), (*notes, f"rotary frequencies rescaled: {rescaling}")


def context(config: Mapping[str, Any], default: int) -> tuple[int, tuple[str, ...]]:
    """Positions over which the frequencies of `rotary` are the model's own, and a note where that is not the whole context."""
    whole = size(config, "max_position_embeddings", default)
    stated = _stated(config, "full_attention")
    name = _name(stated)
    if name == "dynamic":
        return whole, (
            f"context of {number_of(whole, 'position')}: beyond them the rotary base would grow with every token of the prompt",
        )
    if name != "longrope":
        return whole, ()
    short = min(whole, int(_original(stated, config)))
    if short == whole:
        return whole, ()
    return short, (
        f"context limited to {short} positions of {whole}: a longer prompt would turn all its tokens, the first ones too, by "
        "other frequencies (LongRoPE's long factors), so that one and the same prompt would have two sets of attention patterns",
    )


def _stated(config: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """The rescaling's own fields; of files that state one for each kind of layer, that kind's."""
    parameters = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if isinstance(parameters, Mapping) and any(isinstance(v, Mapping) for v in parameters.values()):
        parameters = parameters.get(kind) or {}
    if not isinstance(parameters, Mapping):
        raise BadModel("config.json: the rotary parameters cannot be read.", expected="an object", got=repr(parameters)[:80])
    return parameters


def _name(stated: Mapping[str, Any]) -> str:
    """The rescaling's name today: Phi-3's first files call LongRoPE "su" or "yarn"."""
    name = str(stated.get("rope_type") or stated.get("type") or "default")
    return "longrope" if name == "su" or (name == "yarn" and "short_factor" in stated) else name


def _original(stated: Mapping[str, Any], config: Mapping[str, Any]) -> float:
    """Stated outside the rescaling (Phi-3), or inside, or the same as the whole context."""
    name = "original_max_position_embeddings"
    return number(config, name, stated.get(name) or config.get("max_position_embeddings"))


def _linear(scaling: _Scaling) -> tuple[Frequencies, float, str]:
    factor = number(scaling.stated, "factor")
    return tuple(t / factor for t in scaling.theta), 1.0, f"linear, factor {factor:g}"


def _dynamic(scaling: _Scaling) -> tuple[Frequencies, float, str]:
    """NTK-aware, by the prompt's length: within the context nothing changes."""
    return scaling.theta, 1.0, f"dynamic, factor {number(scaling.stated, 'factor'):g}, without effect within the context"


def _llama3(scaling: _Scaling) -> tuple[Frequencies, float, str]:
    """Long wavelengths divided by `factor`, short ones kept, a ramp between (Llama 3.1)."""
    factor, low, high = (number(scaling.stated, n) for n in ("factor", "low_freq_factor", "high_freq_factor"))
    old = scaling.original()

    def scaled(t: float) -> float:
        turns = old * t / (2 * math.pi)  # of this pair over the original context
        share = min(1.0, max(0.0, (turns - low) / (high - low)))
        return share * t + (1 - share) * t / factor

    return tuple(map(scaled, scaling.theta)), 1.0, f"Llama 3, factor {factor:g} over {old:g} positions"


def _yarn(scaling: _Scaling) -> tuple[Frequencies, float, str]:
    """Peng et al. 2023: as Llama 3's, with a ramp over the pair's index, and an amplitude for all (their equation 22)."""
    stated, factor, old = scaling.stated, scaling.factor(), scaling.original()

    def pair_that_turns(times: float) -> float:
        return scaling.dims * math.log(old / (times * 2 * math.pi)) / (2 * math.log(scaling.base))

    low, high = (pair_that_turns(number(stated, n, d) or d) for n, d in (("beta_fast", 32.0), ("beta_slow", 1.0)))
    if flag(stated, "truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, scaling.dims - 1)
    high = high + 0.001 if low == high else high
    slowed = (min(1.0, max(0.0, (i - low) / (high - low))) for i in range(len(scaling.theta)))
    theta = tuple(s * t / factor + (1 - s) * t for s, t in zip(slowed, scaling.theta, strict=True))
    amplitude = _yarn_amplitude(stated, factor)
    return theta, amplitude, f"YaRN, factor {factor:g} over {old:g} positions, queries and keys times {amplitude:.4g}"


def _yarn_amplitude(stated: Mapping[str, Any], factor: float) -> float:
    if stated.get("attention_factor") is not None:
        return number(stated, "attention_factor")
    grown = lambda share: 1.0 if factor <= 1 else 0.1 * share * math.log(factor) + 1.0
    if stated.get("mscale") and stated.get("mscale_all_dim"):
        return grown(number(stated, "mscale")) / grown(number(stated, "mscale_all_dim"))
    return grown(1.0)


def _longrope(scaling: _Scaling) -> tuple[Frequencies, float, str]:
    """Ding et al. 2024: a divisor for each pair; those for prompts within the original context."""
    factor, old = scaling.factor(), scaling.original()
    short = scaling.stated.get("short_factor")
    if not isinstance(short, list) or len(short) != len(scaling.theta):
        raise BadModel(
            "config.json: LongRoPE's short_factor does not match the columns that turn.",
            expected=number_of(len(scaling.theta), "number"),
            got=f"{len(short)} of them" if isinstance(short, list) else repr(short)[:80],
        )
    divisors = [number({"short_factor": x}, "short_factor") for x in short]
    amplitude = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(old))
    amplitude = number(scaling.stated, "attention_factor", amplitude)
    theta = tuple(t / x for t, x in zip(scaling.theta, divisors, strict=True))
    return theta, amplitude, f"LongRoPE's short factors, queries and keys times {amplitude:.4g}"


_SCALINGS: dict[str, Scaling] = {
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
