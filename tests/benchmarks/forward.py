"""The forward pass: what capturing costs, and against TransformerLens' run_with_cache."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

from tests.benchmarks.common import PEAK, ROOT, THREADS, Row, child, gpt2_small, ratio

OURS = (
    PEAK
    + """
import json, statistics, sys, time
import torch
from pathlib import Path
torch.set_num_threads(int(sys.argv[3]))
from circuitlab.model.loading import open_model
from circuitlab.model import forward as f, run as r
from circuitlab.model.forward import _plain_block, embedded
w = open_model(Path(sys.argv[1])).weights
n = int(sys.argv[2]); torch.manual_seed(1)
tokens = tuple(torch.randint(0, 50257, (n,)).tolist())
ids = torch.tensor([tokens])
def plain():
    with torch.inference_mode():
        x = embedded(w.config, w.embed(), ids, 0)
        for i in range(w.config.n_layers):
            x = _plain_block(w, w.layer(i), i, x)
        return r.unembed(w, w.unembed(), x)
def captured():
    made = f.forward(w, tokens)
    return made, made.logits()
def stream():
    with torch.inference_mode():
        x = embedded(w.config, w.embed(), ids, 0)
        for i in range(w.config.n_layers):
            x = _plain_block(w, w.layer(i), i, x)
        return x
plain(); captured()
times = []
for _ in range(int(sys.argv[4])):
    a = time.perf_counter(); captured(); b = time.perf_counter(); plain(); times.append((b - a, time.perf_counter() - b))
run = f.forward(w, tokens)
began = time.perf_counter(); pattern = run.get('pattern', 5, (3,)); one = time.perf_counter() - began
kept = run.nbytes
torch.save({'logits': run.logits()[-1], 'pattern': pattern[0]}, sys.argv[5])
del run, pattern
peak_reset(); base = rss(); stream(); extra_plain = peak() - base
peak_reset(); base = rss(); made = f.forward(w, tokens); extra = peak() - base
del made
peak_reset(); base = rss(); made = captured(); whole = peak() - base
print(json.dumps(dict(captured=statistics.median(t[0] for t in times), plain=statistics.median(t[1] for t in times),
  ratio=statistics.median(t[0] / t[1] for t in times), one=one, kept=kept, extra=extra, extra_plain=extra_plain, whole=whole)))
"""
)

PEER = (
    PEAK
    + """
import json, statistics, sys, time
import torch
torch.set_num_threads(int(sys.argv[3]))
torch.set_grad_enabled(False)
from transformers import GPT2LMHeadModel, GPT2Config
import transformer_lens
hf = GPT2LMHeadModel.from_pretrained(sys.argv[1])
n = int(sys.argv[2]); torch.manual_seed(1)
ids = torch.randint(0, 50257, (n,))[None]
version = __import__('importlib.metadata').metadata.version('transformer-lens')
if version.startswith('3'):
    from transformer_lens import HookedTransformer, HookedTransformerConfig
    from transformer_lens.pretrained.weight_conversions import convert_gpt2_weights
    cfg = HookedTransformerConfig(n_layers=12, d_model=768, n_ctx=1024, d_head=64, n_heads=12, d_mlp=3072, d_vocab=50257,
        act_fn='gelu_new', normalization_type='LN', eps=1e-5, original_architecture='GPT2LMHeadModel')
    model = HookedTransformer(cfg)
    model.load_state_dict(convert_gpt2_weights(hf, cfg), strict=False)
else:
    from transformer_lens.model_bridge import TransformerBridge
    model = TransformerBridge.boot_transformers(sys.argv[1], hf_model=hf, tokenizer=None, device='cpu')
model.eval()
run = lambda: model.run_with_cache(ids)
logits, cache = run()
wanted = torch.load(sys.argv[5])
key = next(k for k in ('blocks.5.attn.hook_pattern', 'blocks.5.attn.hook_attn_pattern') if k in cache)
difference = float((logits[0, -1] - wanted['logits']).abs().max())
pattern_difference = float((cache[key][0, 3] - wanted['pattern']).abs().max())
del logits, cache
times = []
for _ in range(int(sys.argv[4])):
    a = time.perf_counter(); run(); times.append(time.perf_counter() - a)
peak_reset(); base = rss(); made = run(); extra = peak() - base
print(json.dumps(dict(seconds=statistics.median(times), extra=extra, version=version, difference=difference,
    pattern=pattern_difference)))
"""
)


def peer_python(major: int) -> str:
    """The interpreter of a venv with TransformerLens, made when it is not there."""
    folder = ROOT / ".venvs" / f"tl{major}"
    python = folder / "bin" / "python"
    if not (folder / ".complete").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        wanted = "transformer-lens==3.9.0" if major == 3 else "transformer-lens>=4,<5"
        for packages in (["torch==2.13.0"], [wanted, "torch==2.13.0"]):
            subprocess.run([str(python), "-m", "pip", "install", "-qq", *packages], check=True, stdout=sys.stderr)
        (folder / ".complete").touch()
    return str(python)


def rows(quick: bool) -> list[Row]:
    """Capture against no capture, and against the faster TransformerLens, at three lengths."""
    path, out = gpt2_small(), []
    for n in (128, 512) if quick else (128, 512, 1024):
        rounds = 3 if quick else 7
        kept = str(path.parent / f"reference-{n}.pt")
        ours = child(OURS, str(path), str(n), str(THREADS), str(rounds), kept)
        note = f" ({ours['captured'] * 1e3:.0f} ms; one head's pattern then {ours['one'] * 1e3:.1f} ms)"
        out.append(ratio(f"forward with capture, {n} tokens", "the same without capture", ours["ratio"], 1.2, note))
        beyond = (ours["extra"] - ours["extra_plain"]) / ours["kept"]
        mib = f" ({(ours['extra'] - ours['extra_plain']) / 2**20:.0f} MiB)"
        out.append(ratio(f"memory of capture, {n} tokens", "resid_pre + q + k + v", beyond, 1.3, mib))
        out += peers(path, n, rounds, kept, ours)
    return out


def peers(path: Path, n: int, rounds: int, kept: str, ours: dict) -> list[Row]:
    """Against each TransformerLens that can be had; the numbers must agree first."""
    out, result = [], []
    for major in (3, 4):
        try:
            peer = child(PEER, str(path), str(n), str(THREADS), str(rounds), kept, python=peer_python(major))
        except (RuntimeError, subprocess.CalledProcessError, OSError) as error:
            out.append(Row(f"run_with_cache, {n} tokens", f"TransformerLens {major}", f"peer not available: {error}", "", None))
            continue
        if peer["difference"] > 1e-3 or peer["pattern"] > 1e-4:
            out.append(Row(f"run_with_cache, {n} tokens", peer["version"], f"other numbers: {peer['difference']:.1e}", "", None))
            continue
        result.append(peer)
        name = f"TransformerLens {peer['version']}"
        out.append(ratio(f"forward + cache, {n} tokens", name, ours["captured"] / peer["seconds"], 1.0))
    if result:
        least = min(p["extra"] for p in result)
        out.append(ratio(f"peak extra memory, {n} tokens", "the smaller peer", ours["whole"] / least, 0.25 if n == 1024 else 1.0))
    return out
