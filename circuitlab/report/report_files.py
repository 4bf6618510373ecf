"""Reports as files: which suffix is written how."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from circuitlab.disk.files import need_writable
from circuitlab.disk.formats import REPORTS, suffixes
from circuitlab.draw.look.paper import Paper
from circuitlab.errors import UsageError
from circuitlab.report.content import Report
from circuitlab.report.page import page_parts
from circuitlab.report.pages import pages_parts
from circuitlab.report.plates import PAPER

REPORT_PAPER = PAPER
# (a report, whether with asides, how figures are set) -> the file in parts, one for each figure, some of them empty
Writer = Callable[[Report, bool, Paper], Iterator[bytes]]

_WRITERS: dict[str, Writer] = {
    ".html": lambda report, asides, paper: (part.encode("utf-8") for part in page_parts(report, asides, paper)),
    ".pdf": pages_parts,
}


def writer_of(path: Path) -> Writer:
    """What writes a file of this suffix. Raises `UsageError` for one that no report has.

    `BadMachine` where nothing can be written there: that is said before anything is computed.
    """
    if path.suffix.lower() not in _WRITERS:
        raise UsageError(
            "A report cannot be written in this format.",
            expected=" ".join(suffixes(REPORTS)),
            got=path.suffix or "no suffix",
            remedy="Give the file one of these endings.",
        )
    need_writable(path)
    return _WRITERS[path.suffix.lower()]
