"""Every architecture, as a folder and as the GGUF file made of it, and every kind of packed numbers: how far the logits are from
those of `transformers` on the folder, which has the file's numbers, and the seconds and the peak of memory that opening and the
logits of 16 tokens take on either side.

The models are random and small, some 5 million numbers; each side reads all of them in one fresh process, the best of three.
A real file (`tests/real_file.py`) is read once by each, where it is here.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from circuitlab.model.files.gguf.kinds import KINDS
from tests.benchmarks.common import PEAK, THREADS, WORK, Row, child
from tests.gguf_files import Kind, Packer, converted, plain, random_blocks
from tests.real_file import NAME, PLACE
from tests.unit.families.test_gguf import CASES

SIZES = {
    "vocab_size": 8000, "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 4, "max_position_embeddings": 256, "pad_token_id": None, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GPT = {"vocab_size": 8000, "n_embd": 256, "n_layer": 4, "n_head": 8, "n_positions": 256, "n_inner": 768}
WIDER = {"d_model": 256, "n_heads": 8, "n_layers": 4, "max_seq_len": 256, "n_head": 8, "n_layer": 4, "seq_length": 256}
TOLERANCE = 1e-4  # of the largest logit

_MEASURED = (
    PEAK
    + """
import gc, json, os, sys, time
import numpy as np, torch
torch.set_num_threads(int(sys.argv[2])); torch.set_grad_enabled(False)
ids = torch.arange(1, 17)
def measured(load, look):
    found = {}
    for name, path, assume in json.loads(open(sys.argv[1]).read()):
        try:
            rounds = 1 if os.path.getsize(path) > 2**26 else 3  # of the small ones, what is imported is not counted
            if rounds > 1:
                look(load(path, assume))
            gc.collect(); peak_reset(); base, seconds = rss(), []
            for n in range(rounds):
                began = time.perf_counter(); values = look(load(path, assume)); seconds.append(time.perf_counter() - began)
                most = peak() - base if n == 0 else most
            values = values.float().numpy()
            np.save(sys.argv[3] + name.replace('/', '-') + '.npy', values)
            found[name] = dict(seconds=min(seconds), peak=most)
        except Exception as error:
            found[name] = dict(error=f'{type(error).__name__}: {error}'[:200])
    print(json.dumps(found))
"""
)
OURS = (
    _MEASURED
    + """
from pathlib import Path
from circuitlab.model.forward import logits
from circuitlab.model.loading import open_model
measured(lambda path, assume: open_model(Path(path), assume=assume), lambda model: logits(model.weights, ids[None])[0])
"""
)
TRANSFORMERS = (
    _MEASURED
    + """
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint
from transformers.utils import logging
logging.set_verbosity_error(); logging.disable_progress_bar()
def load(path, assume):
    if not path.endswith('.gguf'):
        return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation='eager').eval()
    folder, named = path.removesuffix('.gguf'), {}  # of the folder beside it, as these files have no vocabulary
    if not os.path.isdir(folder):
        folder, named = os.path.dirname(path), dict(gguf_file=os.path.basename(path))
    config = AutoConfig.from_pretrained(folder, **named)
    model = AutoModelForCausalLM.from_config(config, attn_implementation='eager').eval()  # its short way needs accelerate
    model.load_state_dict(load_gguf_checkpoint(path, return_tensors=True, model_to_load=model)['tensors'], strict=False)
    model.tie_weights()
    return model
measured(load, lambda model: model(ids[None]).logits[0])
"""
)

Job = tuple[str, str, dict[str, str]]  # name, path, what the file does not say


def rows(quick: bool) -> list[Row]:
    """A row for each architecture, as a folder and as a file, and for each kind of packed numbers. `quick`: two of each."""
    place = WORK / "opening"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    few = 2 if quick else None
    jobs: list[Job] = []
    for name in [name for name in CASES if "," not in name][:few]:
        jobs += _made(place / name.replace(" ", "-"), name, plain(Kind.F16))
    for kind in [kind for kind in KINDS.values() if kind.packed][:few]:
        jobs += _made(place / kind.name, "llama", _random(kind), kind.name)
    if (PLACE / NAME).is_file() and not quick:
        jobs.append((f"{NAME} / file", str(PLACE / NAME), {}))
    listed = place / "jobs.json"
    listed.write_text(json.dumps(jobs))
    sides: dict[str, dict[str, Any]] = {}
    for side, code in (("ours", OURS), ("theirs", TRANSFORMERS)):
        (place / side).mkdir()
        sides[side] = child(code, str(listed), str(THREADS), f"{place / side}/")
    shown = [job for job in jobs if job[0].removesuffix(" / folder") not in {kind.name for kind in KINDS.values()}]
    return [_row(place, name, Path(path), sides["ours"][name], sides["theirs"][name]) for name, path, _ in shown]


def _made(folder: Path, case: str, pack: Packer, name: str = "") -> list[Job]:
    """A random model of one case as a folder and as a file whose numbers are those of the folder."""
    import torch
    import transformers

    kind, changes, assume = CASES[case]
    own = {**GPT} if "n_embd" in changes else {} if "d_model" in changes else {**SIZES}
    wider = {key: value for key, value in WIDER.items() if key in changes and "n_embd" not in changes}
    kept = {key: value for key, value in changes.items() if key not in GPT or "n_embd" not in changes}
    torch.manual_seed(0)
    config = getattr(transformers, kind)(**{"vocab_size": 8000} | own | kept | wider)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2) if parameter.dim() > 1 else parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    file = folder.with_suffix(".gguf")
    converted(folder, file, pack)
    unsaid = assume | ({"context": str(SIZES["max_position_embeddings"])} if "context" in assume else {})
    return [(f"{name or case} / folder", str(folder), {}), (f"{name or case} / file", str(file), unsaid)]


def _random(kind: Any) -> Packer:
    """Matrices of random blocks of one kind, those whose rows it does not divide in F16."""
    theirs = gguf.GGMLQuantizationType(kind.id)
    half = plain(Kind.F16)
    return lambda name, x: half(name, x) if x.shape[-1] % kind.block else (random_blocks(kind, x.shape), theirs)


def _row(place: Path, name: str, path: Path, ours: dict[str, Any], theirs: dict[str, Any]) -> Row:
    row = Row(f"opening {name}, and 16 tokens", "transformers", "", f"logits ≤ {TOLERANCE:g}", None)
    if "error" in ours:
        return replace(row, measured=ours["error"], met=False)
    size = path.stat().st_size if path.is_file() else sum(one.stat().st_size for one in path.iterdir())
    told = lambda side: side.get("error", "")[:60] or f"{1000 * side['seconds']:.0f} ms, {side['peak'] / size:.1f}×"
    kept = lambda side, name: place / side / f"{name.replace('/', '-')}.npy"
    folder = kept("theirs", name.replace(" / file", " / folder"))
    reference = folder if folder.is_file() else kept("theirs", name)
    if not reference.is_file():
        return replace(row, measured=f"{told(ours)} / {told(theirs)}", target="")
    mine, others = (np.load(path).astype(np.float64) for path in (kept("ours", name), reference))
    apart = float(np.abs(mine - others).max() / np.abs(others).max())
    note = f"{apart:.0e}; of {size / 2**20:.0f} MiB: {told(ours)} / {told(theirs)}"
    return replace(row, measured=note, met=apart <= TOLERANCE)
