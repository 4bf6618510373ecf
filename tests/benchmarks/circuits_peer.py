"""TransformerLens' side of the benchmarks of activation circuits: its own cache and hooks, in an environment that has it.

    python tests/benchmarks/circuits_peer.py '{"what": …, "path": …, …}'         prints JSON, writes arrays to `out`

Knows nothing of CircuitLab. The model is a Hugging Face GPT-2 directory whose norms have gain 1 and bias 0, so that 3.9, which
leaves a gain out of attributions where it is not folded in, says the same.
"""

from __future__ import annotations

import ctypes
import gc
import importlib.metadata
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

VERSION = importlib.metadata.version("transformer-lens")


def load(path: str) -> Any:
    """The model as 3.9 (`HookedTransformer`) or 4 (`TransformerBridge`) holds it."""
    from transformers import GPT2LMHeadModel

    hf = GPT2LMHeadModel.from_pretrained(path)
    if not VERSION.startswith("3"):
        from transformer_lens.model_bridge import TransformerBridge  # pyright: ignore[reportMissingImports]

        return TransformerBridge.boot_transformers(path, hf_model=hf, tokenizer=None, device="cpu")
    from transformer_lens import HookedTransformer, HookedTransformerConfig  # pyright: ignore[reportMissingImports]
    from transformer_lens.pretrained.weight_conversions import convert_gpt2_weights  # pyright: ignore[reportMissingImports]

    c = hf.config
    config = HookedTransformerConfig(
        n_layers=c.n_layer,
        d_model=c.n_embd,
        n_ctx=c.n_positions,
        d_head=c.n_embd // c.n_head,
        n_heads=c.n_head,
        d_mlp=4 * c.n_embd,
        d_vocab=c.vocab_size,
        act_fn="gelu_new",
        normalization_type="LN",
        eps=c.layer_norm_epsilon,
        original_architecture="GPT2LMHeadModel",
    )
    model = HookedTransformer(config)
    model.load_state_dict(convert_gpt2_weights(hf, config), strict=False)
    return model.eval()


def status(name: str) -> int:
    """Bytes of one line of this process' status."""
    return next(int(line.split()[1]) * 1024 for line in Path("/proc/self/status").open() if line.startswith(name))


def measured(call: Callable[[], Any]) -> tuple[Any, float, int]:
    """(what it gives, seconds, bytes of resident memory beyond what stood before)."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    base, began = status("VmRSS"), time.perf_counter()
    result = call()
    return result, time.perf_counter() - began, status("VmHWM") - base


def hook_z(layer: int) -> str:
    """The hook point of z [batch, pos, head, d_head]."""
    return f"blocks.{layer}.attn.hook_z"


def ablation(model: Any, o: dict[str, Any]) -> dict[str, Any]:
    """Losses of every token without each of `heads`, one hooked forward pass each; with `half`, logits of the last half only."""
    ids = torch.tensor([o["tokens"]])
    half = len(o["tokens"]) // 2

    def zeroed(head: int) -> Callable[..., Any]:
        def hook(z: torch.Tensor, hook: Any) -> torch.Tensor:
            z[:, :, head] = 0
            return z

        return hook

    def every(layer: int, head: int) -> torch.Tensor:
        return model.run_with_hooks(ids, return_type="loss", loss_per_token=True, fwd_hooks=[(hook_z(layer), zeroed(head))])[0]

    def last_half(layer: int, head: int) -> torch.Tensor:
        before = "ln_final.hook_normalized" if VERSION.startswith("3") else "unembed.hook_in"
        cut = (before, lambda x, hook: x[:, half:-1])
        logits = model.run_with_hooks(ids, return_type="logits", fwd_hooks=[(hook_z(layer), zeroed(head)), cut])
        return F.cross_entropy(logits[0], ids[0, half + 1 :], reduction="none")

    once = last_half if o["half"] else every
    once(0, 0)
    began = time.perf_counter()
    result = torch.stack([once(layer, head) for layer, head in o["heads"]])
    seconds = time.perf_counter() - began
    np.save(o["out"], result.numpy())
    return {"seconds": seconds}


def attribution(model: Any, o: dict[str, Any]) -> dict[str, Any]:
    """Every head's part of a logit difference at every position, from a cache that is there already."""
    _, cache = model.run_with_cache(torch.tensor([o["tokens"]]))
    a, b = o["pair"]

    def once() -> torch.Tensor:
        own = type(cache)(dict(cache.cache_dict), model)  # heads' results stay in a cache once they have been made
        return own.logit_attrs(own.stack_head_results(layer=-1), tokens=a, incorrect_tokens=b)

    result, times, extra = once(), [], 0
    np.save(o["out"], result[:, 0].numpy())
    del result
    for _ in range(o["rounds"]):
        _, seconds, extra = measured(once)
        times.append(seconds)
    return {"seconds": sorted(times)[len(times) // 2], "extra": extra}


def patching(model: Any, o: dict[str, Any]) -> dict[str, Any]:
    """A logit difference at the last position with z of each of `heads` at each position from the other prompt."""
    ids, other, (a, b) = torch.tensor([o["tokens"]]), torch.tensor([o["other"]]), o["pair"]
    names = {hook_z(layer) for layer, _ in o["heads"]}
    _, there = model.run_with_cache(other, names_filter=lambda name: name in names)

    def once(layer: int, head: int, pos: int) -> torch.Tensor:
        def hook(z: torch.Tensor, hook: Any) -> torch.Tensor:
            z[:, pos, head] = there[hook_z(layer)][:, pos, head]
            return z

        logits = model.run_with_hooks(ids, return_type="logits", fwd_hooks=[(hook_z(layer), hook)])
        return logits[0, -1, a] - logits[0, -1, b]

    once(0, 0, 0) if hook_z(0) in names else once(*o["heads"][0], 0)
    began = time.perf_counter()
    grid = torch.stack([torch.stack([once(*head, pos) for pos in range(ids.shape[1])]) for head in o["heads"]])
    seconds = time.perf_counter() - began
    np.save(o["out"], grid.numpy())
    return {"seconds": seconds}


def scores_of(pattern: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """[score, batch, head] of a layer's patterns [batch, head, dest, src] of ids [batch, pos]: the definitions, in batch."""
    n = ids.shape[1]
    causal = torch.ones(n, n, dtype=torch.bool).tril()
    same = ids[:, :, None] == ids[:, None, :]
    follows = torch.zeros_like(same)
    follows[:, :, 1:] = same[:, :, :-1]

    def mass(mask: torch.Tensor) -> torch.Tensor:
        rows = mask.any(-1)[:, None]
        return (pattern * mask[:, None]).sum(-1).mul(rows).sum(-1) / rows.sum(-1)

    back = (torch.arange(n)[:, None] - torch.arange(n)[None, :]).clamp(min=0)
    return torch.stack(
        [
            mass(follows & causal),
            pattern.diagonal(-1, -2, -1).mean(-1),
            mass(same & causal.tril(-1)),
            pattern[..., 1:, 0].mean(-1),
            pattern.diagonal(0, -2, -1)[..., 1:].mean(-1),
            torch.special.entr(pattern).sum(-1).mean(-1),
            (pattern * back).sum(-1).mean(-1),
        ]
    )


def head_scores(model: Any, o: dict[str, Any]) -> dict[str, Any]:
    """Means over the batch of seven scores [score, layer, head], from the cached patterns of one batched pass without logits."""
    ids = torch.from_numpy(np.load(o["batch"]))
    wanted = lambda name: name.endswith("attn.hook_pattern")

    def once() -> torch.Tensor:
        _, cache = model.run_with_cache(ids, return_type=None, names_filter=wanted)
        layers = range(model.cfg.n_layers)
        return torch.stack([scores_of(cache[f"blocks.{i}.attn.hook_pattern"], ids).mean(1) for i in layers], dim=1)

    found, times, extra = once(), [], 0
    np.save(o["out"], found.numpy())
    for _ in range(o["rounds"]):
        _, seconds, extra = measured(once)
        times.append(seconds)
    return {"seconds": sorted(times)[len(times) // 2], "extra": extra}


if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    torch.set_num_threads(options["threads"])
    torch.set_grad_enabled(False)
    work = {"ablation": ablation, "attribution": attribution, "patching": patching, "head_scores": head_scores}
    print(json.dumps({**work[options["what"]](load(options["path"]), options), "version": VERSION}))
