"""The words of a step: what it sets, None where it leaves a thing as the step before had it. Their text form is in `words`.

`Setup.over` puts a step's words over those before it. A State needs the open model (`story/resolver`), as tokens given by text
need its tokenizer; `story/capture` turns a State into words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from circuitlab.disk.json_types import JsonDict, JsonObject
from circuitlab.model.intervention import Intervention
from circuitlab.model.subject import Conventions
from circuitlab.state.state import Compare, Kind
from circuitlab.story.zoom import Part

BEST = "best "
FINAL: Literal["final"] = "final"

Edits = tuple[tuple[Intervention, bool], ...]
Views = Mapping[str, type[Any]]  # the type of each panel's controls, by the panel's name


@dataclass(frozen=True)
class Random:
    """Repeated random tokens: a block drawn with `seed`, `repeats` times."""

    block: int = 25
    repeats: int = 2
    seed: int = 0


@dataclass(frozen=True)
class Encoded:
    """A text with the ids it had when it was saved, which are used whatever a tokenizer makes of the text now."""

    text: str
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Occurrence:
    """The last token of a text's n-th occurrence in the prompt, counted from 1, or from −1 at the end."""

    text: str
    occurrence: int = -1


@dataclass(frozen=True)
class Direction:
    """A target direction [d_model] in the normalised final residual stream."""

    values: tuple[float, ...]


@dataclass(frozen=True)
class Index:
    """A checkpoint by its place in the model's series, as the first session files had it."""

    index: int


@dataclass(frozen=True)
class Sweep:
    """A parameter of the constructed model, by `name`, from one value to another. `count`: in so many values; None: a whole
    number one by one, any other in as many as a film usually has.
    """

    name: str
    first: float
    last: float
    count: int | None = None


Prompt = str | tuple[int, ...] | Random | Encoded
Where = int | Occurrence | tuple[()]  # (): no position is selected
Token = str | int  # the text of one token, or its id; "": no token
Checkpoint = int | Index | Literal["final"]
Play = tuple[Checkpoint, Checkpoint] | Sweep  # a film: a training between two of its points, or a parameter


@dataclass(frozen=True)
class Setup:
    """What a step sets; None: nothing. Each word is explained in `story/words`.

    `pin` (): nothing is pinned; several: the first is the reference. `stage`: of the panels those that an audience sees first,
    (): all. `zoom`: by panel and mark, the visible part. `play`: the first and the last training step of a film, or the parameter
    that it plays. Both belong to their own step and are not carried over to the next one.
    `unknown`: words of a session file that this version does not know.
    """

    model: str | None = None
    checkpoint: Checkpoint | None = None
    prompt: Prompt | None = None
    bos: bool | None = None
    front: str | None = None
    special: bool | None = None
    draft: str | None = None
    heads: tuple[str, ...] | None = None
    cut: tuple[str, ...] | None = None
    edits: Edits | None = None
    conventions: Conventions | None = None
    edge: tuple[str, str] | tuple[()] | None = None
    edge_kind: Kind | None = None
    destination: Where | None = None
    source: Where | None = None
    locked: bool | None = None
    token: Token | None = None
    target: tuple[Token, ...] | Direction | None = None
    pin: tuple[Other | Setup, ...] | Literal["before"] | None = None
    compare: Compare | None = None
    show: tuple[str, ...] = ()
    arrange: str = ""
    alone: bool = False
    stage: tuple[str, ...] = ()
    zoom: Mapping[str, Part] = field(default_factory=dict[str, Part])
    play: Play | None = None
    view: Mapping[str, JsonObject] = field(default_factory=dict[str, JsonObject])
    unknown: JsonObject = field(default_factory=JsonDict)

    def over(self, before: Setup) -> Setup:
        """These words over the words `before`."""
        changes = {n: getattr(self, n) for n in _CARRIED if getattr(self, n) is not None}
        if self.pin is not None and self.compare is None:
            changes["compare"] = "difference" if self.pin else "now"
        if self.pin == "before":
            changes["pin"] = (replace(before, pin=None),)
        if self.edge == () and self.heads is None and self.model is None:  # of its two heads only the destination stays
            changes["heads"] = before.edge[1:] if before.edge else before.heads
        if self.show or self.arrange:
            changes |= {name: getattr(self, name) for name in LAYOUT}
        names = dict.fromkeys((*before.view, *self.view))
        view = {name: self._controls(before, name) for name in names}
        return replace(self._cleared(before), **changes, zoom=self.zoom, play=self.play, view=view, unknown=self.unknown)

    def _controls(self, before: Setup, name: str) -> JsonObject:
        """The controls of a panel; no control at all: each is the default again."""
        earlier, words = before.view.get(name, {}), self.view.get(name)
        return earlier if words is None else {**earlier, **words} if words else {}

    def _cleared(self, before: Setup) -> Setup:
        """`before` without the words that a word of this step makes void."""
        if self.model is not None:
            before = replace(before, checkpoint=FINAL, heads=None, cut=None, edits=None, edge=None, edge_kind=None)
        if self.model is not None or self.bos is not None or self.front is not None:  # bos and front are one choice
            before = replace(before, bos=None, front=None)
        if self.prompt is not None:
            before = replace(before, destination=None, source=None, locked=None, draft=None)
        if self.destination is not None:
            before = replace(before, locked=None)
        if self.heads is not None or self.edge is not None:  # heads and edge are one choice
            before = replace(before, heads=None, edge=None, edge_kind=None)
        if self.cut is not None or self.edits is not None:  # two forms of one thing
            before = replace(before, cut=None, edits=None)
        return before


LAYOUT = ("arrange", "show", "alone", "stage")


def placed(setup: Setup, layout: Setup) -> Setup:
    """A setup with the words of another's layout: the panels, their places, and what is seen of their figures."""
    return replace(setup, **{name: getattr(layout, name) for name in (*LAYOUT, "zoom")})


_CARRIED = tuple(f.name for f in fields(Setup) if f.name not in (*LAYOUT, "zoom", "play", "view", "unknown"))
SUBJECT = ("model", "checkpoint", "prompt", "bos", "front", "special", "cut", "edits", "conventions")
SELECTION = ("heads", "edge", "edge_kind", "destination", "source", "locked", "token", "target")


@dataclass(frozen=True)
class Other:
    """Another subject than the step's own, with its own selection; both share with the step what `words` do not set.

    `words`: those of `SUBJECT` and `SELECTION` alone. `label`: the name of a pin, "" to name it by what differs.
    """

    words: Setup = field(default_factory=Setup)
    label: str = ""

    def of(self, setup: Setup) -> Setup:
        """The step's setup on this subject. On another model, heads and cut stay only if they are "best …" choices."""
        words = replace(
            self.words, **{n: getattr(setup, n) for n in ("destination", "source", "locked") if getattr(self.words, n) is None}
        )
        if words.model is not None:
            live_only = lambda heads: tuple(h for h in heads or () if h.startswith(BEST)) or None
            heads = live_only(setup.heads) if words.heads is None and words.edge is None else words.heads
            cut = live_only(setup.cut) if words.cut is None and words.edits is None else words.cut
            words = replace(words, heads=heads, cut=cut)
        return replace(words.over(setup), pin=None)
