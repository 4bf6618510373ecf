"""What "Copy as Python" gives, run: every request that any panel makes comes back as the same request with the same numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from circuitlab import api
from circuitlab.analysis.base import TextRef, analyses
from circuitlab.engine.codec import describe
from circuitlab.engine.request import Answer, Request
from circuitlab.engine.store import reference
from circuitlab.errors import BadInput, BadModel, CircuitLabError, UsageError
from circuitlab.figures.contracts.panel import Panel, Why, facts_of, panels
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Conventions, Head, ModelRef, Target
from circuitlab.state.state import Pin, State
from tests.axes import check_axes, undeclared
from tests.models import FULL, directory
from tests.series_files import keep_scaled

TOKENS = (0, 66, 67, 66, 67, 66)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with an MLP and three checkpoints, a corpus and a prompt set beside it, under a name that needs care."""
    made = tmp_path_factory.mktemp("a, 'b'")
    directory(made / "m", FULL)
    keep_scaled(made / "m", {0: 0.1, 64: 0.5, 1000: 1.0}, torch.float32)
    (made / "corpus, one.txt").write_text("one two, one two; three. " * 20, encoding="utf-8")
    (made / "prompts.tsv").write_text("ab ab\ta\tb\nba ba\tb\ta\n", encoding="utf-8")
    return made


@pytest.fixture
def state(folder: Path) -> State:
    made = State(ModelRef(f"file:{folder / 'm'}", checkpoint=1)).with_tokens(TOKENS)
    return made.select(
        heads=(Head(1, 2), Head(0, 3)), edge=(Head(0, 1), Head(1, 2)), destination=4, source=2, token=66, locked=True
    )


def ran(request: Request) -> Answer:
    """The answer that the snippet computes."""
    space: dict[str, Any] = {}
    exec(api.snippet(request).replace("print(", "str("), space)
    return space["answer"]


def _agrees(request: Request) -> None:
    try:
        answer = ran(request)
    except CircuitLabError as error:  # what cannot be answered is said alike
        with pytest.raises(type(error)) as caught:
            api.engine().answer(request)
        assert caught.value.what == error.what
        return
    assert answer.request.asked == request.asked
    check_axes(answer.result)
    assert answer.fingerprint == api.engine().answer(request).fingerprint


def _views(panel: Panel, folder: Path) -> Iterator[Any]:
    """The panel's defaults, then each of its controls at every value that it can be switched to, over files of one's own."""
    known = {f.name: f for f in describe(panel.view)}
    files = {
        "file": str(folder / ("prompts.tsv" if panel.name == "prompt_sets" else "corpus, one.txt")),
        "texts": 2,
        "samples": 2,
    }
    plain = panel.view(**{name: value for name, value in files.items() if name in known})
    yield plain
    for field in known.values():
        for value in field.choices or ((not field.default,) if field.kind is bool else ()):
            yield replace(plain, **{field.name: value})


@pytest.mark.parametrize("name", sorted(panels()))
def test_every_request_of_a_panel_comes_back(name: str, state: State, folder: Path) -> None:
    sources = {"laboratory": "rope-induction", "training": "attn-only-1l"}
    if name in sources:
        state = replace(state, model=reference(sources[name]), tokens=(0, 1, 2, 3, 1, 2))
    panel, facts = panels()[name], facts_of(api.engine(), state.model)
    state = replace(state, pins=(Pin("other", replace(state.subject, tokens=(*state.tokens[:2], 4, *state.tokens[3:]))),))
    seen: set[tuple[Any, ...]] = set()
    for view in _views(panel, folder):
        try:
            asked = panel.requests(state.with_view(name, view), facts)
        except CircuitLabError:
            continue
        for request in () if isinstance(asked, Why) else asked.values():
            kind = (request.analysis.name, *(v for v in vars(request.params).values() if isinstance(v, (str, bool, tuple))))
            if kind not in seen:  # one of each way that it is asked: what differs by a number alone is written alike
                seen.add(kind)
                _agrees(request)
    assert seen or name == "model"


@pytest.mark.parametrize("name", sorted(analyses()))
def test_every_parameter_of_an_analysis_comes_back(name: str, state: State, folder: Path) -> None:
    """Of one request that differs from the defaults in every parameter: what it asks, not what it finds."""
    other = {
        Head: Head(1, 3),
        Head | None: Head(0, 2),
        Target: Target(direction=(0.1, -2.5e-7)),
        TextRef | None: TextRef(str(folder / "corpus, one.txt")),
        tuple[Head, ...]: (Head(1, 1), Head(0, 0)),
        tuple[int, ...]: (3, 4, 5),
        tuple[int, int]: (1, 2),
        tuple[str, ...]: ("one, two", "all", ""),
        int | None: 3,
        int: 7,
        float: 0.1,
        bool: None,
        str: 'it\'s, "this"\n',
    }
    changed: dict[str, Any] = {}
    for field in describe(analyses()[name].params):
        if field.choices:
            changed[field.name] = next(c for c in reversed(field.choices) if c != field.default)
        elif field.kind is bool:
            changed[field.name] = not field.default
        elif field.kind in other:
            changed[field.name] = other[field.kind]
    edits = (Intervention("patch", Site("q", 1, (0,), (2,)), source=(4, 5, 6)), Intervention("scale", Site("z", 0), (0.5,)))
    subject = replace(state.subject, edits=edits, conventions=Conventions(centre=False, dtype="float64"))
    request, kept = Request.named(name, analyses()[name].params(**changed), subject), []
    asked = lambda self, request, ctx=None, fresh=False: kept.append(request)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(api.engine()), "answer", asked)
        exec(api.snippet(request).replace("print(lab.table(answer))", ""), {})
    assert kept == [request]


def test_every_array_of_every_result_says_its_axes() -> None:
    assert {name: missing for name, found in analyses().items() if (missing := undeclared(found.result))} == {}


def test_several_requests_are_one_piece_of_python(state: State, folder: Path) -> None:
    elsewhere = replace(state.subject, model=ModelRef(f"file:{folder / 'm'}"))
    params = analyses()["token_loss"].params()
    requests = {
        "now/loss": Request.named("token_loss", params, state.subject),
        "reference/loss": Request.named("token_loss", params, elsewhere),
    }
    space: dict[str, Any] = {}
    exec(api.snippet_of(requests).replace("print(", "str("), space)
    assert {role: answer.request for role, answer in space["answers"].items()} == requests
    assert api.snippet_of({"a": requests["now/loss"], "b": requests["now/loss"]}).count("lab.open(") == 1


def test_two_sides_end_with_their_difference_or_with_why_there_is_none(state: State, tmp_path: Path) -> None:
    params = analyses()["token_loss"].params()
    cut = replace(state.subject, edits=(Intervention("zero", Site("z", 1, (2,))),))
    requests = {
        "loss": Request.named("token_loss", params, cut),
        "reference-loss": Request.named("token_loss", params, state.subject),
    }
    space: dict[str, Any] = {}
    text = api.snippet_of(requests, {("loss", "reference-loss"): True})
    exec(text.replace("print(", "str("), space)
    change, ours, theirs = space["changes"]["loss"], space["answers"]["loss"], space["answers"]["reference-loss"]
    column = next(c for c in change.table.columns if c.name == "Δ loss")
    wanted = ours.result.loss - theirs.result.loss
    np.testing.assert_array_equal(column.values, wanted[-len(column.values) :])
    assert np.nan_to_num(wanted).any()
    for form in ("csv", "npz", "json"):
        api.save(change, tmp_path / f"a.{form}")
    assert "Δ loss" in api.table(change)
    without = api.snippet_of(requests, {("loss", "reference-loss"): False})
    assert "changes" not in without and "# 'loss': " in without
    exec(without.replace("print(", "str("), space)
    other = Request.named("head_scores", analyses()["head_scores"].params(on="text"), state.subject)
    with pytest.raises(UsageError):
        api.difference(ours, api.engine().answer(other))


def test_a_checkpoint_is_said_by_its_step_and_found_when_others_were_added(state: State, folder: Path, tmp_path: Path) -> None:
    moved = directory(tmp_path / "m", FULL)
    keep_scaled(moved, {64: 0.5, 1000: 1.0}, torch.float32)
    request = Request.named(
        "token_loss", analyses()["token_loss"].params(), replace(state.subject, model=ModelRef(f"file:{moved}", 0))
    )
    text, wanted = api.snippet(request), api.engine().answer(request)
    assert "step=64" in text and "checkpoint=" not in text
    (folder / "m" / "checkpoints" / "step-000000.safetensors").rename(moved / "checkpoints" / "step-000000.safetensors")
    try:
        space: dict[str, Any] = {}
        exec(text.replace("print(", "str("), space)
        assert space["answer"].request.subject.model.checkpoint == 1
        assert space["answer"].fingerprint == wanted.fingerprint
    finally:
        (moved / "checkpoints" / "step-000000.safetensors").rename(folder / "m" / "checkpoints" / "step-000000.safetensors")
    with pytest.raises(BadModel):
        api.snippet(replace(request, subject=replace(request.subject, model=ModelRef(f"file:{moved}", 7))))


def test_two_ways_of_saying_one_thing_are_refused(folder: Path) -> None:
    model = api.open(str(folder / "m"))
    for given in (
        {"text": "ab", "tokens": (1, 2)},
        {"text": "", "tokens": (1, 2)},
        {"tokens": (1, 2), "bos": True},
        {"tokens": (1, 2), "set": {"k": 2}, "k": 3},
        {"tokens": (1, 2), "set": "k=3"},
    ):
        with pytest.raises(UsageError):
            model.compute("predictions", **given)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        model.figure("predictions", text="ab", tokens=(1, 2))


def test_ids_may_be_numpys_and_torchs_and_nothing_but_whole_numbers(folder: Path, tmp_path: Path) -> None:
    model = api.open(str(folder / "m"))
    wanted = model.compute("predictions", tokens=(1, 2, 3), set={"k": 3})
    for ids in (np.array([1, 2, 3]), np.array([1, 2, 3], np.uint8), torch.tensor([1, 2, 3]), [1, 2, 3]):
        answer = model.compute("predictions", tokens=ids, set={"k": np.int64(3)})  # type: ignore[arg-type]
        assert answer.request == wanted.request
        for form in ("json", "csv", "npz"):
            api.save(answer, tmp_path / f"a.{form}")
    for ids in (np.array([1.0, 2.0]), np.array([[1, 2]]), [True, "a"], [1.5]):
        with pytest.raises(BadInput):
            model.compute("predictions", tokens=ids)  # type: ignore[arg-type]


def test_heads_are_cut_by_their_names(folder: Path, tmp_path: Path) -> None:
    model = api.open(str(folder / "m"))
    edits = tuple(Intervention("zero", Site("z", layer, (head,))) for layer, head in ((1, 2), (0, 3)))
    wanted = model.compute("token_loss", tokens=TOKENS, edits=edits)
    for cut in ("L1H2,L0H3", (Head(1, 2), Head(0, 3))):
        assert model.compute("token_loss", tokens=TOKENS, cut=cut).request == wanted.request
    mixed = model.compute("token_loss", tokens=TOKENS, cut="L0H3", edits=edits[:1])
    assert mixed.request == wanted.request and mixed.fingerprint == wanted.fingerprint
    picture = model.figure("attention", tokens=TOKENS, cut="L1H2", source=2, destination=4, out=tmp_path / "a.png")
    state = api.session(tmp_path / "a.png").now.state
    assert state.subject.edits == edits[:1] and (state.selection.source, state.selection.destination) == (2, 4)
    assert picture.figure.grid
    with pytest.raises(BadInput):
        model.compute("token_loss", tokens=TOKENS, cut="L9H0")
    with pytest.raises(UsageError):
        model.compute("token_loss", tokens=TOKENS, cut="nobody")
