"""Models of TransformerLens as files: what the library saved, and the form that its author's own models have on the hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.reference.make_hooked import FOLDER


def held_in(name: str) -> dict[str, Any]:
    """What the library saved of one of `make_hooked.MODELS`."""
    return torch.load(FOLDER / f"{name}.pt", weights_only=name != "local")


def plain_values(config: dict[str, Any]) -> dict[str, Any]:
    """What of a configuration JSON can hold."""
    plain = {n: v.item() if isinstance(v, np.generic) else v for n, v in config.items()}
    return {n: v for n, v in plain.items() if v is None or isinstance(v, str | int | float | bool | list)}


def own_form(folder: Path, name: str, **changes: Any) -> Path:
    """The model as the author's repositories have theirs; a change to None takes a word out."""
    held = held_in(name)
    cfg = plain_values(held["cfg"])
    sizes = {n: cfg[n] for n in ("d_model", "n_layers", "n_heads", "d_head", "d_vocab", "n_ctx")}
    words = {
        **sizes, "d_mlp": cfg["d_mlp"] or 48, "act_fn": cfg["act_fn"] or "gelu", "attn_only": cfg["attn_only"],
        "normalization": cfg["normalization_type"], "ln_eps": cfg["eps"], "use_attn_scale": cfg["use_attn_scale"],
        "shortformer_pos": cfg["positional_embedding_type"] == "shortformer", "lr": 1e-3, "batch_size": 36, **changes,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({n: v for n, v in words.items() if v is not None or n == "normalization"}))
    torch.save(held["model"], folder / "model_final.pth")
    return folder


def letters(folder: Path) -> None:
    """A tokenizer of 16 letters and a BOS that its settings name, as those of the author's models do."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

    made = Tokenizer(models.BPE({letter: i for i, letter in enumerate("abcdefghijklmnop")}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.add_special_tokens([AddedToken("<|BOS|>", special=True)])
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<|BOS|>", "tokenizer_class": "GPTNeoXTokenizer"}))
