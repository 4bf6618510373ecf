"""The example notebook, executed in a fresh kernel somewhere else: what it says is true, and everything in it shows itself."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circuitlab import api
from circuitlab.analysis.base import analyses
from circuitlab.disk.paths import model_dir
from circuitlab.engine.request import Request
from tests.figures.test_report import checked
from tests.reference.slow_trained import ran, weights

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
PROGRAM = Path(__file__).with_name("run_notebook.py")
FACTS = """
import json
pairs = {"head": head, "earlier": earlier, "tokens": model.tokens(text), "composition": float(strongest["scores"].iloc[0]),
    "pattern": pattern.iloc[-1].tolist(), "losses": losses, "change": change["Δ loss"].tolist(),
    "curve": curve["heads"].tolist(), "steps": curve["steps"].tolist()}
json.dump(pairs, open("facts.json", "w"))
"""


def _source() -> dict[str, Any]:
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))


def test_the_notebook_is_stored_with_what_it_showed_and_nothing_of_the_machine() -> None:
    """A page of the web shows its numbers and pictures; the report inside has no script there and would be most of the file."""
    cells = [cell for cell in _source()["cells"] if cell["cell_type"] == "code"]
    assert len(cells) > 10 and NOTEBOOK.stat().st_size < 400_000
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    for cell in cells:
        (output,) = cell["outputs"]
        assert output["output_type"] == "execute_result" and output["data"]["text/plain"]
        assert not cell["metadata"] and not output["metadata"], "when it ran is no result"
    stored = json.dumps([cell["outputs"] for cell in cells])
    assert sum("image/svg+xml" in cell["outputs"][0]["data"] for cell in cells) == 3 and "<iframe" not in stored
    assert not re.search(r"/(?:home|root|tmp|work|Users)/|[A-Z]:\\\\|\b20\d\d-\d\d-\d\d\b|\d:\d\d:\d\d", stored)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]], dict[str, str]]:
    """The folder in which it ran, its code cells, those of copied Python behind them, and what an interrupted kernel said."""
    folder = tmp_path_factory.mktemp("elsewhere")
    subject = api.open("attn-only-2l").subject(text="a b a b", cut="L1H1")
    requests = {name: Request.named(name, analyses()[name].params(), subject) for name in ("token_loss", "attention")}
    copied = [api.snippet(requests["token_loss"]), api.snippet_of(requests)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "HOME": str(folder)}
    for name in ("QT_QPA_PLATFORM", "DISPLAY", "WAYLAND_DISPLAY"):
        environment.pop(name, None)
    command = [sys.executable, str(PROGRAM), str(NOTEBOOK), "out.ipynb", FACTS, *copied]
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    cells = json.loads((folder / "out.ipynb").read_text(encoding="utf-8"))["cells"]
    return folder, [cell for cell in cells if cell["cell_type"] == "code"], json.loads(run.stdout.splitlines()[-1])


@pytest.mark.slow
def test_every_cell_shows_its_result_once(done: tuple[Path, list[dict[str, Any]], dict[str, str]]) -> None:
    _, cells, _ = done
    pictures = 0
    for cell in cells[:-3]:
        source, last = "".join(cell["source"]), cell["source"][-1]
        assert [output["output_type"] for output in cell["outputs"]] == ["execute_result"], (source, cell["outputs"])
        kinds = set(cell["outputs"][0]["data"])
        assert "text/plain" in kinds and not {"image/png", "image/svg+xml"} <= kinds
        if last.startswith("model.figure("):
            pictures += 1
            assert kinds == {"text/plain", "image/svg+xml"}
    assert pictures == 3
    stored = [cell for cell in _source()["cells"] if cell["cell_type"] == "code"]
    for cell, before in zip(cells[:-3], stored, strict=True):  # kinds and words; digits may differ from machine to machine
        now, then = (one["outputs"][0]["data"] for one in (cell, before))
        assert set(then) in (set(now), set(now) - {"text/html"})
        words = [re.findall(r"[A-Za-zΔ_]{3,}", "".join(data["text/plain"])) for data in (now, then)]
        assert words[0] == words[1], "".join(cell["source"])
    frame = re.search(r'srcdoc="([^"]*)"', "".join(cells[-5]["outputs"][0]["data"]["text/html"]))
    assert frame is not None and "<iframe" in "".join(cells[-5]["outputs"][0]["data"]["text/html"])
    assert "attention" in checked(unescape(frame[1])).text.lower()


@pytest.mark.slow
def test_what_it_finds_is_so(done: tuple[Path, list[dict[str, Any]], dict[str, str]]) -> None:
    """Against float64 products of the files' tensors, without the package's code."""
    folder, _, _ = done
    facts = json.loads((folder / "facts.json").read_text())
    assert (facts["head"], facts["earlier"]) == ("L1H1", "L0H1")
    place = model_dir("attn-only-2l")
    w, tokens = weights(place, None), np.array([facts["tokens"]])
    whole, without = ran(w, tokens), ran(w, tokens, zero=(1, 1))
    np.testing.assert_allclose(facts["change"][1:], (without.losses - whole.losses)[0], atol=2e-3)
    np.testing.assert_allclose(facts["pattern"], whole.patterns[1][0, 1, -1], atol=1e-4)
    qk = w["layers.1.W_Q"][1] @ w["layers.1.W_K"][1].T
    ov = w["layers.0.W_V"][1] @ w["layers.0.W_O"][1]
    norm = np.linalg.norm
    np.testing.assert_allclose(facts["composition"], norm(ov @ qk.T) / norm(qk) / norm(ov), rtol=1e-4)
    for step, loss in facts["losses"].items():
        of_step = ran(weights(place, int(step)), tokens).losses[0, -4:].mean()
        np.testing.assert_allclose(loss, of_step, atol=2e-3)
    assert facts["curve"][0] < 0.1 < 0.8 < facts["curve"][-1] and facts["steps"] == sorted(facts["steps"])


@pytest.mark.slow
def test_what_it_saves_is_as_wide_as_a_column_and_opens_again(done: tuple[Path, list[dict[str, Any]], dict[str, str]]) -> None:
    folder, _, _ = done
    (file,) = folder.glob("*.pdf")
    box = re.search(rb"/MediaBox \[([^\]]*)\]", file.read_bytes())
    assert box is not None
    assert float(box[1].split()[2]) == pytest.approx(84 / 25.4 * 72, abs=1.0)
    state = api.session(file).now.state
    assert str(state.selection.head) == "L1H1" and len(state.subject.edits) == 1


@pytest.mark.slow
def test_copied_python_runs_in_a_cell_as_it_is_and_shows_its_result(
    done: tuple[Path, list[dict[str, Any]], dict[str, str]],
) -> None:
    _, cells, _ = done
    for cell, names in zip(cells[-2:], (("loss",), ("token_loss", "attention")), strict=True):
        said = "".join("".join(output.get("text", "")) for output in cell["outputs"])
        assert all(name in said for name in names) and "\t" in said and not [o for o in cell["outputs"] if "ename" in o]


@pytest.mark.slow
def test_a_kernel_shows_progress_and_an_interrupt_ends_the_work(done: tuple[Path, list[dict[str, Any]], dict[str, str]]) -> None:
    *_, said = done
    assert "head_scores" in said["shown"] and said["error"] == "KeyboardInterrupt"
    assert said["after"].split() == ["5", "0"], "the engine goes on"
