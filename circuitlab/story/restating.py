"""Words over other words: as few as mean the same. A step that comes to stand behind other steps is restated over their words.

Nothing is opened: what a word means is compared with every default written out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from circuitlab.disk.json_types import JsonDict, JsonObject
from circuitlab.model.plain import to_json
from circuitlab.model.subject import Conventions, Head
from circuitlab.state.cuts import ablation
from circuitlab.story.setup import BEST, FINAL, LAYOUT, SELECTION, SUBJECT, Other, Setup, Views

View = Mapping[str, JsonObject]  # controls by panel

_UNREAD = object()
_FRONT = ("front", "bos")
_GROUPS = (  # words that are left out together; those that make others void, as a model does, come before them
    *(_FRONT if name == "bos" else (name,) for name in (*SUBJECT, "draft") if name != "front"),
    ("heads", "edge", "edge_kind"),
    *((name,) for name in (*SELECTION, "pin", "compare")),
)


def fewest(words: Setup, result: Callable[[Setup], object]) -> Setup:
    """As few of the words as have the same result."""
    whole = result(words)
    for group in _GROUPS:
        if any(getattr(words, name) is not None for name in group):
            fewer = replace(words, **dict.fromkeys(group))
            if result(fewer) == whole:
                words = fewer
    for name in (*_FRONT, "edge", "edge_kind"):
        fewer = replace(words, **{name: None})
        if result(fewer) == whole:
            words = fewer
    return words


def meaning(setup: Setup, bos: bool | None, pins: tuple[bool, ...] = ()) -> tuple[Setup | str | None, ...]:
    """A setup's explicit words, then each pin's label (None for a whole setup) and explicit words: equal for equal States.

    `bos`, `pins`: what no word about BOS means, for the setup and for each pin; None where the model is not asked.
    """
    pinned = setup.pin if isinstance(setup.pin, tuple) else ()
    bos_of_pins: tuple[bool | None, ...] = (*pins, *(None for _ in pinned))
    labels = (one.label if isinstance(one, Other) else None for one in pinned)
    setups = (one.of(setup) if isinstance(one, Other) else one for one in pinned)
    return _explicit(setup, bos), *labels, *(_explicit(one, its_bos) for one, its_bos in zip(setups, bos_of_pins, strict=False))


def _explicit(setup: Setup, bos: bool | None) -> Setup:
    """The words of a setup with every default written out, without its pins and the window's layout; `bos` as in `meaning`."""
    edge = setup.edge or ()
    heads = setup.heads or (str(Head(0, 0)),)
    edits, cut = setup.edits, setup.cut
    if edits is None and not any(head.startswith(BEST) for head in cut or ()):
        edits, cut = tuple((ablation(Head.parse(head)), True) for head in cut or ()), None
    return replace(
        setup,
        checkpoint=FINAL if setup.checkpoint is None else setup.checkpoint,
        bos=False if setup.front else bos if setup.bos is None else setup.bos,
        front=setup.front or "",
        special=True if setup.special is None else setup.special,
        draft=setup.draft or "",
        heads=tuple(dict.fromkeys((edge[1], *(setup.heads or edge[:1])))) if edge else heads,
        cut=cut,
        edits=edits,
        conventions=setup.conventions or Conventions(),
        edge=edge,
        edge_kind=(setup.edge_kind or "K") if edge else None,
        destination=() if setup.destination is None else setup.destination,
        source=() if setup.source is None else setup.source,
        locked=setup.destination not in (None, ()) if setup.locked is None else setup.locked,
        token="" if setup.token is None else setup.token,
        target=setup.target or (),
        pin=None,
        compare=setup.compare or "now",
        show=(),
        arrange="",
        alone=False,
        stage=(),
        zoom={},
        play=None,
        view={},
        unknown={},
    )


def restated(whole: Setup, before: Setup, views: Views) -> Setup:
    """The words that say over `before` what the complete setup `whole` says: `restated(…).over(before)` shows the same.

    "best …" choices stay. `whole` must name its model and its prompt where `before` does: no word
    takes these back.
    """
    explicit = _explicit(whole, None)
    pins = whole.pin if isinstance(whole.pin, tuple) else ()
    words = replace(explicit, cut=None if whole.edits is not None else whole.cut or (), edits=whole.edits, pin=pins)
    setup = fewest(words, lambda fewer: meaning(fewer.over(before), None))
    if _layout(whole) not in (_layout(Setup()), _layout(before)):
        setup = replace(setup, **{name: getattr(whole, name) for name in LAYOUT})
    return replace(setup, zoom=whole.zoom, play=whole.play, view=_over(whole.view, before.view, views), unknown=whole.unknown)


def same_view(shown: Setup, whole: Setup, views: Views) -> bool:
    """Whether `shown` shows what the complete setup `whole` does, however its words put it."""
    placed = _layout(whole) in (_layout(Setup()), _layout(shown))
    own = lambda setup: (setup.zoom, setup.play, setup.unknown)
    same = placed and own(shown) == own(whole) and not _over(whole.view, shown.view, views)
    return same and meaning(shown, None) == meaning(whole, None)


def _layout(setup: Setup) -> tuple[object, ...]:
    return tuple(getattr(setup, name) for name in LAYOUT)


def _over(whole: View, before: View, views: Views) -> dict[str, JsonDict]:
    """The controls of `whole` over those `before`; one that only these have is set back to its default."""
    by_panel = {}
    for name in dict.fromkeys((*whole, *before)):
        controls, others = whole.get(name, {}), before.get(name, {})
        default = to_json(views[name]()) if name in views else {}
        changed = {n: v for n, v in controls.items() if v != others.get(n, default.get(n, _UNREAD))}
        back = {n: default[n] for n, v in others.items() if n not in controls and n in default and v != default[n]}
        if changed or back or (others and not controls and name not in views):
            by_panel[name] = changed | back
    return by_panel
