"""What is said to be held is what the process holds: eight models, one after the other, each asked once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from circuitlab.engine.engine import Engine
from circuitlab.engine.memory_report import holding
from circuitlab.engine.store import ModelStore
from circuitlab.model.subject import Conventions, ModelRef
from circuitlab.model.tensor_bytes import tensor_bytes
from tests.models import FULL, TINY, directory

CHILD = """
import ctypes, gc, json, sys
from circuitlab.analysis.behaviour.token_loss import TokenLossParams
from circuitlab.engine.memory_report import holding
from circuitlab.engine.request import Request
from circuitlab.model.subject import ModelRef, Subject
import circuitlab.api as lab

def resident():
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))

warm, *paths = sys.argv[1:]
engine, figures = lab.engine(), []
engine.store._room = 0

def ask(path):
    model = lab.open(path)
    model.compute("token_loss", text="one two one two " * 2)
    del model

ask(warm)
before, said_before = resident(), holding(engine).total
for path in paths:
    ask(path)
    figures.append((resident() - before, holding(engine).total - said_before))
print(json.dumps({"figures": figures, "open": engine.store.n_open, "cached": engine.cache.nbytes}))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: memory is read from /proc")
def test_the_memory_of_eight_models_is_what_is_said(tmp_path: Path) -> None:
    """By `lab.open`, one answer, `del`; freed memory goes back to the system at once, so that what stays is what is held."""
    large = {"d_model": 512, "n_heads": 8, "n_kv_heads": 8, "d_head": 64}
    kinds = replace(TINY, n_layers=4, **large), replace(FULL, n_layers=2, d_mlp=2048, **large)
    paths = [directory(tmp_path / f"m{i}", kinds[i % 2]) for i in range(8)]
    warm = directory(tmp_path / "warm")
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "OMP_NUM_THREADS": "1"}
    out = subprocess.run(
        [sys.executable, "-c", CHILD, str(warm), *map(str, paths)], capture_output=True, text=True, env=env, check=True
    )
    told = json.loads(out.stdout)
    print([f"{grown / 2**20:.0f} of {said / 2**20:.0f} MiB said" for grown, said in told["figures"]])
    assert told["open"] == 3 and len(told["figures"]) == 8
    for grown, said in told["figures"]:
        assert abs(grown - said) <= 0.15 * said, told


def test_tensors_are_counted_once_wherever_they_are_held(tmp_path: Path) -> None:
    shared = torch.zeros(100)

    class Holder:
        def __init__(self) -> None:
            self.views, self.other = [shared[:50], shared[50:]], {"a": torch.zeros(10, dtype=torch.float64)}
            self.make = lambda: shared

        def bound(self) -> None: ...

    holder = Holder()
    assert tensor_bytes(holder) == tensor_bytes(holder.make, holder.bound, [holder]) == 400 + 80
    engine = Engine(ModelStore())
    model = engine.store.open(ModelRef(f"file:{directory(tmp_path / 'm')}"))
    alone = holding(engine).models
    model.weights(Conventions(dtype="float64")).layer(0)
    assert holding(engine).n_models == 1 and holding(engine).models > alone
