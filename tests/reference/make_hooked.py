"""Small `HookedTransformer`s as TransformerLens 3.9 saves and computes them: `hooked/NAME.pt` and `hooked/activations.npz`.

    python tests/reference/make_hooked.py          in an environment with transformer_lens 3.9

A file holds what people save: `{"model": state_dict, "cfg": cfg.to_dict()}`, buffers and all. The activations are of `TOKENS`:
logits [pos, d_vocab_out], patterns [layer · head, dest, src] and the streams before every block [layer, pos, d_model].
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).with_name("hooked")
TOKENS = (3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5)
SHAPE = {"n_layers": 2, "n_heads": 3, "d_model": 12, "d_head": 4, "d_vocab": 17, "n_ctx": 11, "seed": 1}
MLP = {"d_mlp": 20, "act_fn": "gelu"}
GATED = {"d_mlp": 20, "act_fn": "silu", "gated_mlp": True, "normalization_type": "RMS", "positional_embedding_type": "rotary"}
MODELS: dict[str, dict[str, Any]] = {
    "shortformer": {"attn_only": True, "positional_embedding_type": "shortformer", "normalization_type": "LN"},
    "attention": {"attn_only": True, "normalization_type": None, "use_attn_scale": False, "d_vocab_out": 5},
    "gelu": MLP,
    "solu": {**MLP, "act_fn": "solu_ln", "default_prepend_bos": False},
    "parallel": {
        **MLP,
        "parallel_attn_mlp": True,
        "positional_embedding_type": "rotary",
        "rotary_dim": 2,
        "rotary_adjacent_pairs": True,
    },
    "grouped": {**GATED, "n_key_value_heads": 1, "rotary_base": 500.0, "eps": 1e-3},
    "both": {
        **GATED,
        "use_normalization_before_and_after": True,
        "use_qk_norm": True,
        "attn_scores_soft_cap": 3.0,
        "output_logits_soft_cap": 4.0,
        "use_NTK_by_parts_rope": True,
        "NTK_original_ctx_len": 16,
    },
    "local": {
        **MLP,
        "use_local_attn": True,
        "attn_types": ["global", "local"],
        "window_size": 3,
        "scale_attn_by_inverse_layer_idx": True,
        "attn_scale": 1.5,
    },
}  # fmt: skip
AS_IT_IS = ("local",)
PROCESSED = ("shortformer", "solu")  # as `from_pretrained` gives models: norms folded, writing weights centred


def made(name: str) -> Any:
    """A random model whose every parameter counts: nothing is zero, nothing has mean 0."""
    import torch
    from transformer_lens import HookedTransformer, HookedTransformerConfig  # pyright: ignore[reportMissingImports]

    model = HookedTransformer(HookedTransformerConfig(**SHAPE, **MODELS[name], device="cpu"))
    torch.manual_seed(len(name))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter) + 0.1)
    if name in PROCESSED:
        model.load_and_process_state_dict(model.state_dict(), fold_value_biases=False)
    return model


def said(name: str, cfg: dict[str, Any]) -> dict[str, Any]:
    """The configuration as it is (with a torch dtype and numpy's numbers in it), or as plain values."""
    if name in AS_IT_IS:
        return cfg
    plain = {n: v.item() if isinstance(v, np.generic) else v for n, v in cfg.items()}
    return {n: v for n, v in plain.items() if v is None or isinstance(v, str | int | float | bool | list)}


def main() -> None:
    """Write the files."""
    import torch

    torch.set_grad_enabled(False)
    FOLDER.mkdir(exist_ok=True)
    result: dict[str, Any] = {}
    for name in MODELS:
        model = made(name)
        torch.save({"model": model.state_dict(), "cfg": said(name, model.cfg.to_dict())}, FOLDER / f"{name}.pt")
        logits, cache = model.run_with_cache(torch.tensor([TOKENS]))
        layers = range(model.cfg.n_layers)
        result[f"{name} logits"] = logits[0].numpy()
        result[f"{name} patterns"] = torch.cat([cache["pattern", i][0] for i in layers]).numpy()
        result[f"{name} streams"] = torch.stack([cache["resid_pre", i][0] for i in layers]).numpy()
    np.savez_compressed(FOLDER / "activations.npz", **result)
    print({f.name: f.stat().st_size for f in FOLDER.iterdir()})


if __name__ == "__main__":
    main()
