"""Two hundred mutated files, each of which opens or gives a typed error; `make fuzz` opens two thousand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.fuzz.cases import build_corpus
from tests.fuzz.runner import run, seeds

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: memory is read from /proc")


def test_mutated_files_open_or_say_why_not() -> None:
    report = run(seeds(200, 0))
    assert report.count == 200
    assert not report.failures, report.table()
    assert report.workers == 1
    kinds = set(report.outcomes)
    assert any(kind.startswith("opened") for kind in kinds)
    assert len(kinds) > 20, report.table()  # the mutations reach many different checks


def test_what_is_mutated_is_valid(tmp_path: Path) -> None:
    from circuitlab.model.loading import open_model

    for name, path in build_corpus(tmp_path).items():
        if name not in ("nano", "llama2c"):
            assert open_model(path).weights.config.n_layers == 2, name
