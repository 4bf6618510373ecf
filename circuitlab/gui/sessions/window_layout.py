"""The layout of the window in a session: as words for any window, and in Qt's own form for the person who left it."""

from __future__ import annotations

from dataclasses import replace

from circuitlab.gui.lessons.layout import arrangement_of
from circuitlab.gui.panel.panel_dock import PanelDock
from circuitlab.gui.places.arrangements import ARRANGEMENTS
from circuitlab.gui.places.layout import Layout
from circuitlab.gui.places.saved_layout import layout_from_text
from circuitlab.session_files.session import Session
from circuitlab.story.setup import Setup


def layout_words(layout: Layout) -> Setup:
    """The words `arrange`, `show`, `alone` and `zoom`: the arrangement, the panels in front and what is seen of their figures,
    and whether one has the whole window.
    """
    arrange = layout.name if layout.name in ARRANGEMENTS else layout.declared.of
    if layout.maximised:
        show = (layout.maximised.removeprefix("dock."),)
    else:
        show = tuple(name for name, dock in layout.sizes.in_front().items() if isinstance(dock, PanelDock))
    return Setup(arrange=arrange, show=show, alone=bool(layout.maximised), zoom=layout.zooms.words(show))


def session_words(layout: Layout) -> Setup:
    """The same for a session, which comes back as it was left: what is seen of every figure, behind tabs too."""
    return replace(layout_words(layout), zoom=layout.zooms.words())


def restore(layout: Layout, session: Session) -> None:
    """Lay the window out as a session left it; where Qt's own form cannot be used, by the words. Without either it stays."""
    now, saved = session.now, layout_from_text(session.docks)
    shown = tuple(name for name in now.show if name in layout.docks)
    restored = saved is not None and layout.restore_layout(saved)
    if not restored and (arrangement := arrangement_of(now.arrange, shown)) is not None:
        layout.place(arrangement)
    if now.alone and shown and not layout.maximised:
        layout.toggle_maximised(layout.docks[shown[-1]])
