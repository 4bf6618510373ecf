"""The two ways between a State and the words of a step: whatever is said over whatever came before, the same State comes back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from circuitlab.engine.codec import params_of, to_json
from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, UsageError
from circuitlab.figures.contracts.panel import view_types
from circuitlab.lessons.lesson import files, read
from circuitlab.model.intervention import SITE_NAMES, Intervention, Site
from circuitlab.model.plain import fields
from circuitlab.model.subject import Conventions, Head, ModelRef, Target
from circuitlab.state.cuts import ablation
from circuitlab.state.state import Compare, Pin, Selection, State
from circuitlab.story.capture import StoreNames, setup_of
from circuitlab.story.resolver import Resolver
from circuitlab.story.setup import Direction, Encoded, Other, Setup
from circuitlab.story.words import read_setup, table_of
from circuitlab.story.zoom import TablePart
from tests.models import FULL, TINY, directory, with_special

Change = Callable[[State, Resolver], State]

VIEWS = view_types()
STEPS = (0, 64, 1000)
TEXTS = ("", "a<|bos|>b", "ab cab", "ab ab", "ünd so", "line\n two  ", "none")
HEADS = [Head(layer, head) for layer in range(2) for head in range(4)]
# Two whole States take minutes to shrink: what broke is said in seconds by the tests of one thing at a time.
UNSHRUNK = settings(
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@pytest.fixture(scope="module")
def resolver(tmp_path_factory: pytest.TempPathFactory) -> Resolver:
    """Of two models: one with a series of checkpoints, one with biases and an MLP, called "second"."""
    folder = tmp_path_factory.mktemp("models")
    first = with_special(directory(folder / "first", n_ctx=64), "<|x|>")
    final = load_file(first / "model.safetensors")
    (first / "checkpoints").mkdir()
    for i, step in enumerate(STEPS):
        save_file({n: (t * i / 2).half() for n, t in final.items()}, first / "checkpoints" / f"step-{step:06d}.safetensors")
    second = with_special(directory(folder / "second", replace(FULL, n_ctx=64)), "<|x|>", "<|y|>")
    names = {"second": ModelRef(f"file:{second}")}
    return Resolver(Engine(ModelStore(most=8)), VIEWS, State(ModelRef(f"file:{first}"), "typed"), models=names, tolerant=True)


def names_of(resolver: Resolver) -> StoreNames:
    return StoreNames(resolver.engine.store, {ref: name for name, ref in resolver.models.items()})


def refuse(key: str, what: str, expected: str, got: object) -> BadInput:
    return BadInput(f"{key}: {what}", expected=expected, got=str(got)[:80])


# -- random States ----------------------------------------------------------------------------------------------------------


def changed(kind: type[Any]) -> list[Any]:
    """Settings of a panel, each with one control that is not the default."""
    views = []
    for name, (control, default) in fields(kind).items():
        if control is bool:
            other: Any = not default
        elif get_origin(control) is Literal:
            other = next(choice for choice in get_args(control) if choice != default)
        elif control is str:
            other = default + "best a, b"
        elif control is Head or Head in get_args(control):
            other = Head(1, 2) if get_origin(control) is not tuple else (Head(1, 2), Head(0, 1))
        elif control in (int, float) or int in get_args(control):
            other = (3, 5) if get_origin(control) is tuple else 2 if control is int else 0.25
        else:
            continue
        with_other = replace(kind(), **{name: other})
        if with_other != kind() and _within_bounds(kind, name, other):
            views.append(with_other)
    return views


def _within_bounds(kind: type[Any], name: str, value: Any) -> bool:
    try:
        return getattr(params_of(kind, {name: to_json(value)}), name) == value
    except UsageError:
        return False


SETTINGS = {name: options for name, kind in VIEWS.items() if (options := changed(kind))}
positions = st.integers(0, 3)


@st.composite
def subjects(draw: st.DrawFn, resolver: Resolver) -> State:
    """A State of one of the two models without pins."""
    ref = draw(st.sampled_from([resolver.base.model, resolver.models["second"]]))
    config = resolver.engine.store.open(ref).opened.weights.config
    checkpoint = draw(st.none() | st.integers(0, 2)) if ref == resolver.base.model else None
    names, bos, special = names_of(resolver), draw(st.booleans()), draw(st.booleans())
    front = "" if bos else draw(st.sampled_from(["", "<|x|>"]))
    text = draw(st.sampled_from(TEXTS))
    ids = tuple(draw(st.lists(st.integers(0, 200), min_size=4, max_size=8)))
    kind = draw(st.sampled_from(["text", "ids", "both"]))
    tokens = ids if kind != "text" else names.encode(ref, text, front or bos, special) or ()
    text = "" if kind == "ids" else text
    edge = draw(st.none() | st.permutations(HEADS).map(lambda h: (h[0], h[1])))
    heads = tuple(draw(st.lists(st.sampled_from(HEADS), min_size=1, max_size=3, unique=True)))
    place = st.none() | st.integers(0, max(0, len(tokens) - 1)) if tokens else st.none()
    target = draw(
        st.lists(st.integers(0, 255), max_size=2).map(lambda t: Target(tuple(t)))
        | st.just(Target(direction=tuple(0.5 * i for i in range(config.d_model))))
    )
    selection = Selection(
        heads, draw(place), draw(place), draw(st.booleans()), draw(st.none() | st.integers(0, 255)), target=target
    )
    if edge is not None:
        selection = selection.with_edge(
            edge[0], edge[1], draw(st.sampled_from(["Q", "K", "V"])), *draw(st.sampled_from([(), heads]))
        )
    edits = tuple(draw(st.lists(st.tuples(interventions(len(tokens)), st.booleans()), max_size=3)))
    state = State(
        replace(ref, checkpoint=checkpoint), text, tokens, bos, selection=selection, edits=edits, special=special, front=front
    )
    conventions = st.builds(Conventions, st.booleans(), st.booleans(), st.sampled_from(["float32", "float64"]))
    views = {name: draw(st.sampled_from(SETTINGS[name])) for name in draw(st.sets(st.sampled_from(sorted(SETTINGS)), max_size=3))}
    views |= draw(st.sampled_from([{}, {"of tomorrow": {"x": [1, None], "best": "best head"}}]))
    return replace(state, conventions=draw(conventions), views=views, draft=draw(st.sampled_from(["", "a draft"])))


@st.composite
def interventions(draw: st.DrawFn, n: int) -> Intervention:
    name = draw(st.sampled_from(sorted(set(SITE_NAMES) - {"mlp_out"})))
    headless = name == "resid_pre"
    heads = () if headless else tuple(draw(st.lists(st.integers(0, 3), max_size=2, unique=True)))
    at = tuple(draw(st.lists(st.integers(0, n - 1), max_size=2, unique=True))) if n else ()
    sources = at[:1] if name in ("scores", "pattern") else ()
    site = Site(name, draw(st.integers(0, 1)), heads, at, sources)  # type: ignore[arg-type]
    path = draw(st.booleans()) and name in ("q", "k", "v") and site.layer == 1
    sender = Site("result", 0, (2,)) if path else None
    op = draw(st.sampled_from(["zero", "mean", "scale", "set", "freeze", "patch"]))
    value = (0.5,) if op in ("scale", "set") else ()
    source = (1, 2, 3) if op == "patch" or (op == "mean" and draw(st.booleans())) else ()
    align = tuple(i - 1 for i in range(n)) if op == "patch" and draw(st.booleans()) else ()
    return Intervention(op, site, value, source, align, sender)


@st.composite
def states(draw: st.DrawFn, resolver: Resolver) -> State:
    state = draw(subjects(resolver))
    pinned = draw(st.lists(subjects(resolver), max_size=3))
    pins = tuple(Pin(f"pin {i}", one.subject, one.selection, one.text) for i, one in enumerate(pinned))
    state = replace(state, pins=pins)
    compare = draw(st.sampled_from(["now", "reference", "difference"]))
    return replace(state, compare=compare if state.reference is not None else "now")


def words(block: str) -> Setup:
    """Words as a person would write them."""
    import tomllib

    return read_setup(tomllib.loads(block), refuse)


BY_HAND = (
    Setup(),
    words('heads = "best prefix_matching"\ncut = ["best prefix_matching"]'),
    words('random = { block = 5, repeats = 2 }\nedge = ["L0H1", "L1H2"]\ntoken = "a"\ntarget = "b"'),
    words('text = "ab cab"\ndestination = "ab"\nlocked = false\npin = { checkpoint = 64 }\n[view.attention]\nshow = "scores"'),
    words('text = "ab"\npin = "before"\ncut = ["L0H1"]\ncompare = "reference"\nzoom = { "attention/pattern" = [0, 1, 2, 3] }'),
)


# -- laws ---------------------------------------------------------------------------------------------------------------------


def check(resolver: Resolver, state: State, before: Setup) -> None:
    """The words of a State over those before it are that State, also once they have been written and read; said once."""
    names = names_of(resolver)
    for ids in (False, True):
        captured = setup_of(state, before, names, VIEWS, ids)
        assert resolver.state(captured.over(before)) == state
        table = json.loads(json.dumps(table_of(captured), ensure_ascii=True))
        again = read_setup(table, refuse)
        assert table_of(again) == table_of(captured) and resolver.state(again.over(before)) == state
        assert table_of(setup_of(state, captured.over(before), names, VIEWS, ids)) == {}, "said once"


def encoded(text: str, bos: bool, special: bool = True) -> Change:
    """A text with its own ids."""
    return lambda state, resolver: replace(
        state,
        text=text,
        tokens=names_of(resolver).encode(state.model, text, bos, special) or (),
        bos=bos,
        special=special,
        draft="",
    )


def fronted(text: str) -> Change:
    """A text behind a special token that is not BOS."""
    return lambda state, resolver: replace(
        encoded(text, False)(state, resolver), tokens=names_of(resolver).encode(state.model, text, "<|x|>") or (), front="<|x|>"
    )


def edited(*edits: tuple[Intervention, bool]) -> Change:
    return lambda state, _: replace(state, edits=edits)


def selected(**changes: Any) -> Change:
    return lambda state, _: state.select(**changes)


def pinned(label: str, change: Change, compare: Compare = "difference") -> Change:
    """The state itself with one thing changed, as its reference."""

    def with_pin(state: State, resolver: Resolver) -> State:
        other = change(state, resolver)
        return replace(state, pins=(Pin(label, other.subject, other.selection, other.text),), compare=compare)

    return with_pin


PATTERN, QUERY = Site("pattern", 1, (2,), (3,), (1,)), Site("q", 1, (0,))
CHANGES: dict[str, Change] = {
    "checkpoint": lambda state, _: replace(state, model=replace(state.model, checkpoint=1)),
    "model": lambda state, resolver: replace(state, model=resolver.models["second"]),
    "text": encoded("line\n two  ", True),
    "bos": encoded("ab cab", False),
    "front": lambda state, resolver: fronted("ab<|x|>")(state, resolver),
    "front, ids": lambda state, _: replace(state, text="", tokens=(257, 8, 9, 7), bos=False, front="<|x|>"),
    "front of no text": lambda state, resolver: fronted("")(state, resolver),
    "special": lambda state, resolver: replace(encoded("ab<|bos|>", True)(state, resolver), special=False),
    "special, its letters": encoded("ab<|bos|>", True, False),
    "tokens": lambda state, _: replace(state, text="", tokens=(7, 8, 9, 7)),
    "text with other ids": lambda state, _: replace(state, text="ab ab", tokens=(7, 8, 9, 7)),
    "draft": lambda state, _: replace(state, draft="a draft"),
    "cut": edited((ablation(Head(1, 2)), True)),
    "edits: off": edited((ablation(Head(1, 2)), False)),
    "edits: cells": edited((Intervention("zero", PATTERN), True)),
    "edits: value": edited((Intervention("scale", Site("z", 0, (1,)), (0.5,)), True)),
    "edits: source, align": edited(
        (Intervention("patch", Site("v", 0), source=(1, 2, 3), align=(-1, 0, 1, 2, -1, -1, -1)), True)
    ),
    "edits: from": edited((Intervention("zero", QUERY, path_from=Site("result", 0, (2,))), True)),
    "conventions": lambda state, _: replace(state, conventions=Conventions(centre=False, dtype="float64")),
    "heads": selected(heads=(Head(1, 2), Head(0, 1))),
    "edge": selected(edge=(Head(0, 3), Head(1, 2)), edge_kind="Q"),
    "edge, other heads": selected(edge=(Head(0, 3), Head(1, 2)), heads=(Head(1, 2), Head(1, 3))),
    "destination": selected(destination=3, locked=True),
    "destination, not locked": selected(destination=2),
    "source": selected(source=1),
    "token": selected(token=0),
    "target": selected(target=Target((97, 98))),
    "target: direction": selected(target=Target(direction=tuple(0.5 * i for i in range(TINY.d_model)))),
    "pin: subject": pinned("mine", edited((ablation(Head(1, 2)), True))),
    "pin: label": pinned("another", edited((ablation(Head(1, 2)), True))),
    "pin: selection": pinned("mine", selected(heads=(Head(0, 2),)), "reference"),
    "pin: front": pinned("mine", fronted("ab"), "now"),
    "pin: prompt": pinned("mine", encoded("ab", True), "now"),
    "view": lambda state, _: state.with_view("attention", VIEWS["attention"](show="scores")),
    "view: of another version": lambda state, _: replace(state, views={"of tomorrow": {"x": [1, None]}}),
}


@pytest.mark.parametrize(("name", "alike"), [*zip(CHANGES, ("draft", *CHANGES), strict=False)])
def test_one_thing_comes_back_whatever_was_said_before(resolver: Resolver, name: str, alike: str) -> None:
    names = names_of(resolver)
    plain = resolver.state(words('text = "ab cab"\nheads = ["L1H1"]'))
    other = reduce(lambda state, change: change(state, resolver), CHANGES.values(), plain)
    changed, neighbour = (CHANGES[one](plain, resolver) for one in (name, alike))
    assert plain != changed != neighbour
    for state, earlier in ((changed, plain), (plain, changed), (changed, other), (changed, neighbour)):
        check(resolver, state, setup_of(earlier, Setup(), names, VIEWS))
    check(resolver, changed, Setup())


@pytest.mark.slow
@settings(UNSHRUNK, max_examples=150)
@given(data=st.data())
def test_the_words_of_a_state_over_any_others_are_that_state(resolver: Resolver, data: st.DataObject) -> None:
    first, state = data.draw(states(resolver)), data.draw(states(resolver))
    by_hand = data.draw(st.sampled_from(BY_HAND))
    check(resolver, state, by_hand.over(setup_of(first, Setup(), names_of(resolver), VIEWS)))


def test_every_step_of_every_lesson_is_its_own_text_again() -> None:
    for path in files():
        for step in read(path).steps:
            if step.setup is not None:
                table = json.loads(json.dumps(table_of(step.setup)))
                assert read_setup(table, refuse) == step.setup


def test_a_change_of_one_thing_is_said_in_one_word(resolver: Resolver) -> None:
    names = names_of(resolver)
    state = resolver.state(words('text = "ab cab"\nheads = ["L1H1"]\ndestination = 3'))
    before = setup_of(state, Setup(), names, VIEWS)
    said = lambda changed: table_of(setup_of(changed, before, names, VIEWS))
    assert said(state) == {}
    assert said(state.with_heads(Head(0, 2))) == {"heads": ["L0H2"]}
    assert said(state.select(destination=None, locked=False)) == {"destination": []}
    assert said(replace(state, model=replace(state.model, checkpoint=1))) == {"checkpoint": 64}
    assert said(replace(state, conventions=Conventions(centre=False))) == {"conventions": {"centre": False}}
    assert said(state.with_view("attention", VIEWS["attention"](show="scores"))) == {"view": {"attention": {"show": "scores"}}}
    cells = {"op": "zero", "site": "pattern", "layer": 1, "heads": [2], "positions": [3], "sources": [1]}
    assert said(replace(state, edits=((Intervention("zero", PATTERN), False),))) == {"edits": [cells | {"on": False}]}
    path = {"op": "zero", "site": "q", "layer": 1, "heads": [0], "from": {"site": "result", "layer": 0, "heads": [2]}}
    sender = Site("result", 0, (2,))
    assert said(replace(state, edits=((Intervention("zero", QUERY, path_from=sender), True),))) == {"edits": [path]}
    assert said(state.with_text("ab", names.encode(state.model, "ab", True) or ())) == {"text": "ab"}
    other = Pin("mine", replace(state.subject, conventions=Conventions(centre=False)), state.selection, state.text)
    pin = {"conventions": {"centre": False}, "label": "mine"}
    assert said(replace(state, pins=(other,), compare="difference")) == {"pin": pin}


def test_what_is_seen_of_a_figure_belongs_to_its_step() -> None:
    table = '{ rows = [3, 9], sort = ["score", "down"], filter = "x" }'
    block = f'zoom = {{ "a/b" = [4, 3, 2, 1], "c/d" = {table}, "c/e" = {{ sort = [] }} }}'
    setup = words(block)
    assert setup.zoom == {
        "a/b": (4.0, 3.0, 2.0, 1.0),
        "c/d": TablePart((3, 9), ("score", "down"), "x"),
        "c/e": TablePart(sort=()),
    }
    assert read_setup(json.loads(json.dumps(table_of(setup))), refuse) == setup
    assert words('heads = ["L0H0"]').over(setup).zoom == {}, "the step behind it shows its figures whole"
    assert words(block).over(words('text = "ab"')).zoom == setup.zoom


def test_an_edge_is_let_go_by_an_empty_one() -> None:
    before = words('edge = ["L0H1", "L1H2"]\nheads = ["L1H2", "L1H3"]')
    after = words("edge = []").over(before)
    assert (after.edge, after.heads) == ((), ("L1H2",))
    assert words('edge = []\nheads = ["L0H0"]').over(before).heads == ("L0H0",)


def test_ids_are_used_whatever_the_tokenizer_makes_of_their_text(resolver: Resolver) -> None:
    setup = words('text = "ab"\ntokens = [7, 8, 9]')
    assert setup.prompt == Encoded("ab", (7, 8, 9))
    state = resolver.state(setup)
    assert (state.text, state.tokens) == ("ab", (7, 8, 9))


@pytest.mark.parametrize(
    "block",
    [
        "bos = 1",
        'edits = [{ op = "zero" }]',
        'edits = [{ op = "burn", site = "z", layer = 0 }]',
        'edits = [{ op = "zero", site = "z", layer = 0, on = 1 }]',
        'edits = [{ op = "zero", site = "z", layer = 0, colour = 1 }]',
        'cut = ["L0H1"]\nedits = []',
        "conventions = { fold = true }",
        'conventions = { dtype = "float16" }',
        'target = { direction = [1, "x"] }',
        "target = { direction = [inf] }",
        "token = -1",
        "zoom = { a = [1] }",
        "zoom = { a = [1, 2, 3, nan] }",
        "zoom = { a = [1, 2, true, 4] }",
        "zoom = { a = { rows = [1] } }",
        'zoom = { a = { sort = ["score"] } }',
        'zoom = { a = { sort = ["score", "left"] } }',
        "zoom = { a = { filter = 1 } }",
        "zoom = { a = { x = [1, 2] } }",
        "play = [0]",
        "play = {}",
        "play = { offset = [1] }",
        "play = { offset = [1, 2.5] }",
        "play = { offset = [1, 8, 1] }",
        "play = { alpha = [1, inf] }",
        "play = { alpha = [1, true] }",
        "play = { variant = [1, 2] }",
        "play = { alpha = [1, 2], beta = [1, 2] }",
        'play = [0, "last"]',
        "pin = {}",
        'pin = [{ model = "m" }, {}]',
        'pin = { show = ["attention"] }',
        "alone = 1",
        "locked = 0",
    ],
)
def test_words_that_mean_nothing_are_refused(block: str) -> None:
    with pytest.raises(BadInput):
        words(block)


def test_a_direction_of_another_width_is_refused(resolver: Resolver) -> None:
    with pytest.raises(BadInput, match="direction"):
        resolver.state(Setup(target=Direction((1.0, 2.0))))


def test_a_pin_says_only_what_differs_and_follows_what_it_shares() -> None:
    setup = words('text = "ab"\nheads = ["L0H1"]\nedge = ["L0H1", "L1H1"]\ncut = ["L0H0"]')
    there = Other(words("conventions = { centre = false }")).of(setup)
    assert (there.prompt, there.edge, there.cut, there.conventions) == (
        "ab",
        ("L0H1", "L1H1"),
        ("L0H0",),
        Conventions(centre=False),
    )
    assert Other(words('model = "other"')).of(setup).cut is None
