"""What families with mixtures of experts say alike: how many, how many act, and where the experts' tensors lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from circuitlab.errors import BadModel
from circuitlab.model.config import Experts, ModelConfig
from circuitlab.model.loading.decoder_parts import attention, mlp
from circuitlab.model.loading.gated_decoder import BUFFERS, ends, norms
from circuitlab.model.loading.huggingface import flag, size
from circuitlab.model.loading.layout import Layout, Stored, linear

Names = tuple[str, str, str]  # of an expert's gate, input and output


def experts_of(config: Mapping[str, Any], active: int, renormalise: bool | None = None) -> Experts:
    """How many experts `config.json` names, and how many of them act, by default `active`.

    `renormalise`: whether the weights of the chosen ones add up to 1; None: as the file says.
    """
    says = flag(config, "norm_topk_prob", False) if renormalise is None else renormalise
    n = "num_experts" if config.get("num_experts") is not None else "num_local_experts"  # older and newer files of one family
    return Experts(size(config, n), size(config, "num_experts_per_tok", active), says)


def refuse_dense_layers(config: Mapping[str, Any]) -> None:
    """Raise `BadModel` where some layers have one MLP of another width and others experts."""
    every, dense = size(config, "decoder_sparse_step", 1), config.get("mlp_only_layers") or []
    if every != 1 or dense:
        raise BadModel(
            "Some layers have one MLP, others experts.",
            expected="experts in every layer",
            got=f"decoder_sparse_step {every}, mlp_only_layers {dense!r}"[:120],
            remedy="Open a model of this family whose layers are all alike.",
        )


def noted_experts(config: ModelConfig) -> tuple[str, ...]:
    """What is said of them."""
    experts = config.experts
    assert experts is not None
    weighted = "by a softmax over these" if experts.renormalise else "by a softmax over all"
    shared = ", and a shared one" if experts.shared else ""
    return (
        f"each MLP: {experts.active} of {experts.n} experts for each token, weighted {weighted}{shared}",
        "MLPs are read as a whole: neurons and W_in W_out have no meaning before the router has chosen",
    )


def layout(config: ModelConfig, at: str, router: str, names: Names, shared: str = "", shared_gate: str = "") -> Layout:
    """The Llama kind with experts at `at`.experts.N.`names`; `router`, `shared` and `shared_gate` are names under `at` too."""
    assert config.experts is not None
    block: dict[str, Stored] = attention(config, *(f"layers.{{i}}.self_attn.{which}_proj" for which in "qkvo"))
    at = f"layers.{{i}}.{at}"
    block["mlp.router"] = linear(f"{at}.{router}")
    for e in range(config.experts.n):
        block |= _expert(config, f"mlp.experts.{e}", f"{at}.experts.{e}", names)
    if config.experts.shared:
        block |= _expert(config, "mlp.shared", f"{at}.{shared}", names)
    if config.experts.shared_gate:
        block["mlp.shared_gate"] = linear(f"{at}.{shared_gate}")
    return Layout(ends(config), block | norms(config), BUFFERS, ("model.",))


def _expert(config: ModelConfig, ours: str, theirs: str, names: Names) -> dict[str, Stored]:
    gate, up, down = (f"{theirs}.{name}" for name in names)
    return {name.replace("mlp.", f"{ours}.", 1): where for name, where in mlp(config, up, down, gate).items()}


def with_experts(config: ModelConfig, experts: Experts, width: int = 0) -> ModelConfig:
    """The configuration with experts, each `width` wide; 0: as wide as its one MLP was."""
    return replace(config, experts=experts, d_mlp=width or config.d_mlp)
