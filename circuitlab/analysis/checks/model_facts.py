"""Facts about the open model: sizes, options, parameter counts, and how exact analyses of its weights are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis
from circuitlab.analysis.circuits.factors import exactness
from circuitlab.counting import number_of
from circuitlab.model.config import Experts, ModelConfig
from circuitlab.model.weights import bos_of, parameters_of


@dataclass(frozen=True)
class ModelFactsParams:
    """There is nothing to choose."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelFactsResult(Result):
    """`facts`: (group, name, value) in display order; `n_parameters` counts the parameters in the file, shared ones once."""

    facts: tuple[tuple[str, str, str], ...]
    n_parameters: int
    exactness: str

    def table(self) -> Table:
        """One row per fact."""
        groups, names, values = zip(*self.facts, strict=True)
        return Table((Column("group", np.array(groups)), Column("name", np.array(names)), Column("value", np.array(values))))


def _shape_facts(c: ModelConfig) -> list[tuple[str, str, str]]:
    heads = f"{c.n_heads}" if c.group == 1 else f"{c.n_heads} query, {c.n_kv_heads} key-value"
    shape = [("layers", str(c.n_layers)), ("heads", heads), ("d_model", str(c.d_model)), ("d_head", str(c.d_head))]
    shape += [("d_mlp", "attention only" if c.attention_only else str(c.d_mlp)), ("d_vocab", f"{c.d_vocab:,}")]
    shape += [("d_vocab_out", f"{c.d_vocab_out:,}")] if c.d_vocab_out != c.d_vocab else []
    return [("shape", name, value) for name, value in [*shape, ("context", number_of(c.n_ctx, "token"))]]


def _bos(c: ModelConfig, bos: int | None) -> str:
    """Whether prompts begin with BOS: never without a tokenizer that has it, whatever the configuration says."""
    if bos is not None:
        return "before every prompt"
    return "not added: configured, but no tokenizer says which token it is" if c.prepend_bos else "not added"


def _option_facts(c: ModelConfig, bos: int | None) -> list[tuple[str, str, str]]:
    usual = abs(c.score_scale * c.d_head**0.5 - 1) < 1e-6
    options = [
        ("positions", _positions(c) + (f", layers {c.position_layers}" if c.position_layers else "")),
        ("norm", c.norm if c.norm == "none" else f"{c.norm}, {c.norm_placement.replace('_', ' ')}"),
        ("score scale", f"{c.score_scale:.4g}" + (" = 1/√d_head" if usual else "")),
        ("MLP", "none" if c.attention_only else c.activation + (", gated" if c.gated else "")),
        ("biases", ", ".join(c.biases) or "none"),
        ("embedding", "tied to the unembedding" if c.tied else "untied"),
        ("BOS", _bos(c, bos)),
    ]
    options += [("experts", _experts(c.experts))] if c.experts else []
    options += [("keys", "smeared")] if c.smeared_keys else []
    options += [("blocks", "parallel")] if c.parallel else []
    return [("options", name, value) for name, value in options]


def _experts(experts: Experts) -> str:
    return f"{experts.active} of {experts.n} a token" + (f", and a shared one {experts.shared} wide" if experts.shared else "")


def _positions(c: ModelConfig) -> str:
    if c.positions != "alibi":
        return c.positions
    return f"ALiBi, slopes {max(c.slopes):.3g} … {min(c.slopes):.3g}"


def _counts(c: ModelConfig, n_parameters: int) -> list[tuple[str, str, str]]:
    attention = c.n_layers * c.d_model * c.d_head * (2 * c.n_heads + 2 * c.n_kv_heads)
    mlp = c.n_layers * c.mlp_matrices()
    rows = [("all", n_parameters), ("embedding", c.d_vocab * c.d_model), ("attention matrices", attention)]
    rows += [("MLP matrices", mlp)] if mlp else []
    rows += [("position table", c.n_ctx * c.d_model)] if c.stored_positions else []
    return [("parameters", name, f"{count:,}") for name, count in rows]


@analysis(version=2, needs="weights", lane="live", memory=lambda config, n, p: 1 << 16)
def model_facts(inputs: Inputs, p: ModelFactsParams, ctx: Ctx) -> ModelFactsResult:
    """Model facts: sizes, options and parameter counts, and how exact its weight analyses are."""
    c = inputs.weights.config
    facts = [*_shape_facts(c), *_option_facts(c, bos_of(inputs.weights)), *_counts(c, parameters_of(inputs.weights))]
    exact = exactness(c, inputs.subject.conventions)
    facts.append(("reading", "weights", exact))
    facts.append(("reading", "conventions", " · ".join(inputs.convention_words())))
    return ModelFactsResult(
        facts=tuple(facts),
        n_parameters=parameters_of(inputs.weights),
        exactness=exact,
        conventions=inputs.convention_words(),
    )
