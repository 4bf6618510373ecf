"""What TransformerLens 3.9 (`HookedTransformer`) says of small random models and of a prompt in them: `transformer_lens.npz`.

    python tests/reference/make_transformer_lens.py          in an environment with transformer_lens 3.9

Weights come from a seed, by numpy, under CircuitLab's names; the test makes the same ones and does not need the library. "plain":
as they are; "processed": norms folded, writing weights and unembedding centred, as the library does when it loads a model. Of the
weights: composition scores and eigenvalues. Of the prompt, by the library's own cache, hooks and patching grids: `run_arrays`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).with_name("transformer_lens.npz")
SHAPE = {"n_heads": 4, "d_model": 32, "d_head": 8, "d_vocab": 60, "n_ctx": 16}
MODELS: dict[str, dict[str, Any]] = {
    "attention-only": {**SHAPE, "n_layers": 2, "positions": "none"},
    "gpt2": {
        **SHAPE,
        "n_layers": 3,
        "d_mlp": 48,
        "activation": "gelu_new",
        "norm": "layer",
        "biases": ("q", "k", "v", "o", "mlp"),
    },
    "grouped-query": {**SHAPE, "n_layers": 2, "n_kv_heads": 2, "norm": "rms", "positions": "rotary"},
}
STATES = ("plain", "processed")

_BLOCK = (17, 4, 52, 9, 33, 26, 41)
TOKENS = (*_BLOCK, *_BLOCK)  # a block twice, so that every score of a pattern has destinations
OTHER = (*_BLOCK, 17, 8, 52, 9, 50, 26, 41)  # the prompt that is patched from: two tokens of the second block differ
PAIR = (12, 47)  # the target: the logit of the first minus that of the second


def shapes(c: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Every tensor of a model, by CircuitLab's names."""
    d, n, h, kv, norm = c["d_model"], c["d_head"], c["n_heads"], c.get("n_kv_heads", c["n_heads"]), c.get("norm")
    result: dict[str, tuple[int, ...]] = {"embed.W_E": (c["d_vocab"], d), "unembed.W_U": (d, c["d_vocab"])}
    if "positions" not in c:
        result["embed.W_pos"] = (c["n_ctx"], d)
    parts = {"layer": ("gain", "bias"), "rms": ("gain",), None: ()}[norm]
    for i in range(c["n_layers"]):
        at = f"layers.{i}."
        result |= {f"{at}W_Q": (h, d, n), f"{at}W_K": (kv, d, n), f"{at}W_V": (kv, d, n), f"{at}W_O": (h, n, d)}
        result |= {f"{at}attn_norm.{part}": (d,) for part in parts}
        if "biases" in c:
            result |= {f"{at}b_Q": (h, n), f"{at}b_K": (kv, n), f"{at}b_V": (kv, n), f"{at}b_O": (d,)}
        if "d_mlp" in c:
            result |= {f"{at}mlp.W_in": (d, c["d_mlp"]), f"{at}mlp.W_out": (c["d_mlp"], d)}
            result |= {f"{at}mlp.b_in": (c["d_mlp"],), f"{at}mlp.b_out": (d,)}
            result |= {f"{at}mlp_norm.{part}": (d,) for part in parts}
    return result | {f"unembed.norm.{part}": (d,) for part in parts}


def weights(name: str) -> dict[str, np.ndarray]:
    """Random float32 tensors of a model; nothing has mean 0, so that centring counts."""
    rng = np.random.default_rng(sorted(MODELS).index(name))
    return {
        n: (rng.standard_normal(s) * 0.3 + (n.endswith("gain") or 0.1)).astype(np.float32)
        for n, s in shapes(MODELS[name]).items()
    }


RENAMED = {"embed.W_E": "embed.W_E", "embed.W_pos": "pos_embed.W_pos", "unembed.W_U": "unembed.W_U"}
RENAMED |= {"unembed.norm.gain": "ln_final.w", "unembed.norm.bias": "ln_final.b"}
IN_LAYER = {"attn_norm.gain": "ln1.w", "attn_norm.bias": "ln1.b", "mlp_norm.gain": "ln2.w", "mlp_norm.bias": "ln2.b"}


def renamed(name: str, grouped: bool) -> str:
    """CircuitLab's name of a tensor as the library's."""
    if not name.startswith("layers."):
        return RENAMED[name]
    _, layer, rest = name.split(".", 2)
    if rest in IN_LAYER or rest.startswith("mlp."):
        return f"blocks.{layer}.{IN_LAYER.get(rest, rest)}"
    return f"blocks.{layer}.attn.{'_' if grouped and rest[-1] in 'KV' else ''}{rest}"


def library_model(name: str, processed: bool) -> Any:
    """A float64 `HookedTransformer` with these weights."""
    import torch
    from transformer_lens import HookedTransformer, HookedTransformerConfig  # pyright: ignore[reportMissingImports]

    c = MODELS[name]
    grouped, norm = "n_kv_heads" in c, {"layer": "LN", "rms": "RMS", None: None}[c.get("norm")]
    config = HookedTransformerConfig(
        **SHAPE,
        n_layers=c["n_layers"],
        d_mlp=c.get("d_mlp"),
        attn_only="d_mlp" not in c,
        act_fn="gelu_new",
        normalization_type=norm,
        n_key_value_heads=c.get("n_kv_heads"),
        positional_embedding_type="rotary" if grouped else "standard",
        rotary_dim=c["d_head"] if grouped else None,
        dtype=torch.float64,
        device="cpu",
    )
    model = HookedTransformer(config)
    state = dict(model.state_dict())
    given = {renamed(n, grouped): torch.from_numpy(v.astype(np.float64)) for n, v in weights(name).items()}
    if c.get("positions") == "none":
        given["pos_embed.W_pos"] = torch.zeros(c["n_ctx"], c["d_model"], dtype=torch.float64)
    assert set(given) <= set(state), sorted(set(given) - set(state))
    model.load_and_process_state_dict(
        state | given,
        fold_ln=processed and norm is not None,
        center_writing_weights=processed and norm == "LN",
        center_unembed=processed,
        fold_value_biases=False,
    )
    return model


def attributions(model: Any, cache: Any, tokens: Any) -> dict[str, Any]:
    """`logit_attrs` of every head [layer · head, pos] and of every other part [component, pos], and the parts' names.

    Where a norm's gain is not folded in, the library leaves it out: then nothing is said.
    """
    if model.cfg.normalization_type in ("LN", "RMS"):
        return {}
    import torch

    stack, names = cache.get_full_resid_decomposition(expand_neurons=False, return_labels=True)
    values = cache.logit_attrs(stack, tokens=PAIR[0], incorrect_tokens=PAIR[1])[:, 0]
    follows = torch.cat([tokens[:, 1:], tokens.new_tensor([[PAIR[0]]])], dim=1)
    own = cache.logit_attrs(stack, tokens=follows)[:, 0]
    return {"attribution": values, "attribution own": own, "attribution names": np.array(names)}


def lens(model: Any, cache: Any) -> dict[str, Any]:
    """Log-probabilities [layer + 1, pos, d_vocab] of the streams: final norm on their own statistics, or the last one's."""
    stack = cache.accumulated_resid(layer=-1, incl_mid=False, apply_ln=False)
    words = {"lens": cache.apply_ln_to_stack(stack, layer=-1, recompute_ln=True)[:, 0]}
    if model.cfg.normalization_type not in ("LN", "RMS"):
        words["lens at the last scale"] = cache.apply_ln_to_stack(stack, layer=-1)[:, 0]
    return {name: (x @ model.W_U + model.b_U).log_softmax(-1) for name, x in words.items()}


def ablated(model: Any, tokens: Any) -> dict[str, Any]:
    """Losses [layer, head, pos − 1] without each head's z, and without those of pairs of heads of different layers."""
    import torch

    c = model.cfg
    zero = lambda head: lambda z, hook: torch.cat([z[:, :, :head], 0 * z[:, :, head : head + 1], z[:, :, head + 1 :]], dim=2)
    hook = lambda layer, head: (f"blocks.{layer}.attn.hook_z", zero(head))
    loss = lambda hooks: model.run_with_hooks(tokens, return_type="loss", loss_per_token=True, fwd_hooks=hooks)[0]
    each = [torch.stack([loss([hook(i, h)]) for h in range(c.n_heads)]) for i in range(c.n_layers)]
    pairs = [loss([hook(0, h), hook(c.n_layers - 1, h)]) for h in range(c.n_heads)]
    return {"loss": loss([]), "ablated": torch.stack(each), "ablated pairs": torch.stack(pairs)}


def patched(model: Any, cache: Any, tokens: Any, other: Any) -> dict[str, Any]:
    """The target's logit difference at the last position: [layer, pos] for streams, [layer, pos, head] for heads."""
    from transformer_lens import patching  # pyright: ignore[reportMissingImports]

    difference = lambda logits: logits[0, -1, PAIR[0]] - logits[0, -1, PAIR[1]]
    return {
        "patched resid_pre": patching.get_act_patch_resid_pre(model, tokens, cache, difference),
        "patched z": patching.get_act_patch_attn_head_out_by_pos(model, tokens, cache, difference),
        "difference": difference(model(tokens)),
        "difference other": difference(model(other)),
    }


def run_arrays(model: Any) -> dict[str, np.ndarray]:
    """Everything about the prompt, float32."""
    import torch

    torch.set_grad_enabled(False)
    tokens, other = torch.tensor([TOKENS]), torch.tensor([OTHER])
    _, cache = model.run_with_cache(tokens)
    _, there = model.run_with_cache(other)
    result = {
        "patterns": torch.cat([cache["pattern", i] for i in range(model.cfg.n_layers)]),
        **lens(model, cache),
        **ablated(model, tokens),
        **patched(model, there, tokens, other),
        **attributions(model, cache, tokens),
    }
    return {name: v if isinstance(v, np.ndarray) else v.numpy().astype(np.float32) for name, v in result.items()}


def main() -> None:
    """Write the file."""
    result = {}
    for name in MODELS:
        for state in STATES:
            model = library_model(name, state == "processed")
            for kind in "QKV":
                result[f"{name} {state} {kind}"] = model.all_composition_scores(kind).detach().numpy()
            full_ov = model.W_E @ model.OV @ model.W_U
            full_qk = model.W_E @ model.QK @ model.W_E.T
            for matrix, value in (("OV", full_ov), ("QK", full_qk), ("bare OV", model.OV), ("bare QK", model.QK)):
                result[f"{name} {state} {matrix}"] = value.eigenvalues.detach().numpy()
            result |= {f"{name} {state} {what}": array for what, array in run_arrays(model).items()}
    np.savez_compressed(FILE, **result)
    print(f"{FILE.name}: {len(result)} arrays, {FILE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
