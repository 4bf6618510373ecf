"""`OUT/progress.json`: what another program reads of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from circuitlab.cli.parser import main
from circuitlab.training.progress import Progress

WORDS = "the grey heron stood in the shallow water and the small boat went by; def f(x): return x + 1\n"
FIELDS = {"step", "steps", "loss", "tokens_per_second", "tokens", "seconds", "state", "error"}


def _read(out: Path) -> dict:
    return json.loads((out / "progress.json").read_text())


def test_it_is_written_at_most_once_a_second_but_a_new_state_at_once(tmp_path: Path) -> None:
    now = [0.0]
    progress = Progress(tmp_path, 9, lambda: now[0])
    progress.update("tokenising")
    assert _read(tmp_path) == dict.fromkeys(FIELDS, 0) | {"steps": 9, "loss": None, "state": "tokenising", "error": ""}
    progress.update("training", step=1, loss=2.5)
    progress.update("training", step=2)
    assert (_read(tmp_path)["step"], _read(tmp_path)["loss"]) == (1, 2.5)
    now[0] = 1.5
    progress.update("training", step=3, loss=float("nan"))
    assert (_read(tmp_path)["step"], _read(tmp_path)["loss"]) == (3, None)
    progress.failed("why")
    assert (_read(tmp_path)["state"], _read(tmp_path)["error"]) == ("failed", "why")
    assert [p.name for p in tmp_path.iterdir()] == ["progress.json"]


def test_a_run_says_that_it_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text(WORDS * 60 + "".join(chr(i) for i in range(0xC0, 0x180)) * 9, encoding="utf-8")
    states: list[str] = []
    update = Progress.update
    monkeypatch.setattr(Progress, "update", lambda self, state, **v: (states.append(state), update(self, state, **v))[1])
    assert main(["train", "tiny", "--text", str(tmp_path / "a.txt"), "--out", str(tmp_path / "o"), "--no-measure"]) == 0
    result = _read(tmp_path / "o")
    assert set(result) == FIELDS
    assert (result["step"], result["steps"], result["state"], result["error"]) == (20, 20, "done", "")
    assert result["loss"] > 0 and result["tokens"] == 12 * 4 * 24 + 8 * 2 * 32 and result["tokens_per_second"] > 0
    assert list(dict.fromkeys(states)) == ["tokenising", "measuring", "training", "done"]


def test_a_run_says_why_it_failed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("ab " * 400)
    assert main(["train", "tiny", "--text", str(tmp_path / "a.txt"), "--out", str(tmp_path / "o")]) == 3
    result = _read(tmp_path / "o")
    assert result["state"] == "failed"
    assert "vocabulary" in result["error"]
