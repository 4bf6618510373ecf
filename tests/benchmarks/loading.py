"""Opening a GPT-2-small-shaped file: seconds and peak memory beside `transformers` and TransformerLens on the same file."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

from tests.benchmarks.common import PEAK, THREADS, Row, child, gpt2_small, ratio
from tests.benchmarks.forward import peer_python

_TIMED = (
    PEAK
    + """
import gc, json, sys, time
def measured(load, look, rounds):
    look(load()); gc.collect()
    opened, looked = [], []
    for _ in range(rounds):
        began = time.perf_counter()
        model = load()
        opened.append(time.perf_counter() - began)
        look(model)
        looked.append(time.perf_counter() - began)
        del model
        gc.collect()
    peak_reset(); base = rss()
    model = load()
    first = peak() - base
    look(model)
    print(json.dumps(dict(seconds=min(opened), looked=min(looked), peak=first, peak_looked=peak() - base)))
"""
)

OURS = (
    _TIMED
    + """
import torch
torch.set_num_threads(int(sys.argv[2]))
from circuitlab.engine.store import ModelStore, reference
from circuitlab.model.forward import forward
from circuitlab.model.subject import Conventions
raw = Conventions(fold_norm=False, centre=False)
load = lambda: ModelStore().open(reference(sys.argv[1]))
measured(load, lambda model: forward(model.weights(raw), tuple(range(1, 17))).logits(), int(sys.argv[3]))
"""
)

TRANSFORMERS = (
    _TIMED
    + """
import torch
torch.set_num_threads(int(sys.argv[2]))
from transformers import GPT2LMHeadModel
from transformers.utils import logging
logging.set_verbosity_error(); logging.disable_progress_bar()
ids = torch.arange(1, 17)[None]
torch.set_grad_enabled(False)
measured(lambda: GPT2LMHeadModel.from_pretrained(sys.argv[1]), lambda model: model(ids).logits, int(sys.argv[3]))
"""
)

LENS = (
    _TIMED
    + """
import torch
torch.set_num_threads(int(sys.argv[2]))
torch.set_grad_enabled(False)
from transformers import GPT2LMHeadModel
from transformers.utils import logging
logging.set_verbosity_error(); logging.disable_progress_bar()
from transformer_lens import HookedTransformer, HookedTransformerConfig
from transformer_lens.pretrained.weight_conversions import convert_gpt2_weights
cfg = HookedTransformerConfig(n_layers=12, d_model=768, n_ctx=1024, d_head=64, n_heads=12, d_mlp=3072, d_vocab=50257,
    act_fn='gelu_new', normalization_type='LN', eps=1e-5, original_architecture='GPT2LMHeadModel')
def load():
    model = HookedTransformer(cfg)
    model.load_state_dict(convert_gpt2_weights(GPT2LMHeadModel.from_pretrained(sys.argv[1]), cfg), strict=False)
    return model
ids = torch.arange(1, 17)[None]
measured(load, lambda model: model(ids), int(sys.argv[3]))
"""
)


def rows(quick: bool) -> list[Row]:
    """Ratios of the fastest of several rounds, every side in fresh processes that have read the file before."""
    path, rounds, processes = gpt2_small(), 3 if quick else 7, 1 if quick else 3
    size = (path / "model.safetensors").stat().st_size
    words = (str(path), str(THREADS), str(rounds))
    sides = {
        "transformers.from_pretrained": _best([child(TRANSFORMERS, *words) for _ in range(processes)]),
        "TransformerLens 3.9.0": _best([child(LENS, *words, python=peer_python(3)) for _ in range(processes)]),
    }
    ours, out = _best([child(OURS, *words) for _ in range(processes)]), []
    for name, theirs in sides.items():
        note = f" ({1000 * ours['seconds']:.0f} / {1000 * theirs['seconds']:.0f} ms)"
        out.append(ratio("opening GPT-2 small's shape", name, ours["seconds"] / theirs["seconds"], 1, note))
        note = f" ({1000 * ours['looked']:.0f} / {1000 * theirs['looked']:.0f} ms; peaks {_of(ours, size)} / {_of(theirs, size)})"
        row = ratio("opening and the logits of 16 tokens", name, ours["looked"] / theirs["looked"], 1, note)
        out.append(replace(row, target="", met=None))
    for key, what in (("peak", "opened"), ("peak_looked", "opened and run on 16 tokens")):
        note = f" ({ours[key] / 2**20:,.0f} of {size / 2**20:,.0f} MiB)"
        out.append(ratio(f"peak memory, {what}", "the file", ours[key] / size, 1.2, note))
    return out


def _of(side: dict[str, float], size: int) -> str:
    return f"{side['peak_looked'] / size:.2f}×"


def _best(found: list[dict[str, Any]]) -> dict[str, float]:
    fastest = {key: min(f[key] for f in found) for key in ("seconds", "looked")}
    return fastest | {key: statistics.median(f[key] for f in found) for key in ("peak", "peak_looked")}
