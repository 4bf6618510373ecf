"""A small file that is read once is read again when other bytes of its size and time are in its place."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from circuitlab.analysis.base import TextRef
from circuitlab.analysis.behaviour.over_prompts import OverPromptsParams
from circuitlab.engine.texts import Texts
from circuitlab.lessons.lesson import read
from circuitlab.plugins.plugin_files import additions_of
from circuitlab.session_files.file_table import file_sha256
from tests.copied import copied_with_times, touched

if sys.platform == "win32":
    pytest.skip("needs a ctime that moves with what is written", allow_module_level=True)

LESSON = '+++\ntitle = "T"\nabout = "A"\nminutes = 3\n+++\n\n## A step\n\n## Another\n'
PLUG_IN = "from circuitlab.testing import Panel\n\nPanel(name='one')\n"


def _prompts() -> Callable[[Path], object]:
    texts = Texts()
    return lambda path: texts.settled(OverPromptsParams(TextRef(str(path))))


@pytest.mark.parametrize(
    ("text", "before", "after", "look"),
    [
        (LESSON, "Another", "A third", lambda: read),
        (PLUG_IN, "one", "two", lambda: additions_of),
        ("a b\n", "a", "b", _prompts),
        ("a b\n", "a", "b", lambda: lambda path: file_sha256(str(path))),
    ],
    ids=["a lesson", "a plug-in", "prompts", "a file that a session names"],
)
def test_other_bytes_of_the_same_size_and_time_are_read(
    tmp_path: Path, text: str, before: str, after: str, look: Callable[[], Callable[[Path], object]]
) -> None:
    file, look_at = tmp_path / "file.py", look()
    file.write_text(text, "utf-8")
    first = look_at(file)
    touched(file)
    assert look_at(file) == first
    copied_with_times(text.replace(before, after).encode(), file)
    assert look_at(file) != first
    copied_with_times(text.encode(), file)
    assert look_at(file) == first
