"""Texts of lessons, steps and reports load nothing that they name."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PySide6.QtCore import QUrl
from PySide6.QtGui import QImage, QTextDocument
from PySide6.QtWidgets import QApplication

import circuitlab
from circuitlab.draw.look.closed_document import ClosedDocument
from circuitlab.gui.lessons import links
from circuitlab.gui.lessons.text_view import FEATURES, LessonText
from circuitlab.gui.presenter.step_words import first_line
from circuitlab.report.markup import prose

IMAGE = QTextDocument.ResourceType.ImageResource


@pytest.fixture
def picture(tmp_path: Path, qapp: QApplication) -> Path:
    """Of 40 × 300 points, so that who reads it is seen by its size."""
    image = QImage(40, 300, QImage.Format.Format_RGB32)
    image.fill(0xFF0000)
    assert image.save(str(tmp_path / "own.png"))  # pyright: ignore[reportCallIssue, reportArgumentType]
    return tmp_path / "own.png"


def names(picture: Path) -> list[str]:
    """How a text may name it."""
    return [str(picture), QUrl.fromLocalFile(str(picture)).toString(), picture.name, "/dev/zero", "file://host/share/a.png"]


def test_a_text_reads_no_picture(picture: Path, qtbot: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(picture.parent)
    plain = QTextDocument()
    plain.setMarkdown(f"![x]({picture})", FEATURES)
    assert plain.size().height() > 300  # so Qt does of itself
    view = LessonText()
    qtbot.addWidget(view)
    view.resize(400, 300)
    for name in names(picture):
        view.show_markdown(f"before\n\n![x]({name})\n\nafter", {})
        document = view.document()
        _ = document.size()
        for shown in (document.resource(IMAGE.value, QUrl(name)), view.loadResource(IMAGE.value, QUrl(name))):
            assert (shown.width(), shown.height()) == (1, 1), name
        assert "before" in document.toPlainText() and "after" in document.toPlainText()
        html = ClosedDocument()
        html.setHtml(f"<link rel='stylesheet' href='{name}'><img src='{name}'>")
        assert html.size().height() < 150 and html.resource(IMAGE.value, QUrl(name)).width() == 1
    assert first_line(f"![x]({picture})\n\nwords").strip("\ufffc ") in ("", "words")
    assert "<img" not in prose(f"![words]({picture})")


def test_no_document_and_no_editor_of_rich_text_is_made_elsewhere() -> None:
    package = Path(circuitlab.__file__).parent
    texts = {path.relative_to(package).as_posix(): path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    made = re.compile(r"\b(QTextDocument|QTextEdit|QTextBrowser)\(|\bclass \w+\((?:QTextDocument|QTextEdit|QTextBrowser)\)")
    assert {name for name, text in texts.items() if made.search(text)} == {
        "draw/look/closed_document.py",
        "gui/lessons/text_view.py",
    }


OTHERS = (
    "file:///etc/passwd",
    "file://host/share",
    "ftp://a.b",
    "javascript:1",
    "data:text/html,x",
    "smb://host/a",
    "\\\\host\\a",
)


@pytest.mark.parametrize("where", [*OTHERS, "https://example.org/a", "http://example.org"])
@pytest.mark.parametrize("yes", [True, False])
def test_a_link_opens_no_page_but_of_the_web_and_none_unasked(where: str, yes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[QUrl] = []
    monkeypatch.setattr(links.QDesktopServices, "openUrl", opened.append)
    monkeypatch.setattr(links, "confirmed", lambda *_: yes)
    told = SimpleNamespace(main=SimpleNamespace(docks={}), _window=None)
    told._leave_for = lambda url: links.Links._leave_for(told, url)  # pyright: ignore[reportArgumentType]
    kind, _, rest = where.partition(":")
    links.Links._follow(told, kind, rest)  # pyright: ignore[reportArgumentType]
    assert [url.toString() for url in opened] == ([where] if yes and where not in OTHERS else [])
