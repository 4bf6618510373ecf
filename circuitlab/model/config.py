"""The configuration of a transformer: `ModelConfig`, validated on creation."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from circuitlab.counting import number_of
from circuitlab.disk.json_types import JsonDict
from circuitlab.errors import BadModel, cause, quoted

Positions = Literal["none", "learned", "sinusoidal", "shortformer", "rotary", "alibi"]
NormKind = Literal["none", "layer", "rms"]
NormPlacement = Literal["pre", "post_residual", "post_sublayer", "both"]
QkNormOver = Literal["head", "all"]
Activation = Literal["relu", "gelu", "gelu_new", "silu", "quick_gelu", "relu2", "solu_ln"]
BiasName = Literal["q", "k", "v", "o", "mlp", "unembed"]

_MOST = {
    "n_layers": 10_000,
    "d_head": 65_536,
    "n_heads": 65_536,
    "experts": 65_536,
    "layers × experts": 131_072,
}  # beyond any model, so that nothing grows without bound with the number of layers or heads
_LARGEST = 2**40
_NUMBERS = ("norm_eps", "embed_scale", "score_scale", "score_soft_cap", "logit_soft_cap")
_SWITCHES = ("final_norm", "gated", "parallel", "smeared_keys", "tied", "prepend_bos")

_CHOICES: dict[str, tuple[str, ...]] = {
    "positions": get_args(Positions),
    "norm": get_args(NormKind),
    "norm_placement": get_args(NormPlacement),
    "activation": get_args(Activation),
    "qk_norm": get_args(NormKind),
    "qk_norm_over": get_args(QkNormOver),
}


@dataclass(frozen=True)
class Rotary:
    """Rotary positions: pair i of a head's first `dims` columns rotates by `position · θ_i`, θ_i = base^(−2i/dims).

    `pairs`: "interleaved" rotates columns (2i, 2i+1), "half" (i, i + dims/2). `dims` 0 means all of `d_head`.
    `theta`: the frequencies themselves, one a pair, in place of `base`. `amplitude` scales the rotated columns: the attention
    factor of YaRN and LongRoPE, applied to queries and keys alike.
    """

    base: float = 10000.0
    pairs: Literal["interleaved", "half"] = "half"
    dims: int = 0
    theta: tuple[float, ...] = ()
    amplitude: float = 1.0

    def __post_init__(self) -> None:
        values: tuple[Any, ...] = (self.base, self.amplitude, *self.theta) if isinstance(self.theta, tuple) else ("no list",)
        if not all(type(v) in (int, float) and math.isfinite(v) for v in values) or not 1e-6 <= self.base <= 1e30:
            raise BadModel(
                "Rotary frequencies are not numbers.", expected="finite numbers, the base above 0", got=quoted(self, 200)
            )
        if type(self.dims) is not int or not 0 <= self.dims <= _MOST["d_head"] or self.pairs not in ("interleaved", "half"):
            raise BadModel(
                "The rotary columns are impossible.", expected="a number of them, half or interleaved", got=quoted(self, 200)
            )

    def frequencies(self, d_head: int) -> tuple[float, ...]:
        """θ, one a rotary pair (radians per position)."""
        dims = self.dims or d_head
        return self.theta or tuple(self.base ** (-2 * i / dims) for i in range(dims // 2))


@dataclass(frozen=True)
class Experts:
    """A mixture of experts in place of every block's MLP: a router sends each token to `active` of `n` MLPs.

    What they write is summed with the softmax of the router's scores over all `n`; `renormalise`: over the chosen ones. `shared`
    is the width of one more expert that sees every token, 0 for none; `shared_gate`: its output times a sigmoid of its own.
    """

    n: int
    active: int
    renormalise: bool = False
    shared: int = 0
    shared_gate: bool = False

    def __post_init__(self) -> None:
        sizes, switches = (self.n, self.active, self.shared), (self.renormalise, self.shared_gate)
        if not all(type(v) is int and 0 <= v <= _LARGEST for v in sizes) or not 1 <= self.active <= self.n <= _MOST["experts"]:
            raise BadModel(
                "This mixture of experts is impossible.", expected="1 ≤ active ≤ n, and a width", got=quoted(self, 120)
            )
        if not all(type(v) is bool for v in switches) or (self.shared_gate and not self.shared):
            raise BadModel(
                "This mixture of experts is impossible.",
                expected="switches, and a gate only of a shared expert",
                got=quoted(self, 120),
            )


def alibi_slopes(n_heads: int) -> tuple[float, ...]:
    """2^(−8 i / n), i = 1 … n, for n heads where n is a power of two; else those of the next lower power, followed by every
    second one of the next higher (Press et al. 2021, "Train short, test long", and its code)."""
    power = 2 ** (n_heads.bit_length() - 1)
    extra = range(1, 2 * (n_heads - power), 2)
    exponents = [*(i / power for i in range(1, power + 1)), *(i / (2 * power) for i in extra)]
    return tuple(2 ** (-8 * x) for x in exponents)


@dataclass(frozen=True)
class ModelConfig:
    """The shape and the conventions of a decoder. Raises `BadModel` when its fields contradict each other.

    positions: "learned" and "sinusoidal" ([sin | cos] halves) are added to the embedding; "shortformer" adds `W_pos` to the
    inputs of queries and keys only; "rotary" rotates queries and keys; "alibi" subtracts `slope · (destination − source)` from
    each head's scores, `slopes` having one for each head. `position_layers` limits the last three to some layers, `()` means
    every layer.
    norm_placement: "pre" normalises what a sublayer reads, "post_residual" the stream after the addition, "post_sublayer" what
    a sublayer writes, "both" pre and post_sublayer. `final_norm` is the norm before the unembedding.
    score_scale: what `q·k` is multiplied by; 0 stands for the usual `1/√d_head`.
    windows: per layer, how many positions a destination sees including itself; 0 means all; `()` means all everywhere.
    rotary_windowed: another rotation for the layers that have a window; None: the same one everywhere.
    qk_norm: of queries and keys after their projection, over each head's `d_head` or over all heads at once (`qk_norm_over`).
    activation: "solu_ln" is `x · softmax(x)` followed by a LayerNorm over the neurons (Elhage et al. 2022).
    experts: every MLP is a mixture of experts, each `d_mlp` wide; None: one MLP.
    dequantised: what packed kinds the weights were made from, "Q4_1 (5.0 bits a weight)"; "" where they were stored as numbers.
    soft caps: `cap · tanh(x / cap)`; 0 means none. `d_vocab_out`, `n_kv_heads` 0 mean the same as `d_vocab`, `n_heads`.
    """

    n_layers: int
    n_heads: int
    d_model: int
    d_head: int
    d_vocab: int
    n_ctx: int
    d_mlp: int = 0
    n_kv_heads: int = 0
    d_vocab_out: int = 0
    positions: Positions = "learned"
    position_layers: tuple[int, ...] = ()
    rotary: Rotary | None = None
    rotary_windowed: Rotary | None = None
    slopes: tuple[float, ...] = ()
    norm: NormKind = "none"
    norm_placement: NormPlacement = "pre"
    final_norm: bool = True
    norm_eps: float = 1e-5
    activation: Activation = "gelu"
    gated: bool = False
    experts: Experts | None = None
    parallel: bool = False
    smeared_keys: bool = False
    qk_norm: NormKind = "none"
    qk_norm_over: QkNormOver = "head"
    biases: tuple[BiasName, ...] = ()
    tied: bool = False
    embed_scale: float = 1.0
    score_scale: float = 0.0
    score_soft_cap: float = 0.0
    logit_soft_cap: float = 0.0
    windows: tuple[int, ...] = ()
    prepend_bos: bool = False
    family: str = ""
    dequantised: str = ""

    def __post_init__(self) -> None:
        assign = lambda name, value: object.__setattr__(self, name, value)  # frozen: only inside the constructor
        assign("n_kv_heads", self.n_kv_heads or self.n_heads)
        assign("d_vocab_out", self.d_vocab_out or self.d_vocab)
        if self.positions == "rotary" and self.rotary is None:
            assign("rotary", Rotary())
        if self.positions == "alibi" and not self.slopes and type(self.n_heads) is int and 0 < self.n_heads <= _MOST["n_heads"]:
            assign("slopes", alibi_slopes(self.n_heads))
        self._check_sizes()
        self._check_types()
        assign("score_scale", float(self.score_scale) or 1 / math.sqrt(self.d_head))
        self._check_choices()

    def _check_sizes(self) -> None:
        for name in ("n_heads", "d_model", "d_head", "d_vocab", "d_vocab_out", "n_ctx", "n_kv_heads"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise BadModel(
                    f"The configuration's {name} is not a size.", expected="a whole number of at least 1", got=quoted(value)
                )
        for name in ("n_layers", "d_mlp"):
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise BadModel(
                    f"The configuration's {name} is not a size.", expected="a whole number of at least 0", got=quoted(value)
                )
        for name in ("n_layers", "n_heads", "d_model", "d_head", "d_vocab", "d_vocab_out", "n_ctx", "d_mlp"):
            if (value := getattr(self, name)) > (most := _MOST.get(name, _LARGEST)):
                raise BadModel(f"The configuration's {name} is beyond any model.", expected=f"at most {most}", got=str(value))
        if self.n_heads % self.n_kv_heads:
            raise BadModel(
                "Query heads do not divide into key-value groups.",
                expected="n_heads a multiple of n_kv_heads",
                got=f"{self.n_heads} and {self.n_kv_heads}",
            )

    def _check_types(self) -> None:
        for name in _NUMBERS:
            value = getattr(self, name)
            if type(value) not in (int, float) or not math.isfinite(value):
                raise BadModel(f"The configuration's {name} is not a number.", expected="a finite number", got=quoted(value))
        if self.norm_eps < 0:
            raise BadModel(
                "The configuration's norm_eps is below zero.", expected="a number of at least 0", got=quoted(self.norm_eps)
            )
        for name in _SWITCHES:
            if type(getattr(self, name)) is not bool:
                raise BadModel(
                    f"The configuration's {name} is neither true nor false.",
                    expected="true or false",
                    got=quoted(getattr(self, name)),
                )
        for name in ("windows", "position_layers"):
            value = getattr(self, name)
            if not isinstance(value, tuple) or not all(type(v) is int and v >= 0 for v in value):
                raise BadModel(
                    f"The configuration's {name} is not a list of whole numbers.", expected="whole numbers", got=quoted(value)
                )
        if not isinstance(self.biases, tuple) or not isinstance(self.family, str):
            raise BadModel(
                "The configuration's biases or family cannot be read.",
                expected="a list, and text",
                got=quoted((self.biases, self.family)),
            )
        if not isinstance(self.dequantised, str) or not self.dequantised.isprintable() or len(self.dequantised) > 200:
            expected = "a short text such as Q4_1 (5.0 bits a weight)"
            raise BadModel(
                "The configuration does not say what was dequantised.", expected=expected, got=quoted(self.dequantised)
            )

    def _check_choices(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise BadModel(
                    f"The configuration's {name} is not a known one.", expected=" ".join(choices), got=quoted(getattr(self, name))
                )
        if self.windows and len(self.windows) != self.n_layers:
            raise BadModel(
                "The configuration's windows have the wrong length.", expected=str(self.n_layers), got=str(len(self.windows))
            )
        if unknown := set(self.biases) - set(get_args(BiasName)):
            raise BadModel("A bias has no place.", expected=" ".join(get_args(BiasName)), got=" ".join(sorted(unknown)))
        if not math.isfinite(self.score_scale):
            raise BadModel(
                "The configuration's score_scale is not a number.", expected="a finite number", got=quoted(self.score_scale)
            )
        for rotary in (self.rotary, self.rotary_windowed):
            if rotary is not None:
                self._check_rotary(rotary)
        if self.qk_norm == "layer" and self.qk_norm_over == "all":
            raise BadModel(
                "A LayerNorm over all heads' queries is not known.", expected="rms over all, or layer per head", got="layer, all"
            )
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise BadModel("Sinusoidal positions need pairs.", expected="an even d_model", got=str(self.d_model))
        self._check_slopes()
        if self.experts is not None:
            self._check_experts()
        if self.attention_only and self.parallel:
            raise BadModel("A parallel block has an MLP.", expected="d_mlp > 0", got="d_mlp 0, parallel")

    def _check_experts(self) -> None:
        if not isinstance(self.experts, Experts):
            raise BadModel("The experts cannot be read.", expected="n and active", got=quoted(self.experts))
        if self.n_layers * self.experts.n > _MOST["layers × experts"]:
            raise BadModel(
                "The model has too many experts.",
                expected=f"at most {_MOST['layers × experts']:,} in all layers",
                got=f"{number_of(self.n_layers, 'layer')} of {number_of(self.experts.n, 'expert')}",
            )
        if self.attention_only or "mlp" in self.biases or self.activation == "solu_ln":
            raise BadModel(
                "A mixture of experts of this kind is not known.",
                expected="a width, no biases, and no norm of neurons",
                got=f"d_mlp {self.d_mlp}, biases {' '.join(self.biases) or 'none'}, {self.activation}",
            )

    def _check_slopes(self) -> None:
        n_slopes = self.n_heads if self.positions == "alibi" else 0
        slopes: tuple[Any, ...] = self.slopes if isinstance(self.slopes, tuple) else ("no list",)
        if len(slopes) != n_slopes or not all(type(m) in (int, float) and math.isfinite(m) for m in slopes):
            raise BadModel(
                "The slopes of ALiBi do not fit the heads.", expected=number_of(n_slopes, "number"), got=quoted(self.slopes)
            )
        if n_slopes and self.score_soft_cap:
            raise BadModel("ALiBi with a soft cap of scores is not known.", expected="one of them", got="both")

    def _check_rotary(self, rotary: Rotary) -> None:
        if not isinstance(rotary, Rotary):
            raise BadModel("The rotary positions cannot be read.", expected="base, pairs and dims", got=quoted(rotary))
        dims = rotary.dims or self.d_head
        if dims > self.d_head or dims % 2:
            raise BadModel("Rotary columns do not pair up.", expected=f"an even number ≤ {self.d_head}", got=str(dims))
        if len(rotary.frequencies(self.d_head)) != dims // 2:
            raise BadModel(
                "Rotary frequencies do not match the columns.", expected=f"{dims // 2} of them", got=str(len(rotary.theta))
            )

    @property
    def sizes(self) -> str:
        """Layers, heads, widths, vocabulary and context, in words."""
        mlp = f"MLP of {self.d_mlp:,}" if self.d_mlp else "no MLP"
        parts = (number_of(self.n_layers, "layer"), f"{number_of(self.n_heads, 'head')} each", f"d_model {self.d_model:,}")
        return ", ".join((*parts, mlp, f"vocabulary of {self.d_vocab:,}", f"context of {self.n_ctx:,}"))

    @property
    def attention_only(self) -> bool:
        """Whether blocks have no MLP."""
        return self.d_mlp == 0

    @property
    def whole_scores(self) -> bool:
        """Whether attention holds [head, dest, src] at once: for a soft cap, or for ALiBi's bias."""
        return bool(self.score_soft_cap) or self.positions == "alibi"

    @property
    def group(self) -> int:
        """Query heads per key-value head."""
        return self.n_heads // self.n_kv_heads

    @property
    def stored_positions(self) -> bool:
        """Whether `W_pos` is a parameter."""
        return self.positions in ("learned", "shortformer")

    def kv_head(self, head: int) -> int:
        """The key-value head that query head `head` uses: its group's."""
        return head // self.group

    def positional(self, layer: int) -> bool:
        """Whether shortformer positions, rotary ones or ALiBi act in this layer."""
        acts = self.positions in ("shortformer", "rotary", "alibi")
        return acts and (not self.position_layers or layer in self.position_layers)

    def rotation(self, layer: int) -> Rotary | None:
        """The rotation of this layer's queries and keys, None without one."""
        if self.positions != "rotary" or not self.positional(layer):
            return None
        return self.rotary_windowed if self.rotary_windowed is not None and self.window(layer) else self.rotary

    def slopes_in(self, layer: int) -> tuple[float, ...]:
        """ALiBi's slope of each head of this layer; () without ALiBi."""
        return self.slopes if self.positional(layer) else ()

    def window(self, layer: int) -> int:
        """How many positions a destination of this layer sees; 0 means all."""
        return self.windows[layer] if self.windows else 0

    def n_parameters(self) -> int:
        """The number of parameters by these shapes, tied ones counted once."""
        attention = self.d_model * self.d_head * (2 * self.n_heads + 2 * self.n_kv_heads)
        widths = {
            "q": self.n_heads * self.d_head,
            "o": self.d_model,
            "mlp": self.d_mlp * (1 + self.gated) + self.d_model,
        }
        widths["k"] = widths["v"] = self.n_kv_heads * self.d_head
        attention += sum(widths[b] for b in self.biases if b in "qkvo")
        mlp = self.mlp_matrices() + (widths["mlp"] if "mlp" in self.biases and self.d_mlp else 0)
        per_norm = {"none": 0, "rms": 1, "layer": 2}[self.norm] * self.d_model
        per_sublayer = 2 if self.norm_placement == "both" else 1
        norms = per_norm * per_sublayer * (1 if self.attention_only else 2)
        per_head = {"none": 0, "rms": 1, "layer": 2}[self.qk_norm] * self.d_head
        norms += per_head * (self.n_heads + self.n_kv_heads if self.qk_norm_over == "all" else 2)
        norms += 2 * self.d_mlp if self.activation == "solu_ln" else 0
        smear = self.n_kv_heads if self.smeared_keys else 0
        ends = self.d_vocab * self.d_model + (0 if self.tied else self.d_model * self.d_vocab_out)
        ends += self.n_ctx * self.d_model if self.stored_positions else 0
        ends += self.d_vocab_out if "unembed" in self.biases else 0
        ends += per_norm if self.final_norm else 0
        return self.n_layers * (attention + mlp + norms + smear) + ends

    def expert_parameters(self) -> int:
        """The number of weights of one MLP, or of one expert."""
        return self.d_model * self.d_mlp * (2 + self.gated)

    def mlp_matrices(self) -> int:
        """The number of weights of one block's MLP without biases: of a mixture all experts, the router and the gate."""
        per_expert, experts = self.expert_parameters(), self.experts
        if experts is None:
            return per_expert
        return experts.n * (per_expert + self.d_model) + self.d_model * (experts.shared * (2 + self.gated) + experts.shared_gate)

    def to_json(self) -> JsonDict:
        """Plain values for `config.json`; fields at their defaults are left out."""
        out: dict[str, object] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                out[field.name] = dataclasses.asdict(value) if isinstance(value, Rotary | Experts) else value
        return out

    @classmethod
    def from_json(cls, data: Mapping[str, object], source: str = "config.json") -> ModelConfig:
        """The reverse of `to_json`. Raises `BadModel` on unknown, missing or wrongly typed fields of `source`."""
        by_name = {f.name: f for f in dataclasses.fields(cls)}
        if unknown := sorted(set(data) - set(by_name)):
            raise BadModel(f"{source} has fields that are not known.", expected=" ".join(by_name), got=ascii(unknown)[:200])
        needed = [n for n, f in by_name.items() if f.default is dataclasses.MISSING]
        if missing := [n for n in needed if n not in data]:
            raise BadModel(f"{source} lacks fields.", expected=" ".join(needed), got="no " + " ".join(missing))
        values: JsonDict = {name: tuple(v) if isinstance(v, list) else v for name, v in data.items()}
        try:
            for name in ("rotary", "rotary_windowed"):
                if values.get(name) is not None:
                    rotary: JsonDict = {k: tuple(v) if isinstance(v, list) else v for k, v in dict(values[name]).items()}
                    values[name] = Rotary(**rotary)
            if values.get("experts") is not None:
                values["experts"] = Experts(**dict(values["experts"]))
            return cls(**values)
        except (TypeError, ValueError, AttributeError) as error:
            got = cause(error) if isinstance(error, ValueError) else "a part of another kind, or with other names in it"
            raise BadModel(f"{source} cannot be read.", expected="sizes and options", got=got) from error
