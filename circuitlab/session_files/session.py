"""A session: where one stands, the story told so far, the notes, and the models that these name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from circuitlab.disk.formats import SESSION
from circuitlab.disk.json_types import JsonDict, JsonObject
from circuitlab.model.subject import ModelRef
from circuitlab.story.setup import Setup
from circuitlab.story.story import Story

SUFFIX = SESSION
UNCHOSEN = ("heads", "places")
Unknown = JsonObject  # words that this version does not know, kept to be written back


@dataclass(frozen=True)
class ModelEntry:
    """A model of a session: its reference without a checkpoint, and what identifies it on another machine.

    `sha256`: of its weight files, "" while they have not been read; `settings`: of what else decides its numbers
    (`OpenModel.settings_sha256`), "" where it is not known. `earlier`: paths at which it was before.
    """

    ref: ModelRef
    sha256: str = ""
    earlier: tuple[str, ...] = ()
    settings: str = ""
    unknown: Unknown = field(default_factory=JsonDict)


@dataclass(frozen=True)
class FileEntry:
    """A person's own file that a panel's setting names: its absolute path and the hash of its bytes."""

    path: str
    sha256: str = ""
    unknown: Unknown = field(default_factory=JsonDict)


@dataclass(frozen=True)
class Note:
    """A note about one thing: a head ("L1H1"), an edge (two heads), a token (its text or id) or a panel; of a model by its name.

    Exactly one of `head`, `edge`, `token`, `panel` is set, or none for a note about the session.
    """

    text: str
    model: str = ""
    head: str = ""
    edge: tuple[str, str] | None = None
    token: str | int | None = None
    panel: str = ""
    unknown: Unknown = field(default_factory=JsonDict)


@dataclass(frozen=True)
class Session:
    """All that a session file says. `now`: complete words. `docks`: the window's own layout, for the person who left it.

    `models`, `files`: by the names that `now`, the steps and the notes use. `unchosen`: of a picture's view, which of `UNCHOSEN`
    in its selection nobody has chosen: the figure does not mark them. `plugins`: the name and version of the plug-in that has a
    panel which these words name, by that panel's name.
    """

    models: Mapping[str, ModelEntry] = field(default_factory=dict[str, ModelEntry])
    now: Setup = Setup()
    story: Story = Story()
    notes: tuple[Note, ...] = ()
    files: Mapping[str, FileEntry] = field(default_factory=dict[str, FileEntry])
    docks: str = ""
    unknown: Unknown = field(default_factory=JsonDict)
    unchosen: tuple[str, ...] = ()
    plugins: Mapping[str, str] = field(default_factory=dict[str, str])

    def setup(self) -> Setup:
        """The complete words of where one stands: those of `now`, and what they imply, as a pin implies a difference."""
        return self.now.over(Setup())

    def refs(self) -> dict[str, ModelRef]:
        """The reference of each model by its name, for a `Resolver`."""
        return {name: entry.ref for name, entry in self.models.items()}
