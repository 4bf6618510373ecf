"""Rotary frequencies as Hugging Face configurations state them, with the rescalings that families use for longer contexts.

Files state `rope_parameters` (newer ones, flat or for each kind of layer) or `rope_theta` with `rope_scaling` (older ones). Both
become explicit frequencies θ and an amplitude, so that the rotation itself has one form only. Where the frequencies depend on the
prompt's length ("dynamic", "longrope"), the context ends where they would begin to change (`context`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from circuitlab.counting import number_of
from circuitlab.disk.json_types import JsonObject
from circuitlab.errors import BadModel, cause, quoted
from circuitlab.model.config import Rotary
from circuitlab.model.loading.huggingface import flag, number, size

Frequencies = tuple[float, ...]
OF_GGUF = "of_gguf"  # what only the reader of GGUF says: rotary `columns`, `divisors` of the frequencies; no folder states it
_SHARE = "partial_rotary_factor"


@dataclass(frozen=True)
class _Scaling:
    """A rescaling: the frequencies without it, the number of rotary columns, its own fields and the whole configuration."""

    theta: Frequencies
    base: float
    dims: int
    fields: JsonObject
    config: JsonObject

    def original(self) -> float:
        """Positions of the context that the model was first trained on."""
        return _original(self.fields, self.config)

    def factor(self) -> float:
        """The present context divided by the original one."""
        if self.fields.get("factor") is None:
            return number(self.config, "max_position_embeddings") / self.original()
        return number(self.fields, "factor")


Scaling = Callable[[_Scaling], tuple[Frequencies, float, str]]


def rotary(
    config: Mapping[str, object],
    d_head: int,
    base: float = 10000.0,
    partial: float | None = None,
    kind: str = "full_attention",
) -> tuple[Rotary, tuple[str, ...]]:
    """The rotation of a configuration and notes on it. `base`, `partial`: the family's defaults, no `partial` in one that rotates
    all columns whatever a file says; `kind`: of the layers it is for.

    Raises `BadModel` for an unknown rescaling, or if no pair would rotate.
    """
    fields = _rescaling_fields(config, kind)
    notes = () if "rope_theta" in fields or "rope_theta" in config else (f"rotary base {base:g}, as the file states none",)
    base = number(fields, "rope_theta", number(config, "rope_theta", base))
    dims, share_notes = _columns(config, fields, d_head, partial)
    notes += share_notes
    if base <= 0:
        raise BadModel("The configuration's rotary base is not above zero.", expected="a number such as 10000", got=f"{base:g}")
    plain = Rotary(base=base, dims=dims)
    name = "divided" if "divisors" in of_gguf(config) else _name(fields)
    if name == "default":
        return plain, notes
    rescale = _divided if "divisors" in of_gguf(config) else _SCALINGS.get(name)
    if rescale is None:
        raise BadModel("The rotary rescaling is not known.", expected=" ".join(("default", *_SCALINGS)), got=name[:60])
    try:
        theta, amplitude, rescaling = rescale(_Scaling(plain.frequencies(d_head), base, dims or d_head, fields, config))
    except (ArithmeticError, ValueError) as error:
        raise BadModel(
            f"The rotary rescaling {name} has impossible values.", expected="factors above 0", got=cause(error)
        ) from error
    return Rotary(base=base, dims=dims, theta=theta, amplitude=amplitude), (*notes, f"rotary frequencies rescaled: {rescaling}")


def _columns(config: JsonObject, fields: JsonObject, d_head: int, partial: float | None) -> tuple[int, tuple[str, ...]]:
    """How many columns of a head rotate, 0 for all, and a note on a share that is stated and not used."""
    if "columns" in (counted := of_gguf(config)):  # in every family
        columns = size(counted, "columns")
    else:
        share = number(fields, _SHARE, number(config, _SHARE, 1.0 if partial is None else partial))
        if partial is None and share != 1:
            return 0, (f"{_SHARE} {share:g} is not used: models of this family rotate all columns of a head",)
        columns = int(d_head * share)
    if columns < 2 and columns != d_head:  # none would mean all of them
        raise BadModel(
            "No pair of columns rotates with the position.",
            expected=f"at least 2 of each head's {number_of(d_head, 'column')}",
            got=str(columns),
        )
    return 0 if columns == d_head else columns, ()


def of_gguf(config: Mapping[str, object]) -> JsonObject:
    """What the reader of GGUF adds to a configuration, {} for a folder's."""
    added = config.get(OF_GGUF)
    return added if isinstance(added, Mapping) else {}


def context(config: JsonObject, default: int) -> tuple[int, tuple[str, ...]]:
    """Positions over which the frequencies of `rotary` are the model's own, and a note where that is not the whole context."""
    whole = size(config, "max_position_embeddings", default)
    fields = _rescaling_fields(config, "full_attention")
    name = _name(fields)
    if name == "dynamic":
        return whole, (
            f"context of {number_of(whole, 'position')}: beyond them the rotary base would grow with every token of the prompt",
        )
    if name != "longrope":
        return whole, ()
    short = min(whole, int(_original(fields, config)))
    if short == whole:
        return whole, ()
    return short, (
        f"context limited to {short} positions of {whole}: a longer prompt would rotate all its tokens, the first ones too, by "
        "other frequencies (LongRoPE's long factors), so that the same tokens would have two sets of attention patterns",
    )


def _rescaling_fields(config: Mapping[str, object], kind: str) -> JsonObject:
    """The rescaling's own fields; those of `kind` in files that state one for each kind of layer."""
    parameters = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if isinstance(parameters, Mapping) and any(isinstance(v, Mapping) for v in parameters.values()):
        parameters = parameters.get(kind) or {}
    if not isinstance(parameters, Mapping):
        raise BadModel("The configuration's rotary parameters cannot be read.", expected="an object", got=quoted(parameters))
    return parameters


def _name(fields: Mapping[str, object]) -> str:
    """The rescaling's present name: early files of Phi-3 call LongRoPE "su" or "yarn"."""
    name = str(fields.get("rope_type") or fields.get("type") or "default")
    return "longrope" if name == "su" or (name == "yarn" and "short_factor" in fields) else name


def _original(fields: Mapping[str, object], config: Mapping[str, object]) -> float:
    """Positions of the original context: stated outside the rescaling (Phi-3), or in it, or else those of the whole context."""
    name = "original_max_position_embeddings"
    return number(config, name, fields.get(name) or config.get("max_position_embeddings"))


def _linear(scaling: _Scaling) -> tuple[Frequencies, float, str]:
    factor = number(scaling.fields, "factor")
    return tuple(t / factor for t in scaling.theta), 1.0, f"linear, factor {factor:g}"


def _dynamic(scaling: _Scaling) -> tuple[Frequencies, float, str]:
    """NTK-aware, by the prompt's length: nothing changes within the context."""
    return scaling.theta, 1.0, f"dynamic, factor {number(scaling.fields, 'factor'):g}, without effect within the context"


def _llama3(scaling: _Scaling) -> tuple[Frequencies, float, str]:
    """Low frequencies divided by `factor`, high ones unchanged, a ramp between (Llama 3.1)."""
    factor, low, high = (number(scaling.fields, n) for n in ("factor", "low_freq_factor", "high_freq_factor"))
    old = scaling.original()

    def scaled(t: float) -> float:
        turns = old * t / (2 * math.pi)  # full turns of this pair over the original context
        share = min(1.0, max(0.0, (turns - low) / (high - low)))
        return share * t + (1 - share) * t / factor

    return tuple(map(scaled, scaling.theta)), 1.0, f"Llama 3, factor {factor:g} over {old:g} positions"


def _yarn(scaling: _Scaling) -> tuple[Frequencies, float, str]:
    """Peng et al. 2023: like Llama 3's with a ramp over the index of the pair, and an amplitude for all (their equation 22)."""
    fields, factor, old = scaling.fields, scaling.factor(), scaling.original()

    def pair_that_turns(times: float) -> float:
        return scaling.dims * math.log(old / (times * 2 * math.pi)) / (2 * math.log(scaling.base))

    low, high = (pair_that_turns(number(fields, n, d) or d) for n, d in (("beta_fast", 32.0), ("beta_slow", 1.0)))
    if flag(fields, "truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, scaling.dims - 1)
    high = high + 0.001 if low == high else high
    slowed = (min(1.0, max(0.0, (i - low) / (high - low))) for i in range(len(scaling.theta)))
    theta = tuple(s * t / factor + (1 - s) * t for s, t in zip(slowed, scaling.theta, strict=True))
    amplitude = _yarn_amplitude(fields, factor)
    return theta, amplitude, f"YaRN, factor {factor:g} over {old:g} positions, queries and keys times {amplitude:.4g}"


def _yarn_amplitude(fields: Mapping[str, object], factor: float) -> float:
    if fields.get("attention_factor") is not None:
        return number(fields, "attention_factor")
    growth = lambda share: 1.0 if factor <= 1 else 0.1 * share * math.log(factor) + 1.0
    if fields.get("mscale") and fields.get("mscale_all_dim"):
        return growth(number(fields, "mscale")) / growth(number(fields, "mscale_all_dim"))
    return growth(1.0)


def _longrope(scaling: _Scaling) -> tuple[Frequencies, float, str]:
    """Ding et al. 2024: a divisor for each pair; here the divisors for prompts within the original context."""
    factor, old = scaling.factor(), scaling.original()
    short = scaling.fields.get("short_factor")
    if not isinstance(short, list) or len(short) != len(scaling.theta):
        raise BadModel(
            "The configuration's short_factor of LongRoPE does not match the rotary columns.",
            expected=number_of(len(scaling.theta), "number"),
            got=f"{len(short)} of them" if isinstance(short, list) else quoted(short),
        )
    divisors = [number({"short_factor": x}, "short_factor") for x in short]
    amplitude = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(old))
    amplitude = number(scaling.fields, "attention_factor", amplitude)
    theta = tuple(t / x for t, x in zip(scaling.theta, divisors, strict=True))
    return theta, amplitude, f"LongRoPE's short factors, queries and keys times {amplitude:.4g}"


def _divided(scaling: _Scaling) -> tuple[Frequencies, float, str]:
    """A divisor for each pair, worked out when the file was written (GGUF's `rope_freqs`)."""
    stated = of_gguf(scaling.config)["divisors"]
    divisors = [number({"divisors": x}, "divisors") for x in stated] if isinstance(stated, list) else []
    if len(divisors) != len(scaling.theta):
        expected = f"{number_of(len(scaling.theta), 'divisor')} of the rotary frequencies"
        raise BadModel("The rotary frequencies do not match the columns.", expected=expected, got=str(len(divisors)))
    theta = tuple(t / x for t, x in zip(scaling.theta, divisors, strict=True))
    return theta, 1.0, f"each divided by a number of the file, {min(divisors):g} to {max(divisors):g}"


_SCALINGS: dict[str, Scaling] = {
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
