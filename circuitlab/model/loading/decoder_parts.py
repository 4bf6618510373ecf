"""What several families of decoders say alike: linear maps with and without bias, a norm that two sublayers share, defaults.

A family reads its configuration with `filled`, declares its blocks with `attention` and `mlp`, and is opened by `opener`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from circuitlab.errors import BadModel
from circuitlab.model.config import ModelConfig, Rotary
from circuitlab.model.loading.family import Keep, Opened, find_tokenizer
from circuitlab.model.loading.found import Found
from circuitlab.model.loading.huggingface import number
from circuitlab.model.loading.layout import Layout, Stored, Which, lay_out, linear, norm, stored
from circuitlab.model.loading.rotary_scaling import rotary
from circuitlab.model.sourced import SourcedWeights

ReadConfig = Callable[[Mapping[str, Any]], tuple[ModelConfig, tuple[str, ...]]]


def filled(config: Mapping[str, Any], defaults: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The configuration with a family's defaults where the file states nothing, and a note that names them."""
    assumed = [name for name in defaults if config.get(name) is None]
    said = ", ".join(f"{name} {str(defaults[name]).lower()}" for name in assumed)
    return {**config, **{name: defaults[name] for name in assumed}}, (f"not stated, the family's own: {said}",) if said else ()


def turned(config: Mapping[str, Any], d_head: int, base: float, partial: float) -> tuple[Rotary, tuple[str, ...]]:
    """Rotary positions of the first columns of each head, in halves, and notes. Raises `BadModel` where no pair would turn."""
    found, said = rotary(config, d_head, base, partial)
    share = (config.get("rope_parameters") or {}).get("partial_rotary_factor", config.get("partial_rotary_factor", partial))
    if int(d_head * number({"share": share}, "share")) < 2:
        raise BadModel(
            "No pair of columns turns with the position.",
            expected=f"a part of each head's {d_head} columns that holds at least 2",
            got=f"{share} of them",
        )
    width = found.dims or d_head
    return found, (f"rotary positions turn {width} of {d_head} columns, base {found.base:g}", *said)


def tied_note(config: ModelConfig) -> tuple[str, ...]:
    """Whether the unembedding is the embedding."""
    return ("unembedding tied to the embedding",) if config.tied else ()


def linear_with_bias(ours: str, theirs: str, bias: bool, which: Which | None = None) -> dict[str, Stored]:
    """W_`ours` and, where there is one, b_`ours` of a torch `Linear`; `which`: split by head. `ours` may begin with "mlp."."""
    place, _, name = ours.rpartition(".")
    at = f"{place}." if place else ""
    made = {f"{at}W_{name}": linear(theirs), **({f"{at}b_{name}": stored(f"{theirs}.bias")} if bias else {})}
    split = lambda key, where: where if which is None or (which == "o" and key.startswith("b_")) else where.heads(which)
    return {key: split(key, where) for key, where in made.items()}


def attention(config: ModelConfig, q: str, k: str, v: str, o: str) -> dict[str, Stored]:
    """The four maps of attention, each a `Linear` of its own, with the biases that the configuration names."""
    made: dict[str, Stored] = {}
    names: dict[Which, str] = {"q": q, "k": k, "v": v, "o": o}
    for which, theirs in names.items():
        made |= linear_with_bias(which.upper(), theirs, which in config.biases, which)
    return made


def mlp(config: ModelConfig, up: str, down: str, gate: str = "") -> dict[str, Stored]:
    """The maps of an MLP, each a `Linear`."""
    bias = "mlp" in config.biases
    made = {**linear_with_bias("mlp.in", up, bias), **linear_with_bias("mlp.out", down, bias)}
    return made | (linear_with_bias("mlp.gate", gate, bias) if gate else {})


def shared_norm(theirs: str) -> dict[str, Stored]:
    """One LayerNorm that attention and MLP both read behind: the same tensors twice."""
    return {**norm("attn_norm", theirs, bias=True), **norm("mlp_norm", theirs, bias=True)}


def opener(read_config: ReadConfig, layout: Callable[[ModelConfig], Layout], title: str) -> Callable[[Found, Keep], Opened]:
    """What opens a family whose configuration says everything about its layout."""

    def load(found: Found, keep: Keep) -> Opened:
        config, notes = read_config(found.config)
        parts, unused = lay_out(config, layout(config), found.needed(), keep == "resident")
        weights = SourcedWeights(config, find_tokenizer(found.folder), parts)
        return Opened(weights, (*notes, *unused), found.files, "", title)

    return load
