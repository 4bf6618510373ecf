"""What every benchmark shares: a row of the table, fair timing, peak memory in a fresh process, a GPT-2-small-shaped model."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
WORK = ROOT / "bench-results"
THREADS = max(1, (os.cpu_count() or 1) - 1)


@dataclass(frozen=True)
class Row:
    """One line: what was measured, against what, the ratio (or figure), the target, whether it is met."""

    what: str
    against: str
    measured: str
    target: str
    met: bool | None


def ratio(what: str, against: str, value: float, target: float, note: str = "") -> Row:
    """A row whose ratio should be at most `target`."""
    return Row(what, against, f"{value:.2f}×{note}", f"≤ {target:g}×", value <= target)


def paired(a: Callable[[], Any], b: Callable[[], Any], rounds: int) -> tuple[float, float, float]:
    """Median seconds of a and of b, run in turn, and the median of a/b round by round."""
    times: list[tuple[float, float]] = []
    a(), b()
    for _ in range(rounds):
        began = time.perf_counter()
        a()
        middle = time.perf_counter()
        b()
        times.append((middle - began, time.perf_counter() - middle))
    return (
        statistics.median(t[0] for t in times),
        statistics.median(t[1] for t in times),
        statistics.median(t[0] / t[1] for t in times),
    )


def environment() -> dict[str, str]:
    """Passive waiting, offscreen Qt, no network; with bytecode, as whoever uses an installed program has it."""
    return {
        **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        "OMP_WAIT_POLICY": "PASSIVE",
        "GOMP_SPINCOUNT": "0",
        "OMP_NUM_THREADS": str(THREADS),
        "QT_QPA_PLATFORM": "offscreen",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(ROOT),
    }


def child(code: str, *words: str, python: str = sys.executable) -> dict[str, Any]:
    """Run Python code in a fresh process; its last line of output is JSON."""
    done = subprocess.run([python, "-c", code, *words], capture_output=True, text=True, env=environment(), cwd=ROOT, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}")
    return json.loads(done.stdout.strip().splitlines()[-1])


PEAK = """
def peak_reset():
    import ctypes, gc
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what the warm-up freed goes back, so that it does not hide what comes next
    open('/proc/self/clear_refs', 'w').write('5')
def peak():
    line = next(l for l in open('/proc/self/status') if l.startswith('VmHWM'))
    return int(line.split()[1]) * 1024
def rss():
    line = next(l for l in open('/proc/self/status') if l.startswith('VmRSS'))
    return int(line.split()[1]) * 1024
"""


def gpt2_small() -> Path:
    """A Hugging Face GPT-2 directory of GPT-2 small's shape with random weights, made once."""
    path = WORK / "gpt2-small-shape"
    if not (path / "model.safetensors").is_file():
        import torch
        from transformers import GPT2Config, GPT2LMHeadModel

        torch.manual_seed(0)
        GPT2LMHeadModel(GPT2Config()).save_pretrained(path)
    return path
