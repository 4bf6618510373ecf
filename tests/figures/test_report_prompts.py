"""The prompts of a report and of a sheet, in full: whatever their tokens are, each once, read back to the very ids."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from circuitlab import api
from circuitlab.report.page import page_of
from circuitlab.report.pages import pages_parts
from circuitlab.report.sheet import sheet_of
from tests.figures.test_report import HOSTILE, Parsed, content_of, hostile  # noqa: F401
from tests.figures.test_sheets import TEXT, sheet
from tests.patience import SECONDS
from tests.unit.test_session_results import talk

pytestmark = pytest.mark.usefixtures("qapp")  # pictures need one


def prompts_of(text: str) -> list[list[int]]:
    """The ids of every prompt that a text gives."""
    return [list(map(int, ids.split())) for ids in re.findall(r"^ids: ([\d ]+)$", text, re.M)]


def test_a_report_gives_each_prompt_once_with_its_tokens(tmp_path: Path) -> None:
    content = content_of(talk(tmp_path))
    asked = [a for s in content.sections for one in s.figures for side in one.drawn.answers.values() for a in side.values()]
    read = {answer.prompt: answer for answer in asked if answer.prompt}
    assert len(read) == 1 == len(content.prompts)
    parsed = Parsed(page_of(content).replace("</dd>", "\n</dd>"))
    ((ids, answer),) = read.items()
    assert answer.token_text is not None
    assert prompts_of(parsed.text) == [list(ids)]
    assert f"tokens: {' '.join(map(answer.token_text, ids))}\n" in parsed.text
    assert "Steps 1, 2, 3; reference in step 2" in parsed.text and f"{len(ids)} tokens, BOS first" in parsed.text


@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="needs poppler: pdftotext, pdffonts, pdfimages")
def test_tokens_that_are_markup_are_the_text_of_a_prompt(hostile: Path, tmp_path: Path) -> None:  # noqa: F811
    content = content_of(hostile)
    (prompt,) = content.prompts
    parsed = Parsed(page_of(content).replace("</dd>", "\n</dd>"))
    assert prompts_of(parsed.text) == [list(prompt.ids)]
    shown = re.search("^tokens: (.*)$", parsed.text, re.M)
    assert shown is not None and len(shown[1].split(" ")) == len(prompt.ids)
    path = tmp_path / "a.pdf"
    path.write_bytes(b"".join(pages_parts(content)))
    out = subprocess.run(
        ["pdftotext", "-raw", str(path), "-"], check=True, capture_output=True, text=True, timeout=SECONDS
    ).stdout
    flat = re.sub(r"\s+", "", out)
    assert f"ids:{''.join(map(str, prompt.ids))}" in flat
    assert all(token in flat for token in ("</svg><script>alert(1)</script>", "&lt;", "]]>"))


def test_a_sheet_gives_the_prompts_beside_its_caption_and_not_in_it() -> None:
    made = sheet(("attention", "predictions"), pinned=True)
    caption = made.caption(made.drawn(".svg"))
    plain, latex = caption.plain(), caption.latex("a.pdf", 174)
    sides = [answer.prompt for cell in made.cells for side in ("now", "ref") for answer in cell.answers[side].values()]
    assert prompts_of(plain) == [list(ids) for ids in dict.fromkeys(sides)] and len(prompts_of(plain)) == 2
    texts = [json.loads(text) for text in re.findall(r"^Prompt \(.*?\): (\".*\")$", plain, re.M)]
    assert texts == [TEXT, TEXT.replace("Hursley", "Potters")] and "(A, B)" in plain and "(reference in A, B)" in plain
    body = "\n".join(line for line in latex.splitlines() if not line.startswith("%"))
    assert "at Brook End" not in body and "ids:" not in body and "at Brook End" in latex


def test_what_no_editor_shows_is_escaped_in_the_text_of_a_sheet() -> None:
    model, text = api.open("attn-only-2l"), 'a\u202eb\n\n\x1b[2J "c" \\ d'
    made = sheet_of(model.engine, model.state(text), ("predictions",))
    plain = made.caption(made.drawn(".svg")).plain()
    (line,) = re.findall("^Prompt: (.*)$", plain, re.M)
    assert json.loads(line) == text and line.isprintable()
    assert all(one.isprintable() for one in plain.split("\n"))


def test_a_prompt_that_is_patched_from_is_given_too() -> None:
    model = api.open("attn-only-2l")
    other = model.state(TEXT.replace("Hursley", "Potters"))
    state = model.state(TEXT)
    answer = model.compute("patching", text=TEXT, source=other.tokens, what="resid_pre", grid="all")
    from circuitlab.report.prompts import Prompts

    prompts = Prompts(model.engine)
    prompts.add([answer, answer], "step 1")
    assert [(one.ids, one.name) for one in prompts.texts()] == [
        (state.tokens, "step 1"),
        (other.tokens, "source of a patch in step 1"),
    ]
