"""The one forward pass.

    x_0 = W_E[tokens] (+ positions);   x_{l+1} = block_l(x_l);   logits = norm(x_L) W_U

`forward` runs one prompt, applies interventions where the values arise, and stores what a `Run` needs; given an earlier run of
the same weights and interventions it computes only the positions after the common prefix, on that run's keys, values and
streams. `forward_from` continues a batch of changed streams from a layer. `logits` and `patterns` take batches of prompts and are
differentiable: training and batched measurements use them. All of them go through the same functions of `block`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import takewhile

import torch
from torch import Tensor

from circuitlab.errors import BadInput, TooLong
from circuitlab.model import block
from circuitlab.model.block import QKV
from circuitlab.model.config import ModelConfig
from circuitlab.model.editor import Editor, check_edits
from circuitlab.model.intervention import Intervention
from circuitlab.model.positions import sinusoid_table
from circuitlab.model.run import Captured, Run, after_attention, after_mlp, mlp_written, post_norm, unembed
from circuitlab.model.weights import Embed, Layer, Weights

Tick = Callable[[int, int], None]


def check_tokens(config: ModelConfig, tokens: tuple[int, ...], what: str = "The prompt") -> None:
    """Raise `BadInput` for a prompt that this model cannot take; `what`: its name in the error."""
    if not tokens:
        remedy = "Type some text; on the command line give --text or --tokens."
        raise BadInput(f"{what} is empty.", expected="at least one token", got="none", remedy=remedy)
    if len(tokens) > config.n_ctx:
        raise TooLong(f"{what} is longer than the model's context.", config.n_ctx, f"{len(tokens)}")
    if bad := [(i, t) for i, t in enumerate(tokens) if not 0 <= t < config.d_vocab]:
        raise BadInput(
            f"{what} has tokens outside the vocabulary.",
            expected=f"ids 0..{config.d_vocab - 1}",
            got=", ".join(f"{t} at position {i}" for i, t in bad[:5]),
            remedy="Tokens of another model's tokenizer do not fit this one.",
        )


def forward(
    w: Weights,
    tokens: tuple[int, ...],
    edits: tuple[Intervention, ...] = (),
    prefix: Run | None = None,
    source: Callable[[tuple[int, ...]], Run] | None = None,
    tick: Tick | None = None,
) -> Run:
    """One prompt through the model. `source(tokens)` gives clean runs for freeze, patch and mean; by default they are computed.

    `tick(layer, n_layers)` is called before each layer and may raise. Raises `BadInput` for tokens or interventions that do not
    fit the model.
    """
    check_tokens(w.config, tokens)
    check_edits(w.config, edits, len(tokens))
    for other in (edit.source for edit in edits if edit.source):
        check_tokens(w.config, other, "The other prompt")
    editor = Editor(edits, tokens, source or (lambda other: forward(w, other)))
    keep = _common(w, tokens, edits, prefix)
    run = Run(w, tokens, edits, editor, reused=keep)
    with torch.inference_mode():
        old = prefix if keep else None
        x = _of_tokens(w, tokens[keep:], keep)
        for i in range(w.config.n_layers):
            if tick is not None:
                tick(i, w.config.n_layers)
            x = _captured_block(run, old, i, x, keep)
        run.final = x if old is None or old.final is None else torch.cat([old.final[:keep], x])
    return run


_OF_ONE_POSITION = ("zero", "scale", "set", "project", "project_out")  # what later positions cannot change


def _common(w: Weights, tokens: tuple[int, ...], edits: tuple[Intervention, ...], prefix: Run | None) -> int:
    """How many positions of `prefix` can be reused; at least the last position is always computed."""
    if prefix is None or prefix.weights is not w or prefix.edits != edits or prefix.final is None:
        return 0
    if any(e.op not in _OF_ONE_POSITION or e.path_from is not None for e in edits):
        return 0
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(tokens, prefix.tokens, strict=False)))
    return min(same, len(tokens) - 1)


def _of_tokens(w: Weights, tokens: tuple[int, ...], start: int) -> Tensor:
    ends = w.embed()
    return embedded(w.config, ends, torch.tensor(tokens, device=ends.W_E.device), start)


def positions_in_stream(config: ModelConfig, embed: Embed, start: int, stop: int) -> Tensor | None:
    """[stop − start, d_model]: what is added to the embedding at these positions, presented like it; None for nothing."""
    if config.positions == "learned" and embed.W_pos is not None:
        return embed.W_pos[start:stop]
    if config.positions != "sinusoidal":
        return None
    table = sinusoid_table(stop, config.d_model, torch.float64)[start:stop]
    table = table - table.mean(dim=-1, keepdim=True) if embed.centred else table
    return table.to(embed.W_E.dtype).to(embed.W_E.device)


def embedded(config: ModelConfig, embed: Embed, tokens: Tensor, start: int) -> Tensor:
    """x_0 [..., pos, d_model] of tokens [..., pos] whose first position is `start`."""
    x = embed.W_E[tokens]
    if config.embed_scale != 1.0:
        x = x * config.embed_scale
    positions = positions_in_stream(config, embed, start, start + tokens.shape[-1])
    return x if positions is None else x + positions


def _read(config: ModelConfig, layer: Layer, x: Tensor) -> Tensor:
    """The input of attention: the stream, normalised where the norm comes first."""
    if config.norm_placement in ("pre", "both"):
        return block.normalise(x, layer.attn_norm, config.norm, config.norm_eps)
    return x


def _project(w: Weights, layer: Layer, i: int, x: Tensor, start: int, before: Tensor | None) -> QKV:
    config = w.config
    W_pos = w.embed().W_pos if config.positions == "shortformer" else None
    earlier = None if before is None else _read(config, layer, before)
    return block.queries_keys_values(config, layer, i, _read(config, layer, x), start, W_pos, earlier)


def _captured_block(run: Run, old: Run | None, i: int, x: Tensor, start: int) -> Tensor:
    """Block i on the new positions x [pos − start, d_model]; appends to `run.captured`, returns the stream after it."""
    w, config, editor = run.weights, run.weights.config, run.editor
    layer = w.layer(i)
    x = editor.apply("resid_pre", i, x, start)
    reused = old.captured[i] if old is not None else None
    before = reused.resid_pre[start - 1 : start] if reused is not None and config.smeared_keys else None
    qkv = _edited_projections(run, layer, i, x, start, before)
    new = Captured(x, qkv.q, qkv.k, qkv.v, block.norm_scale(x, config.norm, config.norm_eps))
    run.captured.append(new if reused is None else _joined(reused, new, start))
    captured = run.captured[-1]
    attn_out = _attention(run, layer, i, QKV(qkv.q, captured.k, captured.v), start)
    mid = after_attention(config, layer, x, attn_out)
    if layer.mlp is None:
        return mid
    written = mlp_written(config, layer, x if config.parallel else mid)
    return after_mlp(config, layer, mid, editor.apply("mlp_out", i, written, start))


def _joined(old: Captured, new: Captured, start: int) -> Captured:
    return Captured(
        resid_pre=torch.cat([old.resid_pre[:start], new.resid_pre]),
        q=torch.cat([old.q[:, :start], new.q], dim=1),
        k=torch.cat([old.k[:, :start], new.k], dim=1),
        v=torch.cat([old.v[:, :start], new.v], dim=1),
        attn_scale=torch.cat([old.attn_scale[:start], new.attn_scale]),
    )


def _edited_projections(run: Run, layer: Layer, i: int, x: Tensor, start: int, before: Tensor | None) -> QKV:
    """q, k and v after path interventions, then after those on themselves."""
    parts = _project(run.weights, layer, i, x, start, before)._asdict()
    for reading in run.editor.readings(run, i):  # with any of these every position is computed: start is 0
        narrow = reading.narrowed(run.weights.config, layer)
        changed = _project(run.weights, narrow, i, x + reading.change, start, before)
        parts[reading.name] = reading.merged(parts[reading.name], getattr(changed, reading.name))
    return QKV(*(run.editor.apply(name, i, part, start) for name, part in parts.items()))


def _attention(run: Run, layer: Layer, i: int, qkv: QKV, start: int) -> Tensor:
    """Attention's output at the new positions, by the fused kernel unless something needs the pattern."""
    config, editor = run.weights.config, run.editor
    if config.score_soft_cap or editor.touches(i, "scores", "pattern", "z", "result"):
        return run.get("attn_out", i, (), slice(start, None))
    return post_norm(config, layer, block.write(layer, block.attend(config, i, qkv, start)), "attn")


def _plain_block(w: Weights, layer: Layer, i: int, x: Tensor) -> Tensor:
    """Block i on [..., pos, d_model] without interventions: batches and training."""
    config = w.config
    qkv = _project(w, layer, i, x, 0, None)
    if config.score_soft_cap:
        z = full_pattern(config, i, qkv) @ block.per_query_head(config, qkv.v)
    else:
        z = block.attend(config, i, qkv, 0)
    return _after_plain(config, layer, x, z)


def _after_plain(config: ModelConfig, layer: Layer, x: Tensor, z: Tensor) -> Tensor:
    """The streams after a block without interventions, from those before it and z."""
    mid = after_attention(config, layer, x, post_norm(config, layer, block.write(layer, z), "attn"))
    if layer.mlp is None:
        return mid
    return after_mlp(config, layer, mid, mlp_written(config, layer, x if config.parallel else mid))


def full_pattern(config: ModelConfig, i: int, qkv: QKV) -> Tensor:
    """[..., head, dest, src] of layer i."""
    n = qkv.q.shape[-2]
    mask = block.allowed(n, n, 0, config.window(i), qkv.q.device)
    raw = block.biased(config, i, block.scores(config, qkv.q, block.per_query_head(config, qkv.k)), 0)
    return block.pattern(raw, mask)


def streams(w: Weights, tokens: Tensor) -> Tensor:
    """[batch, pos] ids -> x_L [batch, pos, d_model], what is unembedded; differentiable in trainable weights."""
    x = embedded(w.config, w.embed(), tokens, 0)
    for i in range(w.config.n_layers):
        x = _plain_block(w, w.layer(i), i, x)
    return x


def logits(w: Weights, tokens: Tensor) -> Tensor:
    """[batch, pos] ids -> [batch, pos, d_vocab_out]; differentiable in trainable weights."""
    return unembed(w, w.unembed(), streams(w, tokens))


def patterns(w: Weights, tokens: Tensor) -> Iterator[tuple[int, Tensor]]:
    """(layer, [batch, head, dest, src]) for [batch, pos] ids, one layer at a time; not to be written to."""
    config = w.config
    with torch.inference_mode():
        x = embedded(config, w.embed(), tokens, 0)
        for i in range(config.n_layers):
            layer = w.layer(i)
            qkv = _project(w, layer, i, x, 0, None)
            pattern = full_pattern(config, i, qkv)
            yield i, pattern
            if i < config.n_layers - 1:  # the output of the last layer is not needed
                x = _after_plain(config, layer, x, pattern @ block.per_query_head(config, qkv.v))


def attended(run: Run, i: int, layer: Layer, x: Tensor, frozen: bool = False, dest: slice = slice(None)) -> Tensor:
    """z [..., head, dest, d_head] of layer i on changed streams x [..., pos, d_model] of `run` (after edits of resid_pre).

    The run's interventions act, except those along a path. `frozen`: patterns are the run's own, values are not. `dest` leaves
    other destinations out, where the run has no interventions in this layer.
    """
    config, editor, n = run.weights.config, run.editor, x.shape[-2]
    qkv = _project(run.weights, layer, i, x, 0, None)
    v = editor.apply("v", i, qkv.v)
    if frozen:
        pattern = run.get("pattern", i, (), dest)
        pattern = pattern.clone() if torch.is_grad_enabled() else pattern  # created in inference mode, where autograd refuses it
        return editor.apply("z", i, pattern @ block.per_query_head(config, v))
    q, k = editor.apply("q", i, qkv.q)[..., dest, :], editor.apply("k", i, qkv.k)
    start, stop, _ = dest.indices(n)
    k, v = k[..., :stop, :], v[..., :stop, :]
    if not (config.score_soft_cap or editor.touches(i, "scores", "pattern")):
        return editor.apply("z", i, block.attend(config, i, QKV(q, k, v), start))
    raw = editor.apply("scores", i, block.biased(config, i, block.scores(config, q, block.per_query_head(config, k)), start))
    allowed = block.allowed(q.shape[-2], stop, start, config.window(i), q.device)
    pattern = editor.apply("pattern", i, block.pattern(raw, allowed))
    return editor.apply("z", i, pattern @ block.per_query_head(config, v))


def after_heads(run: Run, i: int, layer: Layer, x: Tensor, z: Tensor) -> Tensor:
    """The streams after block i, from those before it [..., pos, d_model] and z [..., head, pos, d_head].

    Interventions on `result` and `mlp_out` act. Leading axes of x and z broadcast.
    """
    config, editor = run.weights.config, run.editor
    if editor.touches(i, "result"):
        out = editor.apply("result", i, block.head_results(layer, z)).sum(-3)
        out = out if layer.b_O is None else out + layer.b_O
    else:
        out = block.write(layer, z)
    mid = after_attention(config, layer, x, post_norm(config, layer, out, "attn"))
    if layer.mlp is None:
        return mid
    written = mlp_written(config, layer, x if config.parallel else mid)
    return after_mlp(config, layer, mid, editor.apply("mlp_out", i, written))


def forward_from(w: Weights, run: Run, layer: int, resid: Tensor, dest: slice = slice(None)) -> Tensor:
    """[batch, pos, d_model] streams before block `layer` -> logits [batch, dest, d_vocab_out].

    The streams stand for changed versions of `run`; interventions of the run at `layer` and later act on each of them.
    """
    with torch.inference_mode():
        x = resid
        for i in range(layer, w.config.n_layers):
            if run.edits and any(e.site.layer == i for e in run.edits):
                x = _edited_blocks(w, run, i, x)
            else:
                x = _plain_block(w, w.layer(i), i, x)
        return unembed(w, w.unembed(), x[:, dest])


def _edited_blocks(w: Weights, run: Run, i: int, x: Tensor) -> Tensor:
    """Block i with the run's interventions on changed streams [batch, pos, d_model]; senders of paths are the run's own."""
    if any(e.site.layer == i and e.path_from is not None for e in run.edits):
        return torch.stack([_edited_block(w, run, i, one) for one in x])
    layer = w.layer(i)
    x = run.editor.apply("resid_pre", i, x)
    return after_heads(run, i, layer, x, attended(run, i, layer, x))


def _edited_block(w: Weights, run: Run, i: int, x: Tensor) -> Tensor:
    """Block i with the run's interventions on one changed stream; earlier layers are the run's own."""
    trial = Run(w, run.tokens, run.edits, run.editor, list(run.captured[:i]))
    return _captured_block(trial, None, i, x, 0)


def rerun_from(run: Run, edits: tuple[Intervention, ...], editor: Editor, layer: int) -> Tensor:
    """[pos, d_model]: the last stream of `run` with other interventions, different in `layer` and later only; paths included."""
    with torch.inference_mode():
        trial = Run(run.weights, run.tokens, edits, editor, list(run.captured[:layer]))
        x = run.get("resid_post", layer - 1) if layer else _of_tokens(run.weights, run.tokens, 0)
        for i in range(layer, run.weights.config.n_layers):
            x = _captured_block(trial, None, i, x, 0)
        return x
