"""A finding shown, from the first look to the figures of a paper, on a real X server with two screens (`tests/shown.py`)."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from PySide6.QtGui import QImage

from tests.patience import SECONDS
from tests.shown import BEAMER, HEAD, LAPTOP, WIDTHS, show


def in_pdf(tool: str, path: Path, *more: str) -> str:
    """What poppler reads from a PDF."""
    return subprocess.run([tool, str(path), *more], capture_output=True, text=True, check=True, timeout=SECONDS).stdout


@pytest.mark.slow
@pytest.mark.timeout(1300)
@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="needs poppler: pdftotext, pdfinfo")
def test_a_finding_is_shown_from_the_first_look_to_the_figures_of_a_paper(tmp_path: Path) -> None:
    seen = show(tmp_path)
    assert seen["head"] == HEAD, "the first of the ranking by prefix matching"
    assert seen["window"] == list(LAPTOP), "whatever is kept, the window stays on its screen"
    titles = seen["titles"]
    assert len(set(titles)) == 5
    assert [step["number"] for step in seen["steps"]] == [0, 1, 2, 3, 4], "four presses"
    for step in seen["steps"]:
        assert (step["stage"], step["place"], step["window"]) == ("beamer", list(BEAMER), "laptop")
        assert "All 5 views ready" in step["ready"] and HEAD in step["notes"]
    assert seen["computed"] == [] and seen["unchanged"]
    pictures = [QImage(f"{tmp_path}/08 step {number} beamer.png") for number in range(1, 6)]
    assert all((one.width(), one.height()) == BEAMER[2:] for one in pictures)
    assert len({bytes(one.constBits()) for one in pictures}) == 5
    assert QImage(f"{tmp_path}/09 frozen beamer.png") == pictures[-1]
    page = html.unescape((tmp_path / "talk.html").read_text("utf-8"))
    words = re.sub(r"\s+", " ", in_pdf("pdftotext", tmp_path / "talk.pdf", "-"))
    assert all(title in page and title in words for title in titles)
    for width in WIDTHS:
        figure = tmp_path / f"fig{width}.pdf"
        size = re.search(r"Page size: +([\d.]+) x", in_pdf("pdfinfo", figure))
        assert size is not None and float(size[1]) * 25.4 / 72 == pytest.approx(width, abs=0.5)
        assert "zeroed" in in_pdf("pdftotext", figure, "-"), "the step was kept with the head cut"
        with zipfile.ZipFile(figure.with_suffix(".zip")) as data:
            assert data.testzip() is None and data.namelist()
