"""Activation circuits: ablation, attribution, patching, paths, head scores, cancelling; as ratios to TransformerLens' hooks.

Both sides get the same random weights, tokens and threads, and must give the same numbers before a ratio is printed. Where a side
did a part of the work and its seconds are multiplied, the row says so.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.common import ROOT, THREADS, WORK, Row, environment
from tests.benchmarks.forward import peer_python
from tests.benchmarks.weights import faster, without_target

MIB = 2**20
Head = tuple[int, int]


@dataclass(frozen=True)
class Shape:
    """Sizes of the measured models and prompts. `sampled` heads a layer are ablated, () for all; `layers` are patched."""

    name: str
    n_layers: int
    n_heads: int
    d_model: int
    d_vocab: int
    tokens: int
    patched: int
    blocks: tuple[int, int]
    sampled: tuple[int, ...] = ()
    layers: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()

    def ablated(self, sampled: tuple[int, ...] = ()) -> list[Head]:
        """Heads whose ablation is measured, of each layer these."""
        return [(i, h) for i in range(self.n_layers) for h in (sampled or self.sampled or range(self.n_heads))]

    def patched_heads(self) -> list[Head]:
        """Heads that the other side patches."""
        return [(i, h) for i in self.layers or range(self.n_layers) for h in self.heads or range(self.n_heads)]

    @property
    def n(self) -> int:
        """Heads in all."""
        return self.n_layers * self.n_heads


FULL = Shape("GPT-2 small shape", 12, 12, 768, 50257, 256, 32, (16, 50), layers=(0, 4, 8, 11), heads=(0, 4, 8, 11))
QUICK = replace(FULL, sampled=(3, 8), layers=(0, 6, 11), heads=(2, 9))
TWO = replace(FULL, name="2 layers, 512", n_layers=2, n_heads=8, d_model=512, d_vocab=48262)
TINY = Shape("tiny shape", 2, 4, 64, 500, 24, 8, (3, 8), sampled=(1, 2), layers=(0, 1), heads=(1, 3))


def gpt2(shape: Shape) -> Path:
    """A Hugging Face GPT-2 directory with random weights, made once; norms have gain 1 and bias 0, other biases are random."""
    path = WORK / f"circuits-{shape.n_layers}x{shape.d_model}"
    if not (path / "model.safetensors").is_file():
        import torch
        from transformers import GPT2Config, GPT2LMHeadModel

        torch.manual_seed(0)
        sizes = {"n_layer": shape.n_layers, "n_head": shape.n_heads, "n_embd": shape.d_model, "vocab_size": shape.d_vocab}
        ends = {"bos_token_id": 0, "eos_token_id": 0, "n_positions": 512, "initializer_range": shape.d_model**-0.5}
        model = GPT2LMHeadModel(GPT2Config(**sizes, **ends))
        with torch.no_grad():
            for name, p in model.named_parameters():
                if name.endswith("bias") and "ln_" not in name:
                    p.normal_(0, 0.05)
        model.save_pretrained(path)
    return path


def two_layers(shape: Shape) -> Path:
    """An attention-only directory of that shape with random weights, made once."""
    path = WORK / f"circuits-{shape.n_layers}x{shape.d_model}-attention-only"
    if not (path / "config.json").is_file():
        from circuitlab.model.config import ModelConfig
        from circuitlab.model.saving import random_tensors, save_directory

        sizes = {"n_layers": shape.n_layers, "n_heads": shape.n_heads, "d_model": shape.d_model, "d_vocab": shape.d_vocab}
        config = ModelConfig(**sizes, d_head=shape.d_model // shape.n_heads, n_ctx=256, positions="shortformer")
        save_directory(path, config, random_tensors(config, 0, config.d_model**-0.5))
    return path


def options(shape: Shape, n: int, **more: Any) -> dict[str, Any]:
    """What both sides are told: two prompts of n random tokens that differ at every position, and a pair of tokens."""
    tokens = np.random.default_rng(1).choice(shape.d_vocab, size=2 * n, replace=2 * n > shape.d_vocab)
    said = {"threads": THREADS, "rounds": 5, "tokens": tokens[:n].tolist(), "other": tokens[n:].tolist(), "pair": [3, 5]}
    return {**said, "heads": [], "half": False, **more}


def run(python: str, script: str, o: dict[str, Any]) -> dict[str, Any]:
    """One measurement in a fresh process."""
    where = ["-m", script] if script.startswith("tests.") else [str(ROOT / "tests" / "benchmarks" / script)]
    done = subprocess.run(
        [python, "-W", "ignore", *where, json.dumps(o)], capture_output=True, text=True, env=environment(), cwd=ROOT, check=False
    )
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1])
    return json.loads(done.stdout.strip().splitlines()[-1])


def ours(o: dict[str, Any]) -> dict[str, Any]:
    """Our side."""
    return run(sys.executable, "tests.benchmarks.circuits_ours", o)


@dataclass(frozen=True)
class Both:
    """Our measurement, those of the peers that gave our numbers, and rows for those that could not."""

    mine: dict[str, Any]
    peers: list[dict[str, Any]]
    rows: list[Row]

    @property
    def best(self) -> dict[str, Any]:
        """The faster peer."""
        return min(self.peers, key=lambda p: p["seconds"])

    @property
    def name(self) -> str:
        """What the faster peer is called."""
        return f"TransformerLens {self.best['version']}"


def both(what: str, o: dict[str, Any], tolerance: float = 1e-4) -> Both:
    """The same question to us and to both peers; numbers that differ by more than `tolerance` are a row that is not met."""
    kept = f"{o['path']}/{o['what']}-ours.npy"
    mine = ours({**o, "out": kept})
    numbers, peers, rows = np.load(kept), [], []
    for major in (3, 4):
        out = f"{o['path']}/{o['what']}-{major}.npy"
        try:
            peer = run(peer_python(major), "circuits_peer.py", {**o, "out": out})
        except (RuntimeError, subprocess.CalledProcessError, OSError) as error:
            rows.append(Row(what, f"TransformerLens {major}", f"peer not available: {error}", "", None))
            continue
        theirs = np.load(out)
        width = min(theirs.shape[-1], numbers.shape[-1])  # of the last half: where it begins, for either
        off = float(np.abs(theirs[..., -width:] - numbers[..., -width:]).max())
        if off > tolerance:
            rows.append(Row(what, f"TransformerLens {peer['version']}", f"other numbers: off by {off:.1e}", "", False))
            continue
        peers.append(peer | {"off": off})
    return Both(mine, peers, rows)


def memory(what: str, found: Both, times: float) -> Row:
    """Peak extra memory against the smaller peer."""
    least, mine = min(p["extra"] for p in found.peers), found.mine["extra"]
    said = f"1/{least / max(mine, 1):.0f} ({mine / MIB:.1f} MiB, {least / MIB:.0f})"
    return Row(f"peak extra memory, {what}", "the smaller peer", said, f"≤ 1/{times:g}", mine * times <= least)


def ablation_rows(shape: Shape) -> list[Row]:
    """Every head one by one, with the loss of every token and of the last half; the first picture of it."""
    path, every, some = str(gpt2(shape)), shape.ablated(), shape.ablated(shape.sampled or (3, 8))
    what = f"zero-ablation of every head, {shape.tokens} tokens"
    o = options(shape, shape.tokens, what="ablation", path=path)
    all_losses = both(f"{what}, loss everywhere", {**o, "heads": every})
    half = both(f"{what}, loss on the last half", {**o, "heads": some, "half": True})
    out = [*all_losses.rows, *half.rows]

    def compared(name: str, mine: Both, theirs: Both, target: float, note: str) -> Row:
        """Forward pass and estimate are done once by us, however many heads follow; all else is per head."""
        ours_f, theirs_f = (shape.n / len(some if b is half else every) for b in (mine, theirs))
        once = mine.mine["estimated"]
        seconds = once + ours_f * (mine.mine["seconds"] - once)
        sample = f"; of {len(some)} heads × {ours_f:g}" if ours_f > 1 else ""
        return faster(f"{what}, {name}", theirs.name, seconds, theirs.best["seconds"] * theirs_f, target, f"{note}{sample}")

    if all_losses.peers:
        note = f"; differ by {all_losses.best['off']:.0e} of at most {all_losses.mine['largest']:.2g}"
        out.append(compared("loss everywhere", all_losses, all_losses, 1.5, note))
        out.append(compared("loss on the last half", half, all_losses, 2.5, ", which computes it everywhere"))
    if half.peers:
        row = compared("loss on the last half", half, half, 1, ", cut to that half by a further hook")
        out.append(replace(row, target="", met=None))
    return out + first_rows(what, all_losses.mine)


def first_rows(what: str, mine: dict[str, Any]) -> list[Row]:
    """How long until something is on the screen; the last layer's estimates come first."""
    first, estimated, forward = mine["first"], mine["estimated"], mine["forward"]
    said = f"{first:.2f} s; a forward pass {forward:.2f} s"
    return [
        Row(f"first partial result, {what}", "0.5 s and a forward pass", said, "within it", first <= 0.5 + forward),
        Row(
            "first-order estimate of every head",
            "forward passes with logits",
            f"{estimated / forward:.2f}×",
            "≤ 3×",
            estimated <= 3 * forward,
        ),
    ]


def attribution_rows(shape: Shape) -> list[Row]:
    """Every head's direct part at every position."""
    result = both("attribution", options(shape, shape.tokens, what="attribution", path=str(gpt2(shape))))
    what = f"direct attribution of all heads, {shape.tokens} positions"
    if not result.peers:
        return result.rows
    note = f"; differ by {result.best['off']:.0e}; forward pass and cache before"
    row = faster(what, result.name, result.mine["seconds"], result.best["seconds"], 5, note)
    return [*result.rows, row, memory(what, result, 20)]


def patching_rows(shape: Shape) -> list[Row]:
    """The grid of all heads and positions against a sample of it."""
    heads = shape.patched_heads()
    result = both("patching", options(shape, shape.patched, what="patching", path=str(gpt2(shape)), heads=heads))
    if not result.peers:
        return result.rows
    factor = shape.n / len(heads)
    scaled = f"; theirs {len(heads)} heads × {factor:g}" if factor > 1 else ""
    note = f"; differ by {result.best['off']:.0e}; {100 * result.mine['inside']:.0f} % of cells can have an effect{scaled}"
    what = f"head × position patching grid, {shape.patched} tokens"
    return [*result.rows, faster(what, result.name, result.mine["seconds"], result.best["seconds"] * factor, 2, note)]


def path_rows(shape: Shape) -> list[Row]:
    """Order 2 in a two-layer model, in forward passes."""
    got = ours(options(shape, shape.tokens, what="paths", path=str(two_layers(shape))))
    what = f"path expansion, order 2, {shape.name}, {shape.tokens} tokens, one position"
    times, bare = got["seconds"] / got["forward"], got["seconds"] / got["stream"]
    own = got["with_run"] / got["forward"]
    said = f"{times:.2f}× ({1e3 * got['seconds']:.0f} ms; {own:.2f}× with its own pass; {bare:.2f}× of passes without logits)"
    out = [Row(what, "the whole", f"remainder {got['remainder']:.0e} of it", "≤ 1e-4", got["remainder"] <= 1e-4)]
    return [Row(what, "forward passes with logits", said, "≤ 3×", times <= 3), *out]


def score_rows(shape: Shape) -> list[Row]:
    """Seven scores of every head on a batch of repeated random tokens."""
    samples, block = shape.blocks
    path = gpt2(shape)
    batch = np.tile(np.random.default_rng(2).integers(0, shape.d_vocab, (samples, block)), (1, 2))
    np.save(path / "batch.npy", batch)
    result = both("head_scores", options(shape, 2, what="head_scores", path=str(path), batch=str(path / "batch.npy")))
    what = f"head scores of every head, {samples} × ({block} × 2) random tokens"
    if not result.peers:
        return result.rows
    note = f"; differ by {result.best['off']:.0e}; with the control {result.mine['whole']:.3g} s"
    row = faster(what, result.name, result.mine["seconds"], result.best["seconds"], 2, note)
    return [*result.rows, row, replace(memory(what, result, 1), target="", met=None)]


def cancel_rows(shape: Shape, times: int, cap: float) -> list[Row]:
    """How long a cancel takes to be answered, at random moments of each analysis of a prompt."""
    out: list[Row] = []
    found = ours(options(shape, shape.tokens, what="cancelling", path=str(gpt2(shape)), times=times, cap=cap))
    for name, got in found.items():
        if "error" in got:
            out.append(Row(f"cancel {name}", "until Cancelled", got["error"], "", None))
            continue
        late = sorted(got["latencies"])
        p95 = late[min(len(late) - 1, int(0.95 * len(late)))] if late else 0.0
        middle = statistics.median(late) if late else 0.0
        said = f"p95 {1e3 * p95:.0f} ms, median {1e3 * middle:.0f}, {len(late)} of {times} in {got['seconds']:.2g} s"
        out.append(Row(f"cancel {name}, {shape.tokens} tokens", "until Cancelled", said, "≤ 300 ms", p95 <= 0.3))
    return out


def rows(quick: bool, shape: Shape | None = None) -> list[Row]:
    """Everything; `quick` ablates and patches a sample of the heads on the same shape. TINY shows only that it works."""
    WORK.mkdir(exist_ok=True)
    shape = shape or (QUICK if quick else FULL)
    tiny = shape is TINY
    out = [
        *ablation_rows(shape),
        *attribution_rows(shape),
        *patching_rows(shape),
        *path_rows(TINY if tiny else TWO),
        *score_rows(shape),
    ]
    out = [without_target(row) for row in out] if tiny else out
    return out + cancel_rows(shape, 6 if quick else 12, 2.0 if quick else 3.0)
