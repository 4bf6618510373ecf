"""What undo and redo step through: a State, the story told so far, the notes, and the models that these name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from circuitlab.session_files.session import ModelEntry, Note
from circuitlab.state.state import State
from circuitlab.story.story import Story


@dataclass(frozen=True)
class Work:
    """The work of a person on one session; the window's layout is not part of it."""

    state: State
    story: Story = Story()
    notes: tuple[Note, ...] = ()
    models: Mapping[str, ModelEntry] = field(default_factory=dict[str, ModelEntry])
