"""Changes of the weights that no logit notices: each takes a configuration and tensors to other tensors, or to None: no place.

logits alike       W_U + v ⊗ 1: every logit of a position moves by the same, and no probability
QK gauge           W_Q S, W_K S⁻ᵀ for each key-value head, S commuting with the rotation where there is one
OV gauge           W_V N, N⁻¹ W_O
writes along 1     everything that writes to the stream + a ⊗ 1, where LayerNorms alone read it
reads along 1      what reads a LayerNorm + (1/gain) ⊗ u, its bias less what the norm's bias makes of that
rotation           the stream turned (for LayerNorm by rotations that leave 1 alone), gains going into what reads
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.zoo.forward import Tensors

READERS, ROUTING = ("W_Q", "W_K", "W_V"), ("mlp.router", "mlp.shared_gate")


def _near_one(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.eye(n) + 0.3 * rng.normal(size=(n, n)) / np.sqrt(n)


def _turn(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.linalg.qr(rng.normal(size=(n, n)))[0]


def _layers(c: Any, t: Tensors, names: tuple[str, ...]) -> list[str]:
    """The full names of those tensors of all layers that there are."""
    return [full for i in range(c.n_layers) for name in names if (full := f"layers.{i}.{name}") in t]


def _mlp(c: Any, t: Tensors, names: tuple[str, ...]) -> list[str]:
    """The same of the MLPs, of experts and of the shared one."""
    places = ["mlp", *(f"mlp.experts.{e}" for e in range(c.experts.n if c.experts else 0)), "mlp.shared"]
    return _layers(c, t, tuple(f"{at}.{name}" for at in places for name in names))


def logits_alike(c: Any, t: Tensors, rng: np.random.Generator) -> Tensors | None:
    if c.tied or c.logit_soft_cap:
        return None
    changed = t | {"unembed.W_U": t["unembed.W_U"] + rng.normal(size=(c.d_model, 1))}
    return changed | ({"unembed.b_U": t["unembed.b_U"] + 0.7} if "unembed.b_U" in t else {})


def _commuting(c: Any, rng: np.random.Generator) -> np.ndarray:
    """[d_head, d_head] that commutes with every rotation of the model: each pair turned and scaled, the rest anything."""
    if c.positions != "rotary":
        return _near_one(rng, c.d_head)
    S, dims = np.eye(c.d_head), c.rotary.dims or c.d_head
    S[dims:, dims:] = _near_one(rng, c.d_head - dims) if dims < c.d_head else 1.0
    for i in range(dims // 2):
        a, b = (2 * i, 2 * i + 1) if c.rotary.pairs == "interleaved" else (i, i + dims // 2)
        size, angle = rng.uniform(0.7, 1.4), rng.uniform(0, 6)
        S[a, a] = S[b, b] = size * np.cos(angle)
        S[a, b], S[b, a] = size * np.sin(angle), -size * np.sin(angle)
    return S


def _gauge(c: Any, t: Tensors, kinds: tuple[str, str], make: Callable[[], np.ndarray]) -> Tensors:
    changed, group = dict(t), c.n_heads // c.n_kv_heads
    for i in range(c.n_layers):
        for kv in range(c.n_kv_heads):
            S = make()
            inverse = np.linalg.inv(S)
            mine = slice(kv * group, (kv + 1) * group)
            for name in kinds:
                for which in (f"layers.{i}.W_{name}", f"layers.{i}.b_{name}"):
                    if which in t and name != "O":
                        changed[which] = changed[which].copy()
                        rows = mine if name == "Q" else slice(kv, kv + 1)
                        changed[which][rows] = changed[which][rows] @ (inverse.T if name == "K" else S)
            if "O" in kinds:
                changed[f"layers.{i}.W_O"] = changed[f"layers.{i}.W_O"].copy()
                changed[f"layers.{i}.W_O"][mine] = inverse @ changed[f"layers.{i}.W_O"][mine]
    return changed


def qk_gauge(c: Any, t: Tensors, rng: np.random.Generator) -> Tensors | None:
    if not c.n_layers or c.qk_norm != "none" or c.rotary_windowed is not None:
        return None
    return _gauge(c, t, ("Q", "K"), lambda: _commuting(c, rng))


def ov_gauge(c: Any, t: Tensors, rng: np.random.Generator) -> Tensors | None:
    return _gauge(c, t, ("V", "O"), lambda: _near_one(rng, c.d_head)) if c.n_layers else None


def writes_along_one(c: Any, t: Tensors, rng: np.random.Generator) -> Tensors | None:
    if c.norm != "layer" or c.norm_placement != "pre" or not c.final_norm:
        return None
    writers = [*_layers(c, t, ("W_O", "b_O")), *_mlp(c, t, ("W_out", "b_out"))]
    writers += ["embed.W_E"] * (not c.tied) + ["embed.W_pos"] * (c.positions == "learned")
    return t | {name: t[name] + rng.normal(size=(*t[name].shape[:-1], 1)) for name in writers}


def _reads(c: Any, t: Tensors) -> list[tuple[str, str, str]]:
    """(weight, its bias, the norm that it reads) of all that read a norm before a sublayer or the last one."""
    result = list[tuple[str, str, str]]()
    for i in range(c.n_layers):
        attention = [] if c.positions == "shortformer" else [("W_Q", "b_Q"), ("W_K", "b_K")]
        result += [(f"layers.{i}.{W}", f"layers.{i}.{b}", f"layers.{i}.attn_norm") for W, b in [*attention, ("W_V", "b_V")]]
        for W, b in (("W_in", "b_in"), ("W_gate", "b_gate")):
            result.append((f"layers.{i}.mlp.{W}", f"layers.{i}.mlp.{b}", f"layers.{i}.mlp_norm"))
    return [*result, ("unembed.W_U", "unembed.b_U", "unembed.norm")]


def reads_along_one(c: Any, t: Tensors, rng: np.random.Generator) -> Tensors | None:
    if c.norm != "layer":
        return None
    changed = dict(t)
    for W, b, norm in _reads(c, t):
        if W not in t or b not in t or f"{norm}.gain" not in t:
            continue
        u = rng.normal(size=(*t[W].shape[:-2], 1, t[W].shape[-1]))
        changed[W] = t[W] + (1 / t[f"{norm}.gain"])[:, None] * u
        changed[b] = t[b] - (t[f"{norm}.bias"] / t[f"{norm}.gain"]).sum() * u[..., 0, :]
    return changed if any(changed[name] is not t[name] for name in t) else None


def _without_gains(c: Any, t: Tensors) -> Tensors:
    """Gains of the norms before sublayers and of the last one in what reads after them; biases divided by them."""
    changed, norms = dict(t), dict[str, list[str]]()
    for i in range(c.n_layers):
        norms[f"layers.{i}.attn_norm"] = [f"layers.{i}.{W}" for W in READERS]
        every = _mlp(c, t, ("W_in", "W_gate")) + _layers(c, t, ROUTING)
        norms[f"layers.{i}.mlp_norm"] = [name for name in every if name.startswith(f"layers.{i}.")]
    norms["unembed.norm"] = ["unembed.W_U"]
    for norm, readers in norms.items():
        if (gain := t.get(f"{norm}.gain")) is not None:
            changed |= {name: t[name] * gain[:, None] for name in readers} | {f"{norm}.gain": np.ones_like(gain)}
            if f"{norm}.bias" in t:
                changed[f"{norm}.bias"] = t[f"{norm}.bias"] / gain
    return changed


def rotation(c: Any, t: Tensors, rng: np.random.Generator) -> Tensors | None:
    normed = c.norm != "none"
    if c.tied or c.positions == "sinusoidal" or (normed and (c.norm_placement != "pre" or c.positions == "shortformer")):
        return None
    turn = _turn(rng, c.d_model)
    if c.norm == "layer":  # in a basis whose first vector is along 1
        basis = np.linalg.qr(np.column_stack([np.ones(c.d_model), rng.normal(size=(c.d_model, c.d_model - 1))]))[0]
        inner = np.eye(c.d_model)
        inner[1:, 1:] = _turn(rng, c.d_model - 1)
        turn = basis @ inner @ basis.T
    changed = _without_gains(c, t)
    biases = ["unembed.norm.bias", *_layers(c, t, ("attn_norm.bias", "mlp_norm.bias"))]  # in the basis of the stream
    written = ["embed.W_E", "embed.W_pos", *_layers(c, t, ("W_O", "b_O")), *_mlp(c, t, ("W_out", "b_out")), *biases]
    read = [*_layers(c, t, (*READERS, *ROUTING)), *_mlp(c, t, ("W_in", "W_gate")), "unembed.W_U"]
    changed |= {name: changed[name] @ turn for name in written if name in t}
    return changed | {name: turn.T @ changed[name] for name in read}


INVARIANCES: dict[str, Callable[[Any, Tensors, np.random.Generator], Tensors | None]] = {
    "logits alike": logits_alike,
    "QK gauge": qk_gauge,
    "OV gauge": ov_gauge,
    "writes along 1": writes_along_one,
    "reads along 1": reads_along_one,
    "rotation": rotation,
}


def changed(name: str, config: Any, tensors: Tensors) -> Tensors | None:
    """The tensors after one of `INVARIANCES`; None where it has no place in this model."""
    return INVARIANCES[name](config, tensors, np.random.default_rng(5))
