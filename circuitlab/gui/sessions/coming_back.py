"""What a window begins with after the one before: its layout, and at a start without a model the session it was left with."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from pathlib import Path

from circuitlab.disk.file_lock import holder_of
from circuitlab.engine.engine import Engine
from circuitlab.errors import CircuitLabError, reason
from circuitlab.gui.sessions.file_work import Searcher, Staged
from circuitlab.gui.sessions.found_elsewhere import elsewhere_words
from circuitlab.session_files.assembly import work_of
from circuitlab.session_files.last import Last, Stamp, last
from circuitlab.session_files.session import Session
from circuitlab.session_files.session_lock import session_lock
from circuitlab.story.setup import Views, placed

log = logging.getLogger("circuitlab.sessions")
PATIENCE = 0.5  # s for finding the models of a file before the window is there; after it, they are looked for behind the window
ASKED_FOR = "It is kept: File → Recover a session…"


@dataclass(frozen=True)
class Return:
    """What is come back to. `docks`: the layout, as the window wrote it; `first`: no window was closed here before.

    `staged`: the session, its models open. `opens`: the file that has to be opened once the window can ask about its models.
    `stamp`: of what was come back to. `problem`: for the status line.
    """

    docks: str = ""
    first: bool = False
    staged: Staged | None = None
    opens: Path | None = None
    stamp: Stamp | None = None
    problem: str = ""


def where_one_stopped(engine: Engine, views: Views, bare: bool) -> Return:
    """What the last window left. `bare`: its session is wanted, too. Opens models; never raises a `CircuitLabError`."""
    try:
        left = last()
    except CircuitLabError as error:
        log.warning("%s", error)
        return Return(problem=f"The last session cannot be read: {reason(error)}")
    if left is None:
        return Return(first=True)
    layout_alone = Return(left.session.docks)
    if not bare:
        return layout_alone
    if left.of is not None and left.of.exists():
        return _file(layout_alone, left, left.of, engine, views)
    try:
        staged = _staged(left, engine, views)
    except CircuitLabError as error:
        log.warning("the last session is not opened: %s", error)
        remedy = f" {ASKED_FOR}" if left.unsaved and left.of is None else ""
        return replace(layout_alone, problem=f"The last session cannot be opened: {reason(error)}{remedy}")
    remark = "" if left.of is None else f"{left.of.name} is gone; this is the session as it was saved last."
    return replace(layout_alone, staged=staged, stamp=left.stamp, problem=remark)


def _staged(left: Last, engine: Engine, views: Views) -> Staged:
    """A session without a file, with its models where they were."""
    work = work_of(left.session, engine, views)
    return Staged(None, left.session, Path.cwd(), left.unsaved or left.of is not None, work)


def _file(layout_alone: Return, left: Last, path: Path, engine: Engine, views: Views) -> Return:
    """The session of a file; laid out as it was left, which is no change that would have been saved."""
    if holder_of(session_lock(path).path) is not None:
        return layout_alone  # another window works on it: this one begins anew
    until = time.monotonic() + PATIENCE
    try:
        staged = Searcher(engine, views, stopped=lambda: time.monotonic() > until).stage(path)
    except CircuitLabError as error:
        log.info("%s is opened behind the window: %s", path, reason(error))
        return replace(layout_alone, opens=path)
    if staged.work is None:
        return replace(layout_alone, opens=path)
    remark = elsewhere_words(staged)
    staged = replace(staged, session=_laid_out(staged.session, left.session))
    return replace(layout_alone, staged=staged, stamp=left.stamp, problem=remark)


def _laid_out(session: Session, left: Session) -> Session:
    return replace(session, docks=left.docks, now=placed(session.now, left.now))
