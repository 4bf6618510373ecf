"""Weight analyses: composition, spectra, tables, memory from disk, cancelling; as ratios to TransformerLens or plain torch."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np

from tests.benchmarks.common import PEAK, ROOT, THREADS, WORK, Row, child, environment
from tests.benchmarks.forward import peer_python
from tests.benchmarks.weights_ours import QUESTIONS

MIB = 2**20

PEER = (
    PEAK
    + """
import json, sys, time
import numpy as np, torch
torch.set_num_threads(int(sys.argv[2]))
torch.set_grad_enabled(False)
from safetensors.torch import load_file
from transformer_lens import FactoredMatrix
t = load_file(sys.argv[1] + '/model.safetensors')
n_layers = 1 + max(int(k.split('.')[1]) for k in t if k.startswith('layers.'))
n_heads, d_model, d_head = t['layers.0.W_Q'].shape
sizes = dict(n_layers=n_layers, d_model=d_model, n_ctx=16, d_head=d_head, n_heads=n_heads, d_vocab=len(t['embed.W_E']),
    attn_only=True, act_fn='relu', normalization_type=None)
version = __import__('importlib.metadata').metadata.version('transformer-lens')
if version.startswith('3'):
    from transformer_lens import HookedTransformer, HookedTransformerConfig
    model = HookedTransformer(HookedTransformerConfig(**sizes, init_weights=False))
    state = {'embed.W_E': t['embed.W_E'], 'unembed.W_U': t['unembed.W_U']}
    state |= {f'blocks.{i}.attn.W_{n}': t[f'layers.{i}.W_{n}'] for i in range(n_layers) for n in 'QKVO'}
    model.load_state_dict(state, strict=False)
else:
    from transformer_lens.config import TransformerBridgeConfig
    from transformer_lens.model_bridge import TransformerBridge
    model = TransformerBridge.boot_native(TransformerBridgeConfig(**sizes, d_mlp=4 * d_model))
    named = dict(model.named_parameters())
    put = lambda name, value: named[name].data.copy_(value)
    put('tok_embed._original_component.weight', t['embed.W_E'])
    put('head._original_component.weight', t['unembed.W_U'].T)
    for i in range(n_layers):
        at = f'layers.{i}._original_component.attn._original_component.'
        for n in 'QKV':
            put(f'{at}{n.lower()}._original_component.weight', t[f'layers.{i}.W_{n}'].permute(0, 2, 1).reshape(-1, d_model))
        put(at + 'o._original_component.weight', t[f'layers.{i}.W_O'].reshape(-1, d_model).T)
del t
def composition():
    made = [model.all_composition_scores(mode) for mode in 'QKV']
    return torch.stack([getattr(s, 'scores', s) for s in made])
def spectra():
    W_E, W_U, W_V, W_O, scores = model.W_E, model.W_U, model.W_V, model.W_O, []
    for i in range(n_layers):  # a layer at a time, as its memory would be much larger otherwise
        values = (W_E @ FactoredMatrix(W_V[i], W_O[i]) @ W_U).eigenvalues
        scores.append((values.sum(-1) / values.abs().sum(-1)).real)
    return torch.stack(scores)
work = {'composition': composition, 'spectra': spectra}[sys.argv[3]]
times = []
for _ in range(int(sys.argv[4])):
    peak_reset(); base = rss(); began = time.perf_counter()
    found = work()
    times.append(time.perf_counter() - began); extra = peak() - base
np.save(sys.argv[5], found.numpy())
print(json.dumps(dict(seconds=sorted(times)[len(times) // 2], extra=extra, version=version)))
"""
)


def shapes(quick: bool) -> dict[str, dict[str, int]]:
    """Both shapes by name, small ones for `--quick`. Attention and embeddings alone: nothing measured here reads an MLP."""
    if quick:
        small = {"n_layers": 4, "n_heads": 4, "d_model": 128, "d_head": 32, "d_vocab": 4000}
        return {"quick 4 layers": small, "quick 2 layers": small | {"n_layers": 2}}
    return {
        "GPT-2 small shape": {"n_layers": 12, "n_heads": 12, "d_model": 768, "d_head": 64, "d_vocab": 50257},
        "2 layers, 512": {"n_layers": 2, "n_heads": 8, "d_model": 512, "d_head": 64, "d_vocab": 48262},
    }


def made(name: str, sizes: dict[str, int]) -> str:
    """A model directory of that shape with random weights, made once."""
    path = WORK / f"weights-{name.replace(' ', '-').replace(',', '')}"
    if not (path / "config.json").is_file():
        from circuitlab.model.config import ModelConfig
        from circuitlab.model.saving import random_tensors, save_directory

        config = ModelConfig(**sizes, n_ctx=64, positions="none")  # type: ignore[arg-type]
        save_directory(path, config, random_tensors(config, 0, config.d_model**-0.5))
    return str(path)


def streamed(sizes: dict[str, int]) -> tuple[str, int]:
    """(directory, bytes) of a float16 model with MLPs, written layer by layer: it need not fit in memory. Made once."""
    path = WORK / f"mapped-{sizes['n_layers']}x{sizes['d_model']}"
    file = path / "model.safetensors"
    if not (path / "config.json").is_file():
        from circuitlab.model.config import ModelConfig
        from circuitlab.model.lazy_weights import expected_shapes
        from circuitlab.model.saving import FORMAT

        config = ModelConfig(**sizes, n_ctx=64, positions="none", d_mlp=4 * sizes["d_model"])  # type: ignore[arg-type]
        path.mkdir(parents=True, exist_ok=True)
        rng, at, header = np.random.default_rng(0), 0, {}
        wanted = expected_shapes(config)
        for name, shape in wanted.items():
            size = 2 * int(np.prod(shape))
            header[name] = {"dtype": "F16", "shape": list(shape), "data_offsets": [at, at + size]}
            at += size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with file.open("wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            for shape in wanted.values():
                out.write((rng.standard_normal(shape, dtype=np.float32) * config.d_model**-0.5).astype(np.float16).tobytes())
        (path / "config.json").write_text(json.dumps({"format": FORMAT, **config.to_json()}))
    return str(path), file.stat().st_size


def ours(what: str, *words: str) -> dict[str, Any]:
    """One function of `weights_ours` in a fresh process."""
    call = [sys.executable, "-m", "tests.benchmarks.weights_ours", what, str(THREADS), *words]
    done = subprocess.run(call, capture_output=True, text=True, env=environment(), cwd=ROOT, check=False)
    if done.returncode:
        raise RuntimeError(f"{what}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def faster(what: str, against: str, ours_s: float, peer_s: float, target: float, note: str = "") -> Row:
    """A row for how many times faster we are."""
    times = peer_s / ours_s
    return Row(what, against, f"{times:.1f}× faster ({ours_s:.3g} s, {peer_s:.3g} s{note})", f"≥ {target:g}×", times >= target)


def peers(what: str, path: str, rounds: int, mine: np.ndarray) -> tuple[list[Row], list[dict[str, Any]]]:
    """Each TransformerLens that can be had and gives our numbers; a row for each that does not."""
    out: list[Row] = []
    result: list[dict[str, Any]] = []
    for major in (3, 4):
        kept = f"{path}/{what}-{major}.npy"
        try:
            peer = child(PEER, path, str(THREADS), what, str(rounds), kept, python=peer_python(major))
        except (RuntimeError, subprocess.CalledProcessError, OSError) as error:
            out.append(Row(what, f"TransformerLens {major}", f"peer not available: {error}", "", None))
            continue
        theirs = np.load(kept)
        theirs = theirs.transpose(0, 3, 4, 1, 2) if what == "composition" else theirs
        off = float(np.abs(theirs - mine).max())
        if off > 1e-4 * max(1e-9, float(np.abs(mine).max())):
            out.append(Row(what, f"TransformerLens {peer['version']}", f"other numbers: off by {off:.1e}", "", False))
            continue
        result.append(peer | {"off": off})
    return out, result


def composition_rows(shape: str, path: str, rounds: int) -> list[Row]:
    """All pairs, time and memory."""
    kept = f"{path}/composition.npy"
    got = ours("composition", path, str(rounds), kept)
    out, result = peers("composition", path, 1 if rounds < 5 else 2, np.load(kept))
    share = got["flops"] / got["rate"] / got["seconds"]
    what = f"composition Q + K + V, {shape}"
    if result:
        best = min(result, key=lambda p: p["seconds"])
        name, least = f"TransformerLens {best['version']}", min(p["extra"] for p in result)
        out.append(faster(what, name, got["seconds"], best["seconds"], 25, f"; differ by {best['off']:.0e}"))
        said = f"1/{least / max(got['extra'], 1):.0f} ({got['extra'] / MIB:.0f} MiB, {least / MIB:.0f})"
        out.append(Row(f"peak extra memory, {what}", "the smaller peer", said, "≤ 1/30", got["extra"] * 30 <= least))
    return [*out, Row(what, f"{got['rate'] / 1e9:.0f} Gflop/s of a product", f"{100 * share:.0f} % of it", "", None)]


def spectra_rows(shape: str, path: str, rounds: int) -> list[Row]:
    """Copying scores and eigenvalues of all heads, cold and with W_U W_E at hand."""
    kept = f"{path}/spectra.npy"
    got = ours("spectra", path, str(rounds), kept)
    out, result = peers("spectra", path, 1, np.load(kept))
    limit = got["flops"] / got["rate"]
    out.append(Row(f"W_U W_E, {shape}", "the product at full rate", f"{limit:.2f} of {got['cold']:.2f} s", "", None))
    if not result:
        return out
    best = min(result, key=lambda p: p["seconds"])
    name = f"TransformerLens {best['version']}"
    for key, said in (("", "copying scores"), ("eigenvalues_", "eigenvalues and singular values")):
        for state, target in (("cold", 25), ("warm", 80)):
            what = f"OV {said} of all heads, {'W_U W_E kept' if state == 'warm' else 'cold'}, {shape}"
            out.append(faster(what, name, got[key + state], best["seconds"], target))
    return out


def table_rows(shape: str, path: str, rounds: int) -> list[Row]:
    """Top tokens of every source, and one token's rows."""
    got = ours("top_tokens", path, str(max(1, rounds // 2)))
    what = f"top 10 out tokens of every source, {shape}"
    floor = got["flops"] / got["rate"]
    out = [faster(what, "tiled product + torch.topk", got["ours"], got["peer"], 2.5, f"; product alone {floor:.3g} s")]
    out.append(Row(what, "the same answers", f"{got['differ']} differ beyond ties", "0", got["differ"] == 0))
    said = f"{got['extra'] / MIB:.0f} MiB, the answer {got['result'] / MIB:.1f} of them"
    out.append(Row(f"peak extra memory, {what}", "", said, "≤ 50 MiB", got["extra"] <= 50 * MIB))
    share = 100 * got["visible"] / got["ours"]
    said = f"{share:.1f} % ({1e3 * got['visible']:.0f} ms)"
    out.append(Row(f"100 rows that a screen shows, {shape}", "all rows", said, "≤ 1 %", share <= 1))
    one = ours("one_row", path, str(rounds))
    beyond = 1e3 * (one["ours"] - one["bare"])
    said = f"{beyond:.1f} ms beyond {1e3 * one['bare']:.1f}"
    return [*out, Row(f"one token's OV and QK rows, {shape}", "the bare products", said, "≤ 50 ms", beyond <= 50)]


def skipped_rows(shape: str, path: str) -> list[Row]:
    """What bounds save of the search for the largest entries."""
    got = ours("largest", path, str(ROOT / "models" / "attn-only-2l"))
    out: list[Row] = []
    for i, circuit in enumerate(("OV", "QK")):
        shares = [100 * pair[i] for pair in got["trained"]]
        said = f"{min(shares):.0f} … {max(shares):.0f} % skipped, median {statistics.median(shares):.0f}"
        out.append(Row(f"100 largest entries, {circuit} of every head of attn-only-2l", "the whole product", said, "", None))
        random = f"{100 * got['random'][i]:.0f} % skipped"
        out.append(Row(f"100 largest entries, {circuit}, random weights, {shape}", "the whole product", random, "", None))
    return out


def disk_rows(quick: bool) -> list[Row]:
    """Composition on models that are read from disk: one as deep as GPT-2 XL, one of a quarter of its layers.

    What grows with the model is the answer, and up to a quarter of the budget that may be kept of earlier layers.
    """
    sizes = {"n_layers": 48, "n_heads": 25, "d_model": 1600, "d_head": 64, "d_vocab": 50257}
    budget = 1 << 30
    if quick:
        sizes, budget = {"n_layers": 16, "n_heads": 8, "d_model": 256, "d_head": 32, "d_vocab": 1000}, 24 * MIB
    deep, size = streamed(sizes)
    shallow, _ = streamed(sizes | {"n_layers": sizes["n_layers"] // 4})
    got, less = ours("mapped", deep, str(budget)), ours("mapped", shallow, str(budget))
    what = f"composition, {sizes['n_layers']} layers × {sizes['d_model']} from disk"
    said = f"{got['extra'] / MIB:.0f} MiB, {got['seconds']:.0f} s; file {size / MIB:.0f} MiB"
    within = got["extra"] <= budget and not got["resident"] and size > budget
    grew = got["extra"] / max(less["extra"], 1)
    return [
        Row(f"peak memory, {what}", f"budget {budget / MIB:.0f} MiB", said, "≤ budget < file", within),
        Row(f"peak memory, {what}", "a quarter of the layers", f"{grew:.2f}× ({less['extra'] / MIB:.0f} MiB)", "< 2×", grew < 2),
    ]


def cancel_rows(shape: str, path: str, times: int) -> list[Row]:
    """How long a cancel takes to be answered, at random moments of each analysis."""
    out: list[Row] = []
    for name in QUESTIONS:
        got = ours("cancelling", path, name, str(times))
        late = sorted(got["latencies"])
        p95 = late[min(len(late) - 1, int(0.95 * len(late)))] if late else 0.0
        middle = statistics.median(late) if late else 0.0
        said = f"p95 {1e3 * p95:.0f} ms, median {1e3 * middle:.0f}, {len(late)} of {times} in {got['seconds']:.2g} s"
        out.append(Row(f"cancel {name}, {shape}", "until Cancelled", said, "≤ 300 ms", p95 <= 0.3))
    return out


def without_target(row: Row) -> Row:
    """A ratio of small shapes, where fixed costs count most, is held against nothing."""
    return replace(row, target="", met=None) if row.target.startswith(("≥", "≤ 1/", "< 2")) else row


def rows(quick: bool) -> list[Row]:
    """Everything, on both shapes."""
    WORK.mkdir(exist_ok=True)
    out: list[Row] = []
    rounds = 3 if quick else 5
    for shape, sizes in shapes(quick).items():
        path = made(shape, sizes)
        out += composition_rows(shape, path, rounds) + spectra_rows(shape, path, rounds) + table_rows(shape, path, rounds)
    first = next(iter(shapes(quick)))
    path = made(first, shapes(quick)[first])
    out += skipped_rows(first, path) + disk_rows(quick)
    out = [without_target(row) for row in out] if quick else out
    return out + cancel_rows(first, path, 6 if quick else 12)
