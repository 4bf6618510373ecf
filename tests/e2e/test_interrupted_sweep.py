"""Ctrl+C while a sweep is answered, in one process and in several: status 130, its tables written, no process left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from tests.patience import SECONDS

SPEC = """
[models]
open = ["attn-only-1l"]
[[prompts]]
texts = [{texts}]
[[analyses]]
name = "token_loss"
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_done_is_kept(tmp_path: Path, workers: int) -> None:
    spec, out = tmp_path / "spec.toml", tmp_path / "out"
    texts = [f"The {i}th of them was the last but one of all." for i in range(2000)]
    spec.write_text(SPEC.format(texts=", ".join(f'"{text}"' for text in texts)))
    command = [sys.executable, "-m", "circuitlab", "sweep", str(spec), "-o", str(out), "--workers", str(workers)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True) as sweep:
        journal = out / "journal.jsonl"
        while sweep.poll() is None and not (journal.is_file() and journal.stat().st_size):
            pass
        os.killpg(sweep.pid, signal.SIGINT)  # as a terminal does it: every process of the group
        _, told = sweep.communicate()
    assert sweep.returncode == 130, told
    assert "Traceback" not in told and "the same command goes on from there" in told
    deadline = time.monotonic() + SECONDS
    with pytest.raises(ProcessLookupError):  # the one that Python starts beside others to tidy up goes a little later
        while time.monotonic() < deadline:
            os.killpg(sweep.pid, 0)
    table = pd.read_csv(out / "table.csv")
    done = table[table["status"] == "done"]
    assert 0 < len(done) < len(table)
    status = subprocess.run([*command[:4], "--status", "-o", str(out), "x"], capture_output=True, text=True, check=True).stdout
    assert "nobody is at work on it" in status
