"""The induction laboratory: what is drawn against closed forms written here, controls against the open model, every page."""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from PySide6.QtCore import QPointF, QSize
from PySide6.QtWidgets import QApplication

from circuitlab.draw.export.pictures import render
from circuitlab.draw.look.theme import DARK, LIGHT
from circuitlab.draw.painted.dials import DialsMark
from circuitlab.draw.painted.prose import ProseMark
from circuitlab.engine.engine import Engine
from circuitlab.engine.export_data import export_of
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadModel, CircuitLabError
from circuitlab.figures.contracts.panel import Why, facts_of, find_panel
from circuitlab.figures.marks import Axis, Dials, Figure, Heatmap, Hit, Lines, Prose, Rows, Tokens
from circuitlab.figures.panels.laboratory.equations import EQUATIONS
from circuitlab.figures.panels.laboratory.parameters import LaboratoryView, Page, reads, writes
from circuitlab.figures.panels.laboratory.words import words
from circuitlab.model.constructed import RopeInduction
from circuitlab.model.constructed.parameters import Variant
from circuitlab.model.constructed.tokenizer import letter_tokenizer
from circuitlab.model.subject import Conventions, ModelRef
from circuitlab.report.own_tables import own_tables
from circuitlab.report.render import figure_of
from circuitlab.state.constructed import TEXT, changed, parameters
from circuitlab.state.state import Pin, State
from tests.models import CONFIGS, directory
from tests.session_files import saved_and_opened
from tests.words import asks_for_text

PANEL = find_panel("laboratory")
PAGES: tuple[Page, ...] = get_args(Page)
VARIANTS: tuple[Variant, ...] = get_args(Variant)
ONE_HOT = RopeInduction()
ALPHABET = " ".join("ABCDEFGHIJKLMNOPQRSTUVWXYZ")


def state_of(p: RopeInduction, text: str = TEXT, **view: Any) -> State:
    state = State(ModelRef(f"construct:{p}"), conventions=Conventions(dtype="float64"))
    state = state.with_text(text, letter_tokenizer(p.letters).encode(text, p.bos))
    return state.with_view("laboratory", LaboratoryView(**view))


def drawn(engine: Engine, p: RopeInduction, text: str = TEXT, select: Any = None, **view: Any) -> Figure:
    return figure_of(engine, PANEL, state_of(p, text, **view).select(**(select or {})))


def mark(figure: Figure, name: str) -> Any:
    mark = figure.find(name)
    assert mark is not None
    return mark


def said(figure: Figure) -> str:
    return mark(figure, "words").paragraphs[0][1]


# -- the clock --------------------------------------------------------------------------------------------------------


def test_hands_stand_where_the_angles_say(engine: Engine) -> None:
    p = RopeInduction(d_head=8, offset=2)
    figure = drawn(engine, p, select={"destination": 7, "source": 1})
    delta = 1 - 7 + 2
    theta = 10000.0 ** (-2 * np.arange(4) / 8)
    hands = mark(figure, "hands")
    assert isinstance(hands, Dials)
    np.testing.assert_allclose(np.exp(1j * hands.angles), np.exp(1j * delta * theta), atol=1e-12)
    height = float(np.cos(delta * theta).sum())
    assert all(fact in figure.title for fact in ("−4", f"{height:.2f}".replace("-", "−")))
    assert mark(figure, "curve").current == -4


def test_all_hands_point_up_at_the_offset(engine: Engine) -> None:
    for offset in (1, 3):
        figure = drawn(engine, RopeInduction(offset=offset), select={"destination": 6, "source": 6 - offset})
        assert not mark(figure, "hands").angles.any()
        assert "Δ = 0" in figure.title and "16.00 of 16" in figure.title


@pytest.mark.parametrize(
    "p", [ONE_HOT, RopeInduction(d_head=4), RopeInduction(d_head=2), RopeInduction(offset=3, n_ctx=20)], ids=str
)
def test_the_curve_is_the_sum_of_cosines_and_peaks_at_zero(engine: Engine, p: RopeInduction) -> None:
    figure = drawn(engine, p)
    curve = mark(figure, "curve")
    assert isinstance(curve, Lines) and curve.steps
    theta = 10000.0 ** (-2 * np.arange(p.d_head // 2) / p.d_head)
    np.testing.assert_array_equal(curve.x, np.arange(1 - p.n_ctx, p.offset + 1))
    np.testing.assert_allclose(curve.ys[0], np.cos(curve.x[:, None] * theta).sum(axis=1), atol=1e-9)
    assert curve.x[curve.ys[0].argmax()] == 0
    below = np.where(curve.x == 0, np.inf, p.d_head / 2 - curve.ys[0])
    assert f"Δ = {int(curve.x[below.argmin()])}".replace("-", "−") in said(figure)
    assert f"g = {below.min():.3g}" in said(figure)
    assert any("n = m − " + str(p.offset) in text for _, text in curve.marks)


def test_equal_frequencies_have_an_alias_that_is_marked(engine: Engine) -> None:
    figure = drawn(engine, RopeInduction(frequencies="equal", period=8))
    curve = mark(figure, "curve")
    assert (-8.0, "2π/θ = 8") in curve.marks
    at = int(np.flatnonzero(curve.x == -8)[0])
    assert curve.ys[0, at] == pytest.approx(curve.ys[0].max())
    assert figure.title.startswith("Δ = −8")  # the best rival is what is looked at first
    assert not any("π" in text for _, text in mark(drawn(engine, RopeInduction(frequencies="equal", period=80)), "curve").marks)


def test_a_click_on_the_curve_looks_at_that_place(engine: Engine) -> None:
    state = state_of(ONE_HOT)
    index = lambda delta: delta + ONE_HOT.n_ctx - 1
    near = PANEL.pick(state, Hit("curve", (0, index(-3))))
    assert (near.selection.destination, near.selection.source, near.selection.locked) == (9, 5, True)
    far = PANEL.pick(near, Hit("curve", (0, index(-40))))
    assert far.selection.source is None
    title = figure_of(engine, PANEL, far).title
    assert title.startswith("Δ = −40") and "41" in title
    assert PANEL.pick(far, Hit("curve", (0, index(-3)))).view("laboratory", LaboratoryView).far is None
    assert PANEL.pick(state, Hit("curve", (0, 3), "hover")) is state
    ahead = PANEL.pick(state, Hit("curve", (0, index(1))))  # the destination itself
    assert ahead.selection.source == ahead.selection.destination == 9


# -- attention, stream, prediction ------------------------------------------------------------------------------------


def test_attention_by_formula_stands_beside_the_model(engine: Engine) -> None:
    p = RopeInduction(alpha=2)
    figure = drawn(engine, p, page="layer 0")
    formula, measured = mark(figure, "formula"), mark(figure, "measured")
    theta = 10000.0 ** (-2 * np.arange(16) / 32)
    m, n = np.meshgrid(np.arange(10), np.arange(10), indexing="ij")
    weights = np.where(n <= m, np.exp(2 * np.cos((n - m + 1)[..., None] * theta).sum(axis=-1)), 0)
    weights /= weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.nan_to_num(formula.values), weights, atol=1e-6)
    np.testing.assert_allclose(np.nan_to_num(measured.values), weights, atol=1e-6)
    np.testing.assert_array_equal(formula.framed, np.eye(10, k=-1, dtype=bool))
    worst = weights[range(1, 10), range(9)].min()
    assert f"worst row {worst:.3f} on m − 1" in figure.title


def test_layer_one_is_framed_where_the_token_has_been_followed(engine: Engine) -> None:
    figure = drawn(engine, ONE_HOT, "A B A C A", page="layer 1")
    framed = {tuple(cell) for cell in np.argwhere(mark(figure, "measured").framed).tolist()}
    assert framed == {(0, 0), (1, 0), (2, 0), (3, 2), (4, 0), (5, 2), (5, 4)}
    assert "2 of 2" in said(figure)


def test_cells_are_selected_and_released(engine: Engine) -> None:
    state = state_of(ONE_HOT)
    picked = PANEL.pick(state, Hit("measured", (6, 2)))
    assert (picked.selection.destination, picked.selection.source, picked.selection.locked) == (6, 2, True)
    assert not PANEL.pick(picked, Hit("formula", (6, 2))).selection.locked
    hovered = PANEL.pick(state, Hit("formula", (4, 1), "hover"))
    assert hovered.selection.destination == 4 and not hovered.selection.locked


def test_the_stream_has_its_named_places(engine: Engine) -> None:
    figure = drawn(engine, ONE_HOT, page="stream")
    maps = [m for m in figure.marks() if isinstance(m, Heatmap)]
    assert [m.name for m in maps] == ["embedding", "layer 0", "layer 1"]
    assert maps[0].x.spans == ((0, 27, "tok"), (27, 54, "prev"), (54, 81, "out"), (81, 82, "one"))
    tokens = np.array(letter_tokenizer(26).encode(TEXT, True))
    np.testing.assert_array_equal(maps[0].values[:, :27], np.eye(27)[tokens])
    assert not maps[0].values[:, 27:81].any() and (maps[0].values[:, 81] == 1).all()
    np.testing.assert_allclose(maps[1].values[1:, 27:54], np.eye(27)[tokens[:-1]], atol=0.01)
    np.testing.assert_allclose(maps[2].values[9, 54:81], np.eye(27)[2], atol=0.01)  # divided by γ
    assert maps[0].x.ticks[0] == "tok BOS" and maps[0].x.ticks[28] == "prev A" and maps[0].x.ticks[81] == "one"
    plane = drawn(engine, RopeInduction.preset("sinusoidal"), page="stream", after="layer 1")
    (one,) = [m for m in plane.marks() if isinstance(m, Heatmap)]
    assert [name for _, _, name in one.x.spans] == ["tok", "prev", "out", "one", "bos"] and one.map == "signed"


def test_continuations_share_by_their_counts(engine: Engine) -> None:
    figure = drawn(engine, ONE_HOT, "A B C A B D A C A", page="prediction")
    token, followed, formula, logit, p = (c.values for c in mark(figure, "letters").columns)
    by = {str(t): i for i, t in enumerate(token)}
    assert followed[by["B"]] == 2 and followed[by["C"]] == 1 and followed.sum() == 3
    assert logit[by["B"]] == pytest.approx(20 * 2 / 3, abs=0.3) and logit[by["C"]] == pytest.approx(20 / 3, abs=0.3)
    np.testing.assert_allclose(formula, logit, atol=1e-6)
    assert p[by["B"]] == p.max() and p.sum() == pytest.approx(1)
    assert "‘B’" in figure.title
    text = mark(figure, "text")
    assert isinstance(text, Tokens) and np.isnan(text.values[:4]).all() and text.values[9] > 0


def test_without_a_repeat_it_rests_on_bos(engine: Engine) -> None:
    figure = drawn(engine, ONE_HOT, "A B C", page="prediction")
    assert "BOS" in figure.title and "0.99" in figure.title
    without = drawn(engine, RopeInduction(bos=False), "A B C", page="prediction").title
    assert "BOS" in without and "0.99" not in without


def test_one_direction_does_not_find_its_like(engine: Engine) -> None:
    figure = drawn(engine, RopeInduction.preset("rank-one"), ALPHABET, page="rank one")
    assert re.search(r"\b2 of 26\b.*\b2\b", figure.title)
    cosines = np.cos(np.arange(26) * math.pi / 13)
    asked = mark(figure, "alphabet").framed.argmax(axis=1)
    expected = np.where(cosines > 0, cosines.argmax(), cosines.argmin())
    np.testing.assert_array_equal(asked, expected)
    for variant in ("one-hot", "sinusoidal"):
        result = drawn(engine, RopeInduction.preset(variant), ALPHABET, page="rank one")
        assert "26 of 26" in result.title


def test_what_a_slider_breaks_is_a_number_beside_it(engine: Engine) -> None:
    right = lambda p, text=TEXT: said(drawn(engine, p, text, page="prediction")).split(" predictions")[0]
    assert right(ONE_HOT) == "5 of 5"
    assert right(RopeInduction.preset("rank-one")) == "1 of 5"
    assert right(RopeInduction(beta=0)) == "0 of 5"
    assert right(RopeInduction(rank=1), f"{ALPHABET} {ALPHABET}").split(" of ")[0] != "26"
    lead = lambda p: float(said(drawn(engine, p)).split("letter ")[1].rstrip(".").replace("−", "-"))
    assert lead(RopeInduction(gamma=5)) == pytest.approx(5, abs=0.05)
    assert lead(RopeInduction(alpha=1)) < lead(RopeInduction(alpha=4)) < lead(ONE_HOT)


# -- every page -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_page_of_every_variant(engine: Engine, page: Page, variant: Variant) -> None:
    p = RopeInduction.preset(variant)
    for made in (p, replace(p, letters=3, d_head=2, token_in_key=0.4), replace(p, bos=False, frequencies="equal", offset=5)):
        for text in ("A", TEXT):
            figure = drawn(engine, made, text, page=page)
            assert figure.title and figure.caption and figure.find("words") is not None
            assert isinstance(figure.find("words"), Prose) and "nan" not in figure.title + said(figure)
            leads = [lead for lead, _ in mark(figure, "words").paragraphs]
            assert leads == ["Now", "What", "Why", "What if"]
    image = render(drawn(engine, p, page=page), QSize(520, 300))
    assert (image.width(), image.height()) == (520, 300)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_beside_a_pin(engine: Engine, page: Page) -> None:
    pin = Pin("softer", state_of(RopeInduction(alpha=3)).subject)
    for compare in ("now", "reference", "difference"):
        state = replace(state_of(ONE_HOT, page=page), pins=(pin,), compare=compare)  # type: ignore[arg-type]
        figure = figure_of(engine, PANEL, state)
        assert figure.grid and "pin" not in figure.title.lower()
    assert page in ("rank one", "clock", "equations") or figure.title.startswith("now − softer")


@pytest.mark.parametrize("page", PAGES)
def test_answers_once_drawn_are_not_drawn_again(engine: Engine, page: Page) -> None:
    one = figure_of(engine, PANEL, state_of(ONE_HOT, page=page).select(destination=5, source=2))
    two = figure_of(engine, PANEL, state_of(ONE_HOT, page=page).select(destination=5, source=2))
    for a, b in zip(one.marks(), two.marks(), strict=True):
        if isinstance(a, Heatmap) and isinstance(b, Heatmap):
            assert a.values is b.values and a.x is b.x and a.framed is b.framed
        if isinstance(a, Lines) and isinstance(b, Lines):
            assert a.ys is b.ys and a.x is b.x


def test_no_paragraph_holds_a_number_that_was_computed() -> None:
    """Live numbers stand in the first paragraph alone; the others are the same whatever the sliders say."""
    pages = [words(page, RopeInduction.preset(variant)) for page in PAGES if page != "equations" for variant in VARIANTS]
    for every in (*pages, *EQUATIONS.values()):
        for text in every[1:]:
            assert not [w for w in text.split() if "." in w.strip(".,;:()") and w.strip(".,;:()")[0].isdigit()]


# -- controls <-> model -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "p",
    [ONE_HOT, RopeInduction.preset("sinusoidal"), RopeInduction.preset("rank-one", alpha=3.25), RopeInduction(letters=5, rank=2)],
    ids=str,
)
def test_controls_are_the_parameters_of_the_open_model(p: RopeInduction) -> None:
    state = state_of(p, page="stream")
    view = reads(state)
    assert view.page == "stream" and all(getattr(view, f.name) == getattr(p, f.name) for f in dataclasses.fields(p))
    assert writes(state, view) == state  # nothing moved
    moved = writes(state, replace(view, gamma=7.5))
    assert parameters(moved) == replace(p, gamma=7.5) and reads(moved) == replace(view, gamma=7.5)
    assert moved.view("laboratory", LaboratoryView) == LaboratoryView(page="stream")  # parameters are the model's alone
    assert writes(moved, reads(state)).model == state.model
    assert saved_and_opened(moved, Path(), Engine(ModelStore())) == moved


def test_every_parameter_has_its_control_and_its_page() -> None:
    fields = {f.name: f.metadata for f in dataclasses.fields(LaboratoryView)}
    for field in dataclasses.fields(RopeInduction):
        meta = fields[field.name]
        assert field.name == "variant" or (set(meta["values"]) <= set(PAGES) and meta["values"])
        assert getattr(LaboratoryView(), field.name) == field.default
        assert meta["tip"]
    assert fields["base"]["also"](LaboratoryView()) and not fields["period"]["also"](LaboratoryView())


def test_beside_the_equations_stand_the_parameters_of_which_they_speak() -> None:
    fields = {f.name: f.metadata for f in dataclasses.fields(LaboratoryView)}
    beside = {name for name, meta in fields.items() if not meta["when"] or "equations" in meta["values"]}
    assert {f.name for f in dataclasses.fields(RopeInduction)} - beside == {"n_ctx"}  # which is in no equation


def test_what_cannot_be_is_refused_and_what_follows_is_fitted() -> None:
    for moved in ({"offset": 64}, {"rank": 27}, {"d_head": 7}, {"alpha": -1.0}, {"letters": 53}):
        with pytest.raises(BadModel):
            changed(ONE_HOT, moved)
    with pytest.raises(BadModel):
        changed(RopeInduction.preset("sinusoidal"), {"letters": 30})
    plane = changed(RopeInduction(letters=40, offset=2, d_head=16), {"variant": "sinusoidal"})
    assert (plane.letters, plane.offset, plane.d_head, plane.alpha, plane.beta) == (26, 2, 16, 19.5, 615.0)
    assert changed(RopeInduction(rank=20), {"letters": 8}).rank == 8
    assert changed(RopeInduction(offset=12), {"n_ctx": 8}).offset == 7
    state = state_of(ONE_HOT)
    with pytest.raises(CircuitLabError):
        writes(state, replace(reads(state), offset=64))


def test_the_text_follows_the_alphabet_and_the_context() -> None:
    state = state_of(ONE_HOT, "A B C D E")
    fewer = writes(state, replace(reads(state), letters=3))
    assert fewer.tokens == (0, 1, 2, 3)
    assert writes(state, replace(reads(state), bos=False)).tokens == (1, 2, 3, 4, 5)
    short = writes(state, replace(reads(state), n_ctx=3))
    assert short.tokens == (0, 1, 2) and letter_tokenizer(26).encode(short.text, True) == short.tokens
    typed = state.with_tokens((0, 5, 2, 1))
    assert writes(typed, replace(reads(typed), letters=3)).tokens == (0, 2, 1)
    assert writes(state, replace(reads(state), alpha=3.0)).text == "A B C D E"


def test_another_model_is_the_way_in(engine: Engine, tmp_path: Any) -> None:
    ref = ModelRef(f"file:{directory(tmp_path / 'm', CONFIGS['attention-only'])}")
    state = State(ref).with_text("one two", (1, 2))
    assert PANEL.requests(state, facts_of(engine, ref)) == {}
    figure = figure_of(engine, PANEL, state)
    assert isinstance(figure.find("open"), Rows) and figure.why_empty
    opened = PANEL.pick(state, Hit("open", (0,)))
    assert opened.model == ModelRef("construct:rope-induction") and opened.text == TEXT and opened.tokens[:3] == (0, 1, 2)
    assert PANEL.pick(state, Hit("open", (2,), "double-click")).model.source == "construct:rope-induction?variant=rank-one"
    assert PANEL.pick(state, Hit("open", (0,), "hover")) is state
    view = LaboratoryView(page="layer 0")
    assert writes(state, view).model == ref  # a page is no parameter
    only = {f.name: f.metadata["only"] for f in dataclasses.fields(LaboratoryView) if f.metadata.get("only")}
    assert not any(asks(facts_of(engine, ref)) for asks in only.values())
    assert all(asks(facts_of(engine, opened.model)) for asks in only.values())
    asked = PANEL.requests(opened.with_tokens(()), facts_of(engine, opened.model))
    assert isinstance(asked, Why) and asks_for_text(asked.text)


# -- marks ------------------------------------------------------------------------------------------------------------


def test_dials_paint_their_hands(qtbot: Any) -> None:
    made = DialsMark(LIGHT)
    qtbot.addWidget(made)
    made.resize(400, 80)
    made.show()
    quarter = np.array([0.0, math.pi / 2, -math.pi / 2, math.pi])
    made.show_mark(Dials("hands", quarter, ("a", "b", "c", "d")))
    image = made.grab().toImage()
    for i, (dx, dy) in enumerate(((0, -1), (1, 0), (-1, 0), (0, 1))):
        rect = made.item_rect((i,))
        at = rect.center() + QPointF(dx, dy) * rect.width() * 0.3
        assert image.pixelColor(at.toPoint()).lightness() < 90, i
        assert made.id_at(rect.center()) == (i,)
    assert made.id_at(QPointF(390, 70)) is None
    assert made.walk((0,), 1, 0) == (1,) and made.walk((3,), 1, 0) == (3,) and made.walk(None, 0, 0) == (0,)
    made.show_mark(Dials("hands", np.zeros(30)))
    assert made.content_height(300) == 3 * 24  # narrow: several rows


def test_prose_wraps_and_follows_the_theme(qtbot: Any) -> None:
    made = ProseMark(LIGHT)
    qtbot.addWidget(made)
    made.show_mark(Prose("words", (("What", "word " * 60),), "a < b & c"))
    assert made.content_height(200) > 2 * made.content_height(700)
    assert "a < b & c" in made._document.toPlainText()
    made.set_theme(DARK)
    assert DARK.text in made._document.toHtml()


def test_named_ranges_of_an_axis_are_written_and_ruled(qtbot: Any, view: Any) -> None:
    values = np.zeros((4, 12), dtype=np.float32)
    plain = Heatmap("map", values, (0.0, 1.0), square=False, colour_bar=False)
    view.show_figure(Figure(((plain,),), "t"))
    before = view.grab().toImage()
    spans = replace(plain, x=Axis("", tuple("abcdefghijkl"), spans=((0, 6, "left"), (6, 12, "right"))))
    view.show_figure(Figure(((spans,),), "t"))
    QApplication.processEvents()
    after = view.grab().toImage()
    assert before != after
    framed = replace(spans, framed=np.eye(4, 12, dtype=bool))
    view.show_figure(Figure(((framed,),), "t"))
    assert view.grab().toImage() != after


# -- the numbers of a page ----------------------------------------------------------------------------------------------------


def numbers(engine: Engine, **view: Any) -> tuple[Figure, dict[str, np.ndarray]]:
    """The page, and what is exported beside it: the columns of its table, with the texts of tokens."""
    asked = state_of(ONE_HOT, "A B C A", **view)
    figure, wanted = figure_of(engine, PANEL, asked), PANEL.requests(asked, facts_of(engine, asked.model))
    assert not isinstance(wanted, Why)
    export = export_of(engine, engine.answer(*wanted.values()), drawn=PANEL.drawn_table(asked))
    return figure, {column.name: column.values for column in export.table().columns}


@pytest.mark.parametrize("layer", [0, 1])
def test_the_numbers_of_a_layer_are_those_of_its_maps(engine: Engine, layer: int) -> None:
    figure, table = numbers(engine, page=f"layer {layer}")
    at = table["destination"], table["source"]
    for name, column in (("formula", "attention by formula"), ("measured", "attention measured")):
        heat = figure.find(name)
        assert isinstance(heat, Heatmap) and len(at[0]) == np.isfinite(heat.values).sum()
        np.testing.assert_allclose(heat.values[at], table[column], atol=1e-7)
        assert heat.framed is not None and (heat.framed[at] == table["should attend"]).all()
    assert table["source token"].tolist()[:3] == ["<|bos|>", "<|bos|>", "A"]


def test_the_numbers_of_the_stream_are_those_of_the_steps_that_are_shown(engine: Engine) -> None:
    figure, table = numbers(engine, page="stream")
    for step in ("embedding", "layer 0", "layer 1"):
        heat, of = figure.find(step), table["after"] == step
        assert isinstance(heat, Heatmap) and of.sum() == heat.values.size
        np.testing.assert_array_equal(
            heat.values[table["position"][of], table["coordinate"][of]], table["value, out divided by γ"][of]
        )
    assert set(numbers(engine, page="stream", after="layer 0")[1]["after"]) == {"layer 0"}


def test_the_numbers_of_a_prediction_are_the_lead_of_each_position_and_its_letters(engine: Engine) -> None:
    figure, table = numbers(engine, page="prediction")
    text, letters = figure.find("text"), own_tables(figure)["letters"]
    assert isinstance(text, Tokens)
    np.testing.assert_allclose(text.values, table["lead of the right letter"])
    assert table["most probable token"][-1] == "B" == letters.columns[0].values[0]
    assert table["its logit measured"][-1] == pytest.approx(letters.columns[3].values[0])


def test_the_numbers_of_rank_one_are_by_letter_and_those_of_the_clock_by_distance(engine: Engine) -> None:
    figure, table = numbers(engine, page="rank one")
    heat = figure.find("alphabet")
    assert isinstance(heat, Heatmap)
    np.testing.assert_allclose(heat.values.ravel(), table["attention by formula"], atol=1e-7)
    assert (table["letter of the query token"][27], table["letter of the key token"][27]) == ("B", "B")
    figure, table = numbers(engine, page="clock")
    curve = figure.find("curve")
    assert isinstance(curve, Lines)
    np.testing.assert_array_equal(curve.ys[0], table["sum_of_cosines"])
    assert "equation" in numbers(engine, page="equations")[1]
