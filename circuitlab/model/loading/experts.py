"""Parts shared by families with mixtures of experts: how many there are, how many are active, and where their tensors are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from circuitlab.counting import number_of
from circuitlab.errors import BadModel
from circuitlab.model.config import Experts, ModelConfig
from circuitlab.model.lazy_weights import need_names
from circuitlab.model.loading.checkpoint import Checkpoint
from circuitlab.model.loading.decoder_parts import ReadConfig, attention, lay_out_and_open, mlp
from circuitlab.model.loading.family import Keep, Opened
from circuitlab.model.loading.gated_decoder import BUFFERS, ends, norms
from circuitlab.model.loading.huggingface import flag, size
from circuitlab.model.loading.layout import Layout, Misfit, Stored, linear, stored

Names = tuple[str, str, str]  # names of an expert's gate, input and output
LLAMA: Names = ("gate_proj", "up_proj", "down_proj")


def experts_of(config: Mapping[str, object], active: int, renormalise: bool | None = None) -> Experts:
    """How many experts `config.json` names, and how many are active per token, by default `active`.

    `renormalise`: whether the weights of the chosen experts sum to 1; None: as the file states.
    """
    renormalised = flag(config, "norm_topk_prob", False) if renormalise is None else renormalise
    n = "num_experts" if config.get("num_experts") is not None else "num_local_experts"  # older and newer files of one family
    return Experts(size(config, n), size(config, "num_experts_per_tok", active), renormalised)


def refuse_dense_layers(config: Mapping[str, object]) -> None:
    """Raise `BadModel` if some layers have a dense MLP and others experts."""
    every, dense = size(config, "decoder_sparse_step", 1), config.get("mlp_only_layers") or []
    if every != 1 or dense:
        raise BadModel(
            "Some layers have a dense MLP, others experts.",
            expected="experts in every layer",
            got=f"decoder_sparse_step {every}, mlp_only_layers {dense!r}"[:120],
            remedy="Open a model of this family in which every layer has experts.",
        )


def expert_notes(config: ModelConfig) -> tuple[str, ...]:
    """Notes on the mixture of experts."""
    experts = config.experts
    assert experts is not None
    weighted = "by a softmax over these" if experts.renormalise else "by a softmax over all"
    shared = ", and a shared expert" if experts.shared else ""
    return (
        f"each MLP: {experts.active} of {number_of(experts.n, 'expert')} for each token, weighted {weighted}{shared}",
        "MLPs are analysed as a whole: which neurons and W_in W_out apply depends on the router's choice",
    )


def opener(read_config: ReadConfig, at: str, names: Names, title: str) -> Callable[[Checkpoint, Keep], Opened]:
    """The `load` of a family whose experts are at `at`.experts.N.`names`, or all in two tensors, as newer code stores them."""

    def load(checkpoint: Checkpoint, keep: Keep) -> Opened:
        read, source = read_config(checkpoint.config), checkpoint.needed()
        config, together = read[0], [name for name in source.names() if name.endswith(".experts.gate_up_proj")]
        assert config.experts is not None
        n = config.experts.n
        need_names(config.n_layers * (1 if together else n), source, config.sizes)
        if wrong := next((name for name in together if source.shape(name)[:1] != (n,)), None):
            expected = f"a matrix for each of {number_of(n, 'expert')}"
            raise BadModel(f"The tensor {wrong} has the wrong shape.", expected=expected, got=str(source.shape(wrong)))
        where = layout(config, "mlp", None) if together else layout(config, at, names)
        return lay_out_and_open(read, where, checkpoint, keep, title)

    return load


def layout(config: ModelConfig, at: str, names: Names | None) -> Layout:
    """Llama's layout with experts at `at`.experts.N.`names`.

    None: `gate_up_proj` [expert, 2 · d_mlp, d_model] and `down_proj` [expert, d_model, d_mlp] hold all of them.
    """
    assert config.experts is not None
    block: dict[str, Stored] = attention(config, *(f"layers.{{i}}.self_attn.{which}_proj" for which in "qkvo"))
    at = f"layers.{{i}}.{at}"
    block["mlp.router"] = linear(f"{at}.gate")
    for e in range(config.experts.n):
        one = _of_all(f"mlp.experts.{e}", f"{at}.experts", e) if names is None else None
        block |= one or _expert(config, f"mlp.experts.{e}", f"{at}.experts.{e}", names or LLAMA)
    if config.experts.shared:
        block |= _expert(config, "mlp.shared", f"{at}.shared_expert", LLAMA)
    if config.experts.shared_gate:
        block["mlp.shared_gate"] = linear(f"{at}.shared_expert_gate")
    return Layout(ends(config), block | norms(config), BUFFERS, ("model.",))


def _of_all(ours: str, theirs: str, e: int) -> dict[str, Stored]:
    """Expert e from the tensors that hold all experts."""
    pick = lambda c, x: _picked(x, e)
    both = stored(f"{theirs}.gate_up_proj").then(pick).T
    return {
        f"{ours}.W_gate": both.half(0),
        f"{ours}.W_in": both.half(1),
        f"{ours}.W_out": stored(f"{theirs}.down_proj").then(pick).T,
    }


def _picked(x: Tensor, e: int) -> Tensor:
    if x.dim() != 3:  # of a matrix, a row would be taken silently
        raise Misfit(f"a tensor of all experts, not {x.dim()} axes")
    return torch.select(x, 0, e)


def _expert(config: ModelConfig, ours: str, theirs: str, names: Names) -> dict[str, Stored]:
    gate, up, down = (f"{theirs}.{name}" for name in names)
    return {name.replace("mlp.", f"{ours}.", 1): where for name, where in mlp(config, up, down, gate).items()}


def with_experts(config: ModelConfig, experts: Experts, width: int = 0) -> ModelConfig:
    """The configuration with experts, each `width` wide; 0: d_mlp wide."""
    return replace(config, experts=experts, d_mlp=width or config.d_mlp)
