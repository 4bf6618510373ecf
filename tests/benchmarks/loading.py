"""Opening a GPT-2-small-shaped file: seconds and peak memory beside `transformers` and TransformerLens on the same file."""

from __future__ import annotations

import statistics
from typing import Any

from tests.benchmarks.common import PEAK, THREADS, Row, child, gpt2_small, ratio
from tests.benchmarks.forward import peer_python

_TIMED = (
    PEAK
    + """
import gc, json, sys, time
def measured(load, rounds):
    load(); gc.collect()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        model = load()
        times.append(time.perf_counter() - began)
        del model
        gc.collect()
    peak_reset(); base = rss()
    model = load()
    print(json.dumps(dict(seconds=min(times), peak=peak() - base)))
"""
)

OURS = (
    _TIMED
    + """
import torch
torch.set_num_threads(int(sys.argv[2]))
from pathlib import Path
from circuitlab.model.loading import open_model
measured(lambda: open_model(Path(sys.argv[1])), int(sys.argv[3]))
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
measured(lambda: GPT2LMHeadModel.from_pretrained(sys.argv[1]), int(sys.argv[3]))
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
measured(load, int(sys.argv[3]))
"""
)


def rows(quick: bool) -> list[Row]:
    """Ratios of the fastest of several rounds, every side in fresh processes that have read the file before."""
    path, rounds, processes = gpt2_small(), 3 if quick else 7, 1 if quick else 3
    size = (path / "model.safetensors").stat().st_size
    words = (str(path), str(THREADS), str(rounds))
    ours = _best([child(OURS, *words) for _ in range(processes)])
    theirs = _best([child(TRANSFORMERS, *words) for _ in range(processes)])
    mib = f" ({ours['peak'] / 2**20:,.0f} of {size / 2**20:,.0f} MiB; transformers {theirs['peak'] / size:.2f}×)"
    note = f" ({ours['seconds']:.2f} / {theirs['seconds']:.2f} s)"
    out = [
        ratio("opening GPT-2 small's shape", "transformers.from_pretrained", ours["seconds"] / theirs["seconds"], 1, note),
        ratio("its peak memory", "the file", ours["peak"] / size, 1.2, mib),
    ]
    lens = _best([child(LENS, *words, python=peer_python(3)) for _ in range(processes)])
    note = f" ({ours['seconds']:.2f} / {lens['seconds']:.2f} s; its peak {lens['peak'] / size:.2f}× the file)"
    out.append(ratio("opening GPT-2 small's shape", "TransformerLens 3.9.0", ours["seconds"] / lens["seconds"], 1, note))
    return out


def _best(found: list[dict[str, Any]]) -> dict[str, float]:
    return {"seconds": min(f["seconds"] for f in found), "peak": statistics.median(f["peak"] for f in found)}
