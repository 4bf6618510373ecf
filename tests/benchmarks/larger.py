"""A model larger than memory: a random Llama-shaped file of 6 GiB, opened and analysed with 2 GiB of data segment.

`RLIMIT_DATA` bounds private memory only; the file is a shared read-only map, whose pages the system may take back. The quick
round takes a file of two layers.
"""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import numpy as np

from tests.benchmarks.common import THREADS, WORK, Row, child

GIB = 2**30
LIMIT = 2 * GIB
BUDGET = LIMIT * 19 // 20
D, HEADS, GROUPS, WIDE, VOCAB, LAYERS = 4096, 32, 8, 11008, 32000, 17
_BLOCK = 1 << 22

CHILD = """
import json, resource, sys, threading, time
limit, path, threads, budget, names = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:]
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
import torch
torch.set_num_threads(threads)
from circuitlab.analysis.base import find_analysis
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore, reference
from circuitlab.model.subject import Subject

def anonymous():
    line = next(l for l in open('/proc/self/status') if l.startswith('RssAnon'))
    return int(line.split()[1]) * 1024

peak = [0]
def watch():
    while True:
        peak[0] = max(peak[0], anonymous())
        time.sleep(0.01)
threading.Thread(target=watch, daemon=True).start()
engine, ref, out = Engine(ModelStore(), budget), reference(path), {}
began = time.perf_counter()
model = engine.store.open(ref)
out['open'] = [time.perf_counter() - began, anonymous()]
for name in names:
    peak[0] = 0
    began = time.perf_counter()
    engine.answer(Request.named(name, find_analysis(name).params(), Subject(ref, tuple(range(1, 17)))))
    out[name] = [time.perf_counter() - began, peak[0]]
began = time.perf_counter()
engine.store.sha256(ref)
out['sha256'] = [time.perf_counter() - began, anonymous()]
print(json.dumps(out))
"""


def shapes(n_layers: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a Llama checkpoint."""
    out: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCAB, D),
        "lm_head.weight": (VOCAB, D),
        "model.norm.weight": (D,),
    }
    for i in range(n_layers):
        at = f"model.layers.{i}."
        out |= {at + "input_layernorm.weight": (D,), at + "post_attention_layernorm.weight": (D,)}
        out |= {
            at + f"self_attn.{n}_proj.weight": (r, D)
            for n, r in (("q", D), ("k", D * GROUPS // HEADS), ("v", D * GROUPS // HEADS))
        }
        out |= {at + "self_attn.o_proj.weight": (D, D), at + "mlp.down_proj.weight": (D, WIDE)}
        out |= {at + f"mlp.{n}_proj.weight": (WIDE, D) for n in ("gate", "up")}
    return out


def llama(n_layers: int) -> Path:
    """The random checkpoint, bfloat16, made once a layer at a time."""
    path = WORK / f"llama-shape-{n_layers}"
    file = path / "model.safetensors"
    if file.is_file():
        return path
    path.mkdir(parents=True, exist_ok=True)
    header, at = {}, 0
    for name, shape in shapes(n_layers).items():
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    if shutil.disk_usage(path).free < at + GIB:
        raise RuntimeError(f"{at / GIB:.1f} GiB are not free at {path}")
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    rng = np.random.default_rng(0)
    fresh = file.with_suffix(".new")
    with fresh.open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for shape in shapes(n_layers).values():
            left = int(np.prod(shape))
            while left:
                n = min(left, _BLOCK)
                values = rng.standard_normal(n, dtype=np.float32) * 0.02 if len(shape) > 1 else np.ones(n, np.float32)
                out.write((values.view(np.uint32) >> 16).astype(np.uint16).tobytes())
                left -= n
    fresh.replace(file)
    config = {
        "model_type": "llama", "hidden_size": D, "intermediate_size": WIDE, "num_hidden_layers": n_layers, "vocab_size": VOCAB,
        "num_attention_heads": HEADS, "num_key_value_heads": GROUPS, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
        "hidden_act": "silu", "tie_word_embeddings": False, "rope_theta": 10000.0,
    }  # fmt: skip
    (path / "config.json").write_text(json.dumps(config))
    return path


def rows(quick: bool) -> list[Row]:
    """Time and peak anonymous memory of opening, one forward pass, composition and spectra; the hash beside."""
    path = llama(LAYERS // 8 if quick else LAYERS)
    size = (path / "model.safetensors").stat().st_size
    names = ["predictions", "composition", "copying_scores", "ov_spectrum"]
    result = child(CHILD, str(LIMIT), str(path), str(THREADS), str(BUDGET), *names)
    titles = {"open": "opens", "predictions": "16-token forward pass", "copying_scores": "copying scores of all heads"}
    titles |= {"composition": "composition Q+K+V", "ov_spectrum": "OV spectra of all heads", "sha256": "sha256, read whole"}
    out = []
    for name, (seconds, held) in result.items():
        what = f"Llama shape of {size / GIB:.1f} GiB, RLIMIT_DATA 2 GiB: {titles[name]}"
        measured = f"{seconds:,.1f} s, {held / 2**20:,.0f} MiB anonymous"
        met = seconds < 5 if name == "open" else held <= LIMIT
        out.append(Row(what, "", measured, "≤ 5 s" if name == "open" else "≤ 2 GiB", met))
    return out
