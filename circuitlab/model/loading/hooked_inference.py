"""The architecture of a TransformerLens-like state dict without a configuration, inferred from names, shapes and values.

What the tensors leave open is an assumption with a reason (`Assumed`), which the person may correct.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from circuitlab.errors import BadModel
from circuitlab.model.config import Activation, NormKind, Positions, Rotary
from circuitlab.model.loading.assumptions import Assumed
from circuitlab.model.loading.hooked_axes import Axes
from circuitlab.model.loading.hooked_config import ACTIVATIONS, NORMS, Architecture
from circuitlab.model.loading.hooked_names import Names
from circuitlab.model.loading.hooked_sizes import Sizes
from circuitlab.model.loading.huggingface import scale_note

_OF_A_TABLE = ("learned", "shortformer")  # positions that a stored table may stand for
_N_CTX = 2048  # where nothing shows how long prompts may be
_CENTRED = 1e-4  # largest mean of a row over the stream, relative to the weight's root mean square, that is taken for 0


def infer(names: Names, sizes: Sizes, file_axes: Axes, ask: Assumed) -> Architecture:
    """The architecture that the tensors show, completed by assumptions. Raises `BadModel`."""
    kind = _norm(names, file_axes, ask)
    norm, gains = NORMS[None if kind == "none" else kind]
    positions, rotary = _positions(names, sizes, ask)
    if sizes.n_layers:
        _causal(names, ask)
    scale = _score_scale(sizes, ask) if sizes.n_layers else 1.0
    qk = "blocks.0.attn.q_norm.w" in names
    parallel = sizes.d_mlp > 0 and ask.choice(
        "mlp_reads", "after attention", ("after attention", "beside attention"), "the usual order; parallel blocks read beside it"
    ) == "beside attention"  # fmt: skip
    return Architecture(
        positions=positions,
        norm=norm,
        gains=gains,
        n_ctx=_n_ctx(names, file_axes, ask),
        rotary=rotary,
        norm_eps=ask.number("norm_eps", 1e-5, "TransformerLens' default") if norm != "none" else 1e-5,
        both="blocks.0.ln1_post.w" in names,
        activation=_activation(names, sizes, norm, ask),
        parallel=parallel,
        qk_norm="rms" if qk else "none",
        score_scale=scale,
        prepend_bos=ask.choice("prepend_bos", "yes", ("yes", "no"), "TransformerLens' default") == "yes",
        notes=(scale_note(scale, sizes.d_head, "assumed"),) if sizes.n_layers else (),
    )


def _causal(names: Names, ask: Assumed) -> None:
    mask, why = _mask(names)
    if ask.choice("mask", mask, ("causal", "none"), why) != "causal":
        raise BadModel("The model does not attend causally.", expected="a mask that is causal", got="none")


def _norm(names: Names, file_axes: Axes, ask: Assumed) -> str:
    if "blocks.0.ln1.w" in names or "ln_final.w" in names:
        bias = "blocks.0.ln1.b" in names or "ln_final.b" in names
        kind, why = ("LN", "the file has gains and biases") if bias else ("RMS", "the file has gains without biases")
        return ask.choice("norm", kind, (kind,), why)
    centred = _writes_centred(names, file_axes)
    why = "no gains; all that is written to the stream is centred, as with a folded LayerNorm" if centred else "no gains"
    return ask.choice("norm", "LNPre" if centred else "none", ("none", "LNPre", "RMSPre"), why)


def _writes_centred(names: Names, file_axes: Axes) -> bool:
    """Whether the rows of W_E and of the first W_O have mean 0 over the stream."""

    def centred(name: str, which: str) -> bool:
        x = names.tensor(name).float()
        x = x.transpose(-1, -2) if which in file_axes.transposed else x
        rms = x.square().mean().sqrt()
        return bool(rms > 0) and float(x.mean(-1).abs().max() / rms) < _CENTRED

    writes = [("embed.W_E", "W_E"), *([("blocks.0.attn.W_O", "W_O")] if "blocks.0.attn.W_O" in names else [])]
    return all(centred(*w) for w in writes)


def _positions(names: Names, sizes: Sizes, ask: Assumed) -> tuple[Positions, Rotary | None]:
    if "pos_embed.W_pos" in names:
        kind = ask.choice("positions", "learned", _OF_A_TABLE, "the file has a table; added to the embedding, as usual")
        return ("shortformer" if kind == "shortformer" else "learned"), None
    if (rotary := _stored_rotary(names, sizes)) is not None:
        ask.choice("positions", "rotary", ("rotary",), "the file has tables of sines and cosines")
        return "rotary", rotary
    kind = ask.choice(
        "positions", "none", ("none", "rotary", "rotary_interleaved", "sinusoidal", "alibi"), "no table in the file"
    )
    without_rotation: dict[str, Positions] = {"none": "none", "sinusoidal": "sinusoidal", "alibi": "alibi"}
    if kind in without_rotation:
        return without_rotation[kind], None
    base = ask.number("rotary_base", 10000.0, "the usual one")
    dims = ask.size("rotary_dims", sizes.d_head, "all columns of a head")
    pairs = "interleaved" if kind == "rotary_interleaved" else "half"
    return "rotary", Rotary(base, pairs, 0 if dims == sizes.d_head else dims)


def _stored_rotary(names: Names, sizes: Sizes) -> Rotary | None:
    """The rotation that stored tables of sines and cosines show, None without them."""
    at = "blocks.0.attn.rotary_"
    if f"{at}sin" not in names or f"{at}cos" not in names:
        return None
    sin, cos = names.tensor(f"{at}sin").double(), names.tensor(f"{at}cos").double()
    if sin.dim() != 2 or sin.shape != cos.shape or len(sin) < 2 or sin.shape[1] % 2 or sin.shape[1] > sizes.d_head:
        raise BadModel("The rotary tables cannot be read.", expected=f"[n_ctx, ≤ {sizes.d_head}]", got=str(tuple(sin.shape)))
    angle = torch.atan2(sin[1], cos[1])  # of position 1
    dims = sin.shape[1]
    adjacent = torch.equal(angle[0::2], angle[1::2])
    theta = angle[0::2] if adjacent else angle[: dims // 2]
    plain = Rotary(_base(theta, dims), "interleaved" if adjacent else "half", 0 if dims == sizes.d_head else dims)
    expected = torch.tensor(plain.frequencies(sizes.d_head), dtype=torch.float64)
    if torch.allclose(theta, expected, rtol=1e-4, atol=1e-9):
        return plain
    return Rotary(plain.base, plain.pairs, plain.dims, tuple(theta.tolist()))


def _base(theta: Tensor, dims: int) -> float:
    """The base of which the frequencies are powers, rounded to a whole number."""
    return 10000.0 if dims < 4 else float(round(float(theta[1]) ** (-dims / 2)))


def _mask(names: Names) -> tuple[str, str]:
    stored = "blocks.0.attn.mask"
    try:
        mask = names.tensor(stored).bool() if stored in names and math.prod(names.shape(stored)) else None
    except BadModel:  # a mask of booleans is no weight, and is not read
        mask = None
    if mask is None:
        return "causal", "TransformerLens' default"
    causal = mask.dim() == 2 and bool((mask == torch.ones_like(mask).tril()).all())
    return ("causal" if causal else "none"), "the stored mask"


def _n_ctx(names: Names, file_axes: Axes, ask: Assumed) -> int:
    if "pos_embed.W_pos" in names:
        shape = names.shape("pos_embed.W_pos")
        return shape[1] if "W_pos" in file_axes.transposed else shape[0]
    for table in ("blocks.0.attn.rotary_sin", "blocks.0.attn.mask"):
        if table in names and names.shape(table)[:1] > (0,):
            return names.shape(table)[0]
    return ask.size("n_ctx", _N_CTX, "nothing shows how long prompts may be")


def _score_scale(sizes: Sizes, ask: Assumed) -> float:
    text = ask.text("score_scale", "1/√d_head", ("1/√d_head", "1"), "the usual scale; any number also works")
    if text in ("1/√d_head", "1/sqrt(d_head)"):
        return 1 / math.sqrt(sizes.d_head)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value == 0:
        raise BadModel("The score scale cannot be read.", expected="1/√d_head, or a number that is not 0", got=text[:60])
    return value


def _activation(names: Names, sizes: Sizes, norm: NormKind, ask: Assumed) -> Activation:
    if not sizes.d_mlp:
        return "gelu"
    if "blocks.0.mlp.ln.w" in names:
        return ACTIVATIONS[ask.choice("activation", "solu_ln", ("solu_ln",), "the file has a norm of the neurons")]
    gated = "blocks.0.mlp.W_gate" in names
    default = "silu" if gated else "relu" if norm == "none" else "gelu_new"
    why = "usual with a gate" if gated else "usual in models without norms" if norm == "none" else "GPT-2's"
    activations = tuple(dict.fromkeys(ACTIVATIONS.values()))
    return ACTIVATIONS[ask.choice("activation", default, tuple(k for k in activations if not (gated and k == "solu_ln")), why)]
