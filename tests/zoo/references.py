"""Answers worked out anew, from `forward` and `circuits` alone: one function an analysis, failing where the engine differs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.zoo.circuits import Circuits, eigenvalues, positivity, without_mean
from tests.zoo.forward import Model, Passed, capped, log_softmax
from tests.zoo.laws import EXACT

# (the model, its pass over the prompt, the parameters, the engine's result)
Reference = Callable[[Model, Passed, Any, Any], None]
REFERENCES: dict[str, Reference] = {}


def reference(function: Reference) -> Reference:
    """Register a reference under the analysis' name."""
    REFERENCES[function.__name__] = function
    return function


def close(found: Any, wanted: Any, what: str, tolerance: float = 1e-9) -> None:
    """They agree relative to the largest wanted number."""
    wanted = np.asarray(wanted)
    size = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=1.0)) if wanted.dtype.kind in "fc" else 1.0
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * size, err_msg=what)


def at(own: Passed, position: int) -> int:
    """A position as an index from 0."""
    return position % len(own.tokens)


def visible(m: Model, own: Passed, layer: int) -> np.ndarray:
    """[dest, src] bool."""
    return m.allowed(layer, len(own.tokens))


# -- the end of a pass ----------------------------------------------------------------------------------------------------


def followed_by(m: Model, own: Passed, position: int) -> int:
    """The token that follows; the most probable one where none does that can be predicted."""
    tokens = (*own.tokens, m.c.d_vocab_out)
    return tokens[position + 1] if tokens[position + 1] < m.c.d_vocab_out else int(own.logits[position].argmax())


def direction(m: Model, token: int, centred: bool) -> np.ndarray:
    """[d_model]: the column of W_U of a token, minus the mean column where logits are measured against the vocabulary's."""
    return m.W_U[:, token] - (m.W_U.mean(1) if centred else 0)


def through_norm_after(block: Any, which: str, x: np.ndarray) -> np.ndarray:
    """What a part of a sublayer's output becomes in the stream, at the recorded scale of a norm after the sublayer."""
    return block.norms[f"{which}_post_norm"].linear(x) if f"{which}_post_norm" in block.norms else x


def effect(own: Passed, x: np.ndarray, D: np.ndarray) -> np.ndarray:
    """[…, pos]: what a part x […, pos, d_model] of the last stream adds to a target, at the final norm's recorded scale."""
    return own.final_norm.linear(x) @ D


def ranks(row: np.ndarray, token: int, rank: int, equal: int) -> None:
    """The rank of a token in a row, and how many are equal to it. Rounding decides among those that are nearly so."""
    near = np.abs(row - row[token]) <= EXACT * max(1.0, float(np.abs(row).max()))
    above = int((row > row[token])[~near].sum())
    assert above < rank and equal >= 1 and rank + equal - 1 <= above + near.sum(), (above, int(near.sum()), rank, equal)


@reference
def token_loss(m: Model, own: Passed, p: Any, result: Any) -> None:
    for i, token in enumerate(own.tokens):
        if i == 0 or token >= m.c.d_vocab_out:
            assert np.isnan(result.loss[i]) and result.rank[i] == result.equal[i] == -1
            continue
        row = own.log_probs[i - 1]
        close(result.loss[i], -row[token], "loss")
        ranks(row, token, result.rank[i], result.equal[i])


@reference
def predictions(m: Model, own: Passed, p: Any, result: Any) -> None:
    row = own.log_probs[at(own, p.position)]
    close(result.log_probs, np.sort(row)[::-1][: p.k], "log_probs")
    close(row[result.ids], result.log_probs, "ids")
    close(result.entropy, -(np.exp(row) * row).sum(), "entropy")
    if result.actual >= 0:
        ranks(row, result.actual, result.actual_rank, result.actual_equal)


@reference
def logit_lens(m: Model, own: Passed, p: Any, result: Any) -> None:
    c = m.c
    streams = [x for b in own.blocks for x in ([b.pre, b.mid] if p.mid and c.d_mlp and not c.parallel else [b.pre])]
    bias = m.t["unembed.b_U"] if "unembed" in c.biases else 0
    last = own.log_probs
    assert len(result.stages) == len(streams) + 1
    for stage, x in enumerate([*streams, own.final]):
        norm = own.final_norm if "final" in p.statistics else m.norm("unembed.norm", x, c.norm if c.final_norm else "none")
        row = log_softmax(capped(norm(x) @ m.W_U + bias, c.logit_soft_cap))
        close(result.entropy[stage], -(np.exp(row) * row).sum(-1), f"entropy of {result.stages[stage]}")
        close(result.kl[stage], (np.exp(last) * (last - row)).sum(-1), "kl")
        close(result.probs[stage], np.sort(np.exp(row))[:, ::-1][:, : result.probs.shape[2]], "probs")
        for i, token in enumerate(own.tokens[1:]):
            if token < c.d_vocab_out:
                close(result.log_prob[stage, i], row[i, token], "log_prob")
                ranks(row[i], token, result.rank[stage, i], result.equal[stage, i])


# -- attention ------------------------------------------------------------------------------------------------------------


@reference
def attention(m: Model, own: Passed, p: Any, result: Any) -> None:
    centred = Circuits(m).centred
    for row, (layer, h) in enumerate(result.heads):
        b, seen = own.blocks[layer], visible(m, own, layer)
        values = b.scores[h] if p.show == "scores" else b.pattern[h]
        if p.show == "contribution":
            moved = through_all(b, b.v[h] @ m.of(layer, "W_O")[h])
            values = values * np.linalg.norm(without_mean(moved) if centred else moved, axis=-1)
        close(result.values[row][seen], values[seen], f"L{layer}H{h}")
        assert np.isnan(result.values[row][~seen]).all()


def through_all(b: Any, carried: np.ndarray) -> np.ndarray:
    """[dest, src, d_model]: what each source's vector becomes at each destination as it enters the stream."""
    n = len(carried)
    whole = np.broadcast_to(carried, (n, *carried.shape))
    if "attn_post_norm" not in b.norms:
        return whole
    norm = b.norms["attn_post_norm"]
    centred = without_mean(whole) if norm.kind == "layer" else whole
    return centred * norm.scale[:, None] * norm.gain


@reference
def head_step(m: Model, own: Passed, p: Any, result: Any) -> None:
    (layer, h), d, s = p.head, at(own, p.destination), result.source
    b, seen = own.blocks[layer], visible(m, own, layer)[d]
    close(result.score, b.dots[h, d, s], "score")
    close(result.pattern, b.pattern[h, d], "pattern")
    close(result.scores[seen], b.scores[h, d][seen], "scores")
    close(result.z, b.z[h, d], "z")
    parts = {
        "result": b.result[h],
        "moved": np.tile(b.pattern[h, d, s] * b.v[h, s] @ m.of(layer, "W_O")[h], (len(own.tokens), 1)),
    }
    for name, x in parts.items():
        entering = through_norm_after(b, "attn", x)[d]
        close(getattr(result, name), without_mean(entering) if Circuits(m).centred else entering, name)


@reference
def attention_overview(m: Model, own: Passed, p: Any, result: Any) -> None:
    largest = [[b.pattern[h].max() for h in range(m.c.n_heads)] for b in own.blocks]
    close(result.largest, largest, "largest")
    edge = result.tile + result.gap
    for layer, b in enumerate(own.blocks):
        for h in range(m.c.n_heads):
            tile = result.sheet[layer * edge : layer * edge + result.tile, h * edge : h * edge + result.tile]
            seen = visible(m, own, layer)
            close(tile[seen], b.pattern[h][seen], "tile")


def score(name: str, A: np.ndarray, t: tuple[int, ...], window: int) -> float:
    """A head score by its definition, of the sources that a window (0: none) leaves."""
    per = list[float]()
    for d in range(len(t)):
        seen = range(max(0, d - window + 1) if window else 0, d + 1)
        if name == "prefix_matching":
            targets = [s for s in seen if s and t[s - 1] == t[d]]
            per += [float(sum(A[d, s] for s in targets))] * bool(targets)
        elif name == "duplicate_token":
            targets = [s for s in seen if s < d and t[s] == t[d]]
            per += [float(sum(A[d, s] for s in targets))] * bool(targets)
        elif name == "entropy":
            per.append(float(-sum(a * np.log(a) for a in A[d] if a > 0)))
        elif name == "mean_distance":
            per.append(float(sum(A[d, s] * (d - s) for s in range(d + 1))))
        else:
            source = {"previous_token": d - 1, "first_token": 0, "current_token": d}[name]
            per += [float(A[d, source])] * (d >= 1 and source in seen)
    return float(np.mean(per)) if per else float("nan")


@reference
def head_scores(m: Model, own: Passed, p: Any, result: Any) -> None:
    if p.on == "random":
        return
    for i, name in enumerate(result.names):
        wanted = [
            [score(name, b.pattern[h], own.tokens, m.c.window(layer)) for h in range(m.c.n_heads)]
            for layer, b in enumerate(own.blocks)
        ]
        close(result.mean[i], wanted, name)


@reference
def virtual_head(m: Model, own: Passed, p: Any, result: Any) -> None:
    (i, g), (j, h) = p.earlier, p.later
    first, second = own.blocks[i], own.blocks[j]
    middle = np.ones((len(own.tokens), 1))
    if "attn_norm" in second.norms:
        middle = middle * second.norms["attn_norm"].scale
    if "attn_post_norm" in first.norms:
        middle = middle * first.norms["attn_post_norm"].scale
    seen, wanted = ~np.isnan(result.pattern), second.pattern[h] @ (middle * first.pattern[g])
    close(result.pattern[seen], wanted[seen], "pattern")
    assert (seen == np.tril(seen)).all() and not wanted[~seen].any()


# -- decompositions -------------------------------------------------------------------------------------------------------


def dest_of(p: Any, own: Passed) -> list[int]:
    """The positions that an attribution is at."""
    return list(range(len(own.tokens))) if getattr(p, "positions", "one") == "all" else [at(own, p.position)]


@reference
def direct_attribution(m: Model, own: Passed, p: Any, result: Any) -> None:
    c = m.c
    for column, d in enumerate(dest_of(p, own)):
        token = followed_by(m, own, d)
        D = direction(m, token, not c.logit_soft_cap)
        assert result.ids[column, 0] == token
        one = lambda x, D=D, d=d: float(effect(own, x, D)[..., d])
        others = dict(zip(result.names, result.others[:, column], strict=True))
        close(others["embedding"], one(own.embedded), "embedding")
        for layer, b in enumerate(own.blocks):
            for h in range(c.n_heads):
                close(result.heads[layer, h, column], one(through_norm_after(b, "attn", b.result[h])), f"L{layer}H{h}")
            if c.d_mlp:
                close(others[f"MLP L{layer}"], one(b.mlp_out), f"MLP L{layer}")
        offset = m.t["unembed.b_U"] if "unembed" in c.biases else np.zeros(c.d_vocab_out)
        total = own.normed[d] @ D + offset[token] - (0 if c.logit_soft_cap else offset.mean())
        close(result.total[column], total, "total")


@reference
def token_attribution(m: Model, own: Passed, p: Any, result: Any) -> None:
    d = at(own, p.position)
    for row, (layer, h) in enumerate(result.heads):
        b, seen = own.blocks[layer], visible(m, own, layer)
        carried = b.v[h] @ m.of(layer, "W_O")[h]
        moved = b.pattern[h][..., None] * through_all(b, carried)  # [dest, src, d_model]
        for other in range(len(own.tokens)):
            dest, src = (d, other) if p.direction == "sources" else (other, d)
            if not seen[dest, src]:
                assert np.isnan(result.values[row, other])
                continue
            D = direction(m, followed_by(m, own, dest), True)
            x = np.broadcast_to(moved[dest, src], own.final.shape)
            close(result.values[row, other], effect(own, x, D)[dest], f"L{layer}H{h} {dest} <- {src}")


@reference
def neurons(m: Model, own: Passed, p: Any, result: Any) -> None:
    d = at(own, p.position)
    D = direction(m, followed_by(m, own, d), not m.c.logit_soft_cap)
    for layer, b in enumerate(own.blocks):
        each = b.hidden[d][:, None, None] * m.of(layer, "mlp.W_out")[:, None, :]
        each = np.broadcast_to(each, (len(each), len(own.tokens), m.c.d_model))
        close(result.every[layer], effect(own, through_norm_after(b, "mlp", each), D)[:, d], f"MLP L{layer}")
        close(result.mlp[layer], effect(own, b.mlp_out, D)[d], "the whole MLP")


@reference
def score_expansion(m: Model, own: Passed, p: Any, result: Any) -> None:
    layer, h = p.head
    d, s, b = at(own, p.destination), result.source, own.blocks[layer]
    close(result.attention, b.pattern[h, d, s], "attention")
    bias = -m.c.slopes[h] * (d - s) if m.c.positions == "alibi" and m.acts(layer) else 0.0
    close(result.score, b.dots[h, d, s] + bias, "score")
    close(result.terms.sum(), b.dots[h, d, s] + bias, "sum of terms")
    if result.seen:
        close(result.softmax_score, b.scores[h, d, s], "softmax_score")


@reference
def path_expansion(m: Model, own: Passed, p: Any, result: Any) -> None:
    """Direct contributions of heads by `direct_attribution`'s formula, the whole, and paths of order 1 from the embedding."""
    c, d = m.c, at(own, p.position)
    token = followed_by(m, own, d)
    D = direction(m, token, not c.logit_soft_cap)
    for layer, b in enumerate(own.blocks):
        for h in range(c.n_heads):
            close(result.head_total[layer, h], effect(own, through_norm_after(b, "attn", b.result[h]), D)[d], f"L{layer}H{h}")
    close(result.head_orders.sum(-1), result.head_total, "orders of heads")
    source = list(result.sources).index("embedding")
    for term in np.flatnonzero(result.order == 1):
        layer, h = result.heads[term, 0]
        b = own.blocks[layer]
        read = b.norms["attn_norm"].linear(own.embedded) if "attn_norm" in b.norms else own.embedded
        kv = h // (c.n_heads // c.n_kv_heads)
        out = b.pattern[h] @ read @ m.of(layer, "W_V")[kv] @ m.of(layer, "W_O")[h]
        close(result.by_source[term, source], effect(own, through_norm_after(b, "attn", out), D)[d], f"path through L{layer}H{h}")


@reference
def residual_norms(m: Model, own: Passed, p: Any, result: Any) -> None:
    centred = Circuits(m).centred
    length = lambda x: np.sqrt(((without_mean(x) if centred else x) ** 2).sum(-1))
    stages = dict(zip(result.stages, result.stream, strict=True))
    for layer, b in enumerate(own.blocks):
        close(stages[f"L{layer} in"], length(b.pre), f"L{layer} in")


@reference
def activations(m: Model, own: Passed, p: Any, result: Any) -> None:
    x = own.blocks[p.layer].pre if m.c.n_layers else own.final
    close(result.values, without_mean(x) if Circuits(m).centred else x, p.name)


@reference
def ablation(m: Model, own: Passed, p: Any, result: Any) -> None:
    """Each head's z replaced by zero or by its mean over positions; the patterns of later layers held, or computed anew."""
    c, n = m.c, len(own.tokens)
    follows = followed_by(m, own, n - 1)

    def value(passed: Passed) -> float:
        if p.effect == "target":
            row = passed.uncapped[-1]
            return float(row[follows] - (0 if c.logit_soft_cap else row.mean()))
        kept = [-passed.log_probs[i, t] for i, t in enumerate(own.tokens[1:]) if t < c.d_vocab_out]
        return float(np.mean(kept)) if kept else float("nan")

    for layer in range(c.n_layers):
        for h in range(c.n_heads):

            def cut(what: str, at_layer: int, x: np.ndarray, layer: int = layer, h: int = h) -> np.ndarray:
                if what == "pattern" and p.frozen and at_layer > layer:
                    return own.blocks[at_layer].pattern
                if (what, at_layer) != ("z", layer):
                    return x
                x = x.copy()
                x[h] = x[h].mean(0) if p.how == "mean" else 0
                return x

            close(result.effect[layer, h], value(m(own.tokens, cut)) - value(own), f"L{layer}H{h}")


# -- weights --------------------------------------------------------------------------------------------------------------


def _table(result: Any, row: np.ndarray, k: int, token: int | None) -> None:
    close(result.top, np.sort(row)[::-1][:k], "top")
    close(row[result.top_ids], result.top, "top_ids")
    close(result.bottom, np.sort(row)[:k][::-1] if result.bottom[0] > result.bottom[-1] else np.sort(row)[:k], "bottom")
    close(result.sd, row.std(), "sd")
    if token is not None:
        close(result.own, row[token], "own")


@reference
def ov_table(m: Model, own: Passed, p: Any, result: Any) -> None:
    circuits = Circuits(m)
    read = circuits.stored if p.embed == "tokens" else circuits.tokens
    whole = without_mean(read @ circuits.head(*p.head).OV @ circuits.U_raw)
    mapped = m.c.d_vocab == m.c.d_vocab_out
    _table(result, whole[p.token] if p.given == "source" else whole[:, p.token], p.k, p.token if mapped else None)


@reference
def qk_table(m: Model, own: Passed, p: Any, result: Any) -> None:
    circuits, layer = Circuits(m), p.head.layer
    read = circuits.stored if p.embed == "tokens" else circuits.tokens
    head = circuits.head(*p.head)
    whole = m.c.score_scale * circuits.turned(layer, read @ head.Q, p.distance) @ (read @ head.K).T
    _table(result, without_mean(whole[p.token]) if p.given == "destination" else whole[:, p.token], p.k, p.token)
    if head.bQ is not None:
        bias = without_mean(m.c.score_scale * circuits.turned(layer, head.bQ, p.distance) @ (read @ head.K).T)
        close(result.bias_top, np.sort(bias)[::-1][: p.k], "bias row")


@reference
def ov_top_tokens(m: Model, own: Passed, p: Any, result: Any) -> None:
    circuits = Circuits(m)
    read = circuits.stored if p.embed == "tokens" else circuits.tokens
    whole = without_mean(read @ circuits.head(*p.head).OV @ circuits.U_raw)
    close(result.values, -np.sort(-whole)[:, : p.k], "values")


@reference
def composition(m: Model, own: Passed, p: Any, result: Any) -> None:
    circuits, norm = Circuits(m), np.linalg.norm
    close(result.baseline, 1 / np.sqrt(circuits.d), "baseline")
    for j, h in circuits.heads():
        for i, g in circuits.heads():
            for kind, scores in zip(result.kinds, result.scores, strict=True):
                if i >= j:
                    assert np.isnan(scores[j, h, i, g])
                    continue
                later, OV = circuits.head(j, h), circuits.head(i, g).OV
                reads = {"Q": later.QK, "K": later.QK.T, "V": later.OV}[kind]
                close(scores[j, h, i, g], norm(OV @ reads) / (norm(OV) * norm(reads)), f"{kind} L{j}H{h} L{i}H{g}")


@reference
def copying_scores(m: Model, own: Passed, p: Any, result: Any) -> None:
    circuits = Circuits(m)
    for layer, h in circuits.heads():
        head = circuits.head(layer, h)
        rank = min(m.c.d_head, m.c.d_model, m.c.d_vocab)
        if m.c.d_vocab == m.c.d_vocab_out:
            for name, U in (("copying", without_mean(circuits.U)), ("copying_raw", circuits.U_raw)):
                whole = circuits.E @ head.OV @ U
                _score(getattr(result, name)[layer, h], whole, rank, name)
            close(
                result.diagonal_mean[layer, h],
                np.trace(circuits.E @ head.OV @ without_mean(circuits.U)) / m.c.d_vocab,
                "diagonal_mean",
            )
        q = circuits.turned(layer, circuits.E @ head.Q, 0)
        _score(result.qk_positivity[layer, h], q @ (without_mean(circuits.E, 0) @ head.K).T, rank, "qk_positivity")
        likeness = np.trace(head.OV) / (np.sqrt(m.c.d_head) * np.linalg.norm(head.OV))
        close(result.identity_likeness[layer, h], likeness, "identity_likeness")


def _score(result: float, whole: np.ndarray, rank: int, what: str) -> None:
    close(result, positivity(eigenvalues(whole, rank)), what, 1e-6)


@reference
def ov_spectrum(m: Model, own: Passed, p: Any, result: Any) -> None:
    circuits = Circuits(m)
    for row, (layer, h) in enumerate(result.heads):
        head = circuits.head(layer, h)
        whole = head.OV if p.matrix == "bare" else circuits.E @ head.OV @ without_mean(circuits.U)
        _spectrum(result, row, whole)


@reference
def qk_spectrum(m: Model, own: Passed, p: Any, result: Any) -> None:
    circuits = Circuits(m)
    for row, (layer, h) in enumerate(result.heads):
        head = circuits.head(layer, h)
        Q = circuits.turned(layer, head.Q, p.distance)
        _spectrum(result, row, Q @ head.K.T if p.matrix == "bare" else circuits.E @ Q @ (without_mean(circuits.E, 0) @ head.K).T)


def _spectrum(result: Any, row: int, whole: np.ndarray) -> None:
    """Singular values, and the eigenvalues by their power sums: those say the same whatever the order, and lose no digits."""
    mine = np.linalg.svd(whole, compute_uv=False)
    k = min(len(mine), result.singular_values.shape[1])
    close(result.singular_values[row][:k], mine[:k], "singular values", 1e-6)
    size, power = np.linalg.norm(whole), whole
    for order in (1, 2, 3):
        close((result.eigenvalues[row] ** order).sum() / size**order, np.trace(power) / size**order, f"Σλ^{order}")
        power = power @ whole


@reference
def singular_vectors(m: Model, own: Passed, p: Any, result: Any) -> None:
    circuits, layer = Circuits(m), p.head.layer
    head = circuits.head(*p.head)
    whole = head.OV if p.matrix == "OV" else circuits.turned(layer, head.Q, p.distance) @ head.K.T
    close((result.U * result.S) @ result.V.T, whole, p.matrix)


@reference
def virtual_weight(m: Model, own: Passed, p: Any, result: Any) -> None:
    """Direct products of heads, embeddings, positions and the unembedding."""
    circuits, c = Circuits(m), m.c
    if p.writer == "mlp" or p.across or p.reader == "mlp":
        return
    reader = circuits.head(*p.reader_head) if p.reader != "unembedding" else None
    if p.writer == "position" and c.positions == "shortformer":
        A, reader = m.t["embed.W_pos"], circuits.head(*p.reader_head, behind_norm=True)
    elif p.writer == "position":
        A = without_mean(m.positions) if circuits.centred else m.positions
    else:
        A = circuits.E if p.writer == "embedding" else circuits.head(*p.writer_head).OV
    if reader is None:
        B = without_mean(circuits.U, 0) if circuits.centred else circuits.U
    else:
        B = {"QK query": reader.QK, "QK key": reader.QK.T, "OV": reader.OV}[p.reader]
    product = np.linalg.svd(A @ B, compute_uv=False)
    close(result.norm, np.linalg.norm(product), "norm")
    close(result.relative, np.linalg.norm(product) / (np.linalg.norm(A) * np.linalg.norm(B)), "relative")
    close(result.baseline, 1 / np.sqrt(circuits.d), "baseline")
    k = min(len(product), len(result.singular_values))
    close(result.singular_values[:k], product[:k], "singular values", 1e-6)


@reference
def subspace_overlap(m: Model, own: Passed, p: Any, result: Any) -> None:
    circuits = Circuits(m)

    def space(head: Any, which: str) -> np.ndarray:
        matrix = {"writes": head.OV, "reads_q": head.QK.T, "reads_k": head.QK, "reads_v": head.OV.T}[which]
        _, values, rows = np.linalg.svd(matrix)
        return rows[values > 1e-9 * values[0]].T

    for one in circuits.heads():
        for other in circuits.heads():
            U, V = space(circuits.head(*one), p.left), space(circuits.head(*other), p.right)
            cosines = np.linalg.svd(U.T @ V, compute_uv=False)
            mean = (cosines**2).sum() / min(U.shape[1], V.shape[1])
            close(result.mean_cos2[*one, *other], mean, "mean_cos2")
            close(result.max_cos[*one, *other], cosines[0], "max_cos")
    for one in circuits.heads():
        close(result.weighted[:, *one], [_overlap(circuits, one, p.left, part) for part in range(5)], "weighted", 1e-6)


def _overlap(circuits: Circuits, at: tuple[int, int], which: str, part: int) -> float:
    """‖A Xᵀ‖ / (‖A‖ ‖X‖) of a head and W_E, W_pos, W_Uᵀ, W_inᵀ of the first MLP or W_out of the last; NaN without it."""
    m, c, layer = circuits.m, circuits.c, at[0]
    reading = which in ("reads_q", "reads_k")
    added = part == 1 and c.positions == "shortformer"
    if part == 1 and c.positions not in ("learned", "sinusoidal") and not (added and reading and m.acts(layer)):
        return np.nan
    if part > 2 and (c.attention_only or c.experts is not None):
        return np.nan
    head = circuits.head(*at, behind_norm=added)
    A = {"writes": head.OV, "reads_q": head.QK.T, "reads_k": head.QK, "reads_v": head.OV.T}[which]
    X = circuits.beside(part)
    return float(np.linalg.norm(A @ X.T) / (np.linalg.norm(A) * np.linalg.norm(X)))


@reference
def direct_path(m: Model, own: Passed, p: Any, result: Any) -> None:
    circuits = Circuits(m)
    whole = without_mean(circuits.E, 0) @ without_mean(circuits.U)
    if m.c.d_vocab == m.c.d_vocab_out:
        same = (whole * whole.T).sum() / (whole**2).sum()
        close(result.symmetry, same, "symmetry", 1e-6)


@reference
def bigram(m: Model, own: Passed, p: Any, result: Any) -> None:
    """The model without its layers and positions, on the token alone."""
    alone = m.unembedded((p.token,), m.t["embed.W_E"][[p.token]], [], m.t["embed.W_E"][[p.token]] * m.c.embed_scale)
    close(result.probabilities, np.sort(np.exp(alone.log_probs[0]))[::-1][: p.k], "probabilities")
    close(np.exp(alone.log_probs[0])[result.ids], result.probabilities, "ids")
