"""One attention head step by step at one destination and one source, with the run's own numbers.

    x → norm → q_d = x_d W_Q + b_Q,  k_s = x_s W_K + b_K,  v_s = x_s W_V + b_V        (q/k norm, smearing, rotation)
    score = scale · Σ_i q_d[i] k_s[i]  (− slope · (d − s): ALiBi)  → soft cap → mask → A[d, ·] = softmax over the allowed sources
    z_d = Σ_s A[d, s] v_s  → z_d W_O → norm, if one follows  → added to the residual stream

(Elhage et al. 2021, "Attention heads are independent and additive".) The logit effects of z_d W_O and of its part from s are at
the recorded scales of the norms after the head, minus their mean over the vocabulary. Interventions on q, k, v, scores, pattern,
z and result show in the numbers from the step at which they act.

Nothing is averaged over prompts: each vector belongs to one destination and one source, which are other tokens in other prompts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from circuitlab.analysis.attribution._linear_reading import Passage
from circuitlab.analysis.attribution.query_key_parts import added_positions, read_by_attention
from circuitlab.analysis.attribution.score_expansion import ScoreExpansionParams, cell
from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, at_least, over, scalar
from circuitlab.analysis.chosen_heads import check_heads
from circuitlab.analysis.target import TargetVector, target_at
from circuitlab.model.config import ModelConfig
from circuitlab.model.recorded_norm import linear_part
from circuitlab.model.run import Run
from circuitlab.model.subject import Head, Target


@dataclass(frozen=True)
class HeadStepParams:
    """One head, destination and source (None: the most attended one); `k` output tokens; the effect on `target` at d."""

    head: Head = Head(0, 0)
    destination: int = -1
    source: int | None = None
    k: int = at_least(1, 5)
    target: Target = Target()


@dataclass(frozen=True, kw_only=True, eq=False)
class HeadStepResult(Result):
    """The quantities of each step, in order, as float64.

    `x_dest`, `x_source` [d_model]: the stream; `read_query`, `read_key`, `read_value` [d_model]: the projections' inputs (after
    the norm; with shortformer positions for the first two). `q`, `k`, `v` [d_head] as attention uses them; `products` [d_head]:
    q ∘ k; `dot` their sum, `scale`, `score` = scale · dot, `bias` (ALiBi's, else 0), `softmax_score`: score + bias, soft-capped,
    with interventions.
    `scores` [src]: the row, NaN where `mask` [src] (bool: visible) hides a source; `pattern` [src]; `attention`: its entry at
    the source. `weighted` [d_head] = A · v_s; `z` [d_head]; `result` [d_model] = z W_O; `moved` [d_model] = A · v_s W_O;
    both as they enter the stream: through a norm after them at its recorded scale, without its bias.
    `top_ids`, `bottom_ids` int64, `top`, `bottom` [≤ k]: logit effects of `result`; `moved_ids`, `moved_top` [≤ k]: of `moved`;
    `effect`, `effect_moved`: of both on the target; `target_ids` int64 [2], −1 for none.
    """

    x_dest: np.ndarray = over("dimension", unit="residual units")
    x_source: np.ndarray = over("dimension", unit="residual units")
    read_query: np.ndarray = over("dimension", unit="units of the head's input")
    read_key: np.ndarray = over("dimension", unit="units of the head's input")
    read_value: np.ndarray = over("dimension", unit="units of the head's input")
    q: np.ndarray = over("entry", unit="activation units")
    k: np.ndarray = over("entry", unit="activation units")
    v: np.ndarray = over("entry", unit="activation units")
    products: np.ndarray = over("entry", unit="activation units²")
    dot: float
    scale: float
    score: float = scalar("score")
    bias: float = scalar("score")
    softmax_score: float = scalar("score")
    scores: np.ndarray = over("source", unit="score")
    mask: np.ndarray = over("source", unit="true or false")
    pattern: np.ndarray = over("source", unit="share of attention")
    attention: float
    weighted: np.ndarray = over("entry", unit="activation units")
    z: np.ndarray = over("entry", unit="activation units")
    result: np.ndarray = over("dimension", unit="residual units")
    moved: np.ndarray = over("dimension", unit="residual units")
    top_ids: np.ndarray = over("top", unit="token id")
    top: np.ndarray = over("top", unit="logit")
    bottom_ids: np.ndarray = over("bottom", unit="token id")
    bottom: np.ndarray = over("bottom", unit="logit")
    moved_ids: np.ndarray = over("top moved", unit="token id")
    moved_top: np.ndarray = over("top moved", unit="logit")
    effect: float = scalar("logit")
    effect_moved: float = scalar("logit")
    target_ids: np.ndarray = over("target and other", unit="token id", none=True)
    target_words: str
    destination: int
    source: int

    def table(self) -> Table:
        """One row per entry of the head's own vectors."""
        names = ("q", "k", "products", "v", "weighted", "z")
        entries = Column("entry", np.arange(len(self.q)))
        return Table((entries, *(Column(name, getattr(self, name), str(self.unit_of(name))) for name in names)))


def _memory(c: ModelConfig, n: int, p: HeadStepParams) -> int:
    return 8 * (3 * n * (n + c.d_head) + 2 * n * c.d_model + 12 * c.d_model + 4 * c.d_vocab_out)


@analysis(version=2, needs="tokens", of_heads=True, lane="live", memory=_memory)
def head_step(inputs: Inputs, p: HeadStepParams, ctx: Ctx) -> HeadStepResult:
    """One attention head step by step at a destination and source: q and k, score, mask, softmax, z, output, logit effect."""
    run, c = inputs.run(), inputs.weights.config
    check_heads(c, p.head)
    with torch.inference_mode():
        d, s, allowed = cell(run, ScoreExpansionParams(p.head, p.destination, p.source))
        values = _attending(run, p.head, d, s, allowed)
        ctx.tick(0, 2, "head")
        values |= _writing(run, p.head, d, s, values["pattern"])
        ctx.tick(1, 2, "logit effect")
        vector = target_at(inputs, p.target, [d], run)
        passage = Passage(run, p.head.layer, c.n_layers, slice(d, d + 1))
        values |= _effects(run, vector, passage, values["result"], values["moved"], p.k)
        values |= _entering(run, p.head, d, values)
    arrays = {
        name: value.double().cpu().numpy() if value.is_floating_point() else value.cpu().numpy() for name, value in values.items()
    }
    numbers = {name: float(arrays.pop(name)) for name in list(arrays) if arrays[name].ndim == 0}
    slopes = c.slopes_in(p.head.layer)
    numbers |= {"scale": c.score_scale, "attention": float(arrays["pattern"][s])}
    numbers["bias"] = -slopes[p.head.head] * (d - s) if slopes else 0.0
    mask_words = () if allowed.start <= s < allowed.stop else ("the mask hides this source",)
    scales = " at recorded norm scales" if c.norm != "none" else ""
    effects = f"logit effects{scales}, minus their mean over the vocabulary"
    after = c.norm != "none" and c.norm_placement != "pre"
    entering = ("output through the norm after it at its recorded scale",) * after
    conventions = (*inputs.convention_words(), *entering, effects, f"target: {vector.words}", *mask_words)
    rest = {"target_ids": vector.ids[0].cpu().numpy(), "target_words": vector.words, "destination": d, "source": s}
    return HeadStepResult(**arrays, **numbers, **rest, conventions=conventions)  # pyright: ignore[reportArgumentType]


def _attending(run: Run, head: Head, d: int, s: int, allowed: slice) -> dict[str, Tensor]:
    """The steps from the residual stream to the pattern."""
    i, only, row, group = head.layer, (head.head,), slice(d, d + 1), run.weights.config.kv_head(head.head)
    read, positions = read_by_attention(run, i), added_positions(run, i)
    reading = read if positions is None else read + positions
    q, k = run.get("q", i, only, row)[0, 0], run.get("k", i, (group,))[0, s]
    scores = run.get("scores", i, only, row)[0, 0]
    mask = torch.zeros(run.n, dtype=torch.bool)
    mask[allowed] = True
    dot = (q.double() * k.double()).sum()
    stream = run.get("resid_pre", i)
    return {
        "x_dest": stream[d],
        "x_source": stream[s],
        "read_query": reading[d],
        "read_key": reading[s],
        "read_value": read[s],
        "q": q,
        "k": k,
        "products": q.double() * k.double(),
        "dot": dot,
        "score": run.weights.config.score_scale * dot,
        "softmax_score": scores[s],
        "scores": scores.masked_fill(~mask, float("nan")),
        "mask": mask,
        "pattern": run.get("pattern", i, only, row)[0, 0],
    }


def _writing(run: Run, head: Head, d: int, s: int, pattern: Tensor) -> dict[str, Tensor]:
    """The steps from the pattern to the output in the residual stream."""
    i, only, row, group = head.layer, (head.head,), slice(d, d + 1), run.weights.config.kv_head(head.head)
    v, W_O = run.get("v", i, (group,))[0, s], run.weights.layer(i, mlp=False).W_O[head.head]
    weighted = pattern[s] * v
    z, result = run.get("z", i, only, row)[0, 0], run.get("result", i, only, row)[0, 0]
    return {"v": v, "weighted": weighted, "z": z, "result": result, "moved": weighted @ W_O}


def _entering(run: Run, head: Head, d: int, values: dict[str, Tensor]) -> dict[str, Tensor]:
    """The head's output and the source's part of it as they enter the stream."""
    after, parts = run.norm_after_heads(head.layer, slice(d, d + 1)), {name: values[name] for name in ("result", "moved")}
    if after is None:
        return parts
    norm, scale = after
    return {name: linear_part(x, norm, run.weights.config.norm) * scale[0] for name, x in parts.items()}


def _effects(run: Run, vector: TargetVector, passage: Passage, result: Tensor, moved: Tensor, k: int) -> dict[str, Tensor]:
    """Logit effects of the head's output and of the source's part of it, at the recorded norm scales."""
    both = passage.scale * passage.apply(torch.stack([result, moved]))
    logits = both @ run.weights.unembed().W_U
    logits = logits - logits.mean(dim=-1, keepdim=True)
    k = max(1, min(k, logits.shape[-1]))
    top, bottom = logits.topk(k), logits.topk(k, largest=False)
    effect, effect_moved = both @ vector.D[0]
    tokens = {"top_ids": top.indices[0], "top": top.values[0], "bottom_ids": bottom.indices[0], "bottom": bottom.values[0]}
    tokens |= {"moved_ids": top.indices[1], "moved_top": top.values[1]}
    return {**tokens, "effect": effect, "effect_moved": effect_moved}
