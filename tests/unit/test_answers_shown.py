"""What answers show of themselves in a terminal and in a notebook: short, true, escaped, and at once."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import fields, replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from circuitlab import api
from circuitlab.analysis.attention.pattern import AttentionResult
from circuitlab.analysis.base import Result, SeriesRef, TextRef, analyses, axes_with_labels
from circuitlab.analysis.behaviour.in_context import InContextParams
from circuitlab.engine.engine import Engine
from circuitlab.engine.export_data import export_of
from circuitlab.engine.request import Answer, Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, CircuitLabError
from circuitlab.model.intervention import Intervention, Site
from circuitlab.story.values import Value, read_out
from tests.models import FULL, directory

TEXT = "ab ab <b>&"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> api.Model:
    folder = tmp_path_factory.mktemp("shown") / "m"
    directory(folder, FULL)
    return api.open(str(folder), use=Engine(ModelStore()))


class _Cells(HTMLParser):
    """The tables of a piece of HTML, and its other text; every tag must be closed where it belongs."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.open: list[str] = []
        self.text = ""
        self.tags: set[str] = set()
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        self.tags.add(tag)
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th"):
            self.tables[-1][-1][-1] += data
        else:
            self.text += data


def _answers(model: api.Model) -> dict[str, Answer[Any]]:
    """Whatever each analysis answers without being told more."""
    shown: dict[str, Answer[Any]] = {}
    for name in analyses():
        try:
            shown[name] = model.compute(name, text=TEXT)
        except CircuitLabError:
            continue
    return shown


def test_every_answer_shows_itself(model: api.Model) -> None:
    shown = _answers(model)
    assert len(shown) > 30
    for name, answer in shown.items():
        plain, html = repr(answer), answer._repr_html_()
        assert plain.startswith(f"<Answer {name} · m") and len(plain) < 5000 and len(html) < 30_000, name
        cells = _Cells(html)
        assert cells.tags <= {"div", "strong", "table", "thead", "tbody", "tr", "th", "td"}, (name, cells.tags)
        for array_name, array in answer.result.arrays().items():
            assert array_name in plain and str(array.shape[0]) in plain
            assert any(row[0] == array_name for row in cells.tables[-1]), (name, array_name)
        for words in answer.result.conventions:
            assert words[:50] in plain and words[:50] in cells.text
        if answer.result.remainder is not None:
            assert answer.result.remainder.words() in plain
        assert "array(" not in repr(answer.result)


def test_the_corner_has_the_numbers_under_their_tokens(model: api.Model) -> None:
    answer = model.compute("attention", text=TEXT, heads="L1H2")
    cells = _Cells(answer._repr_html_())
    head, *rows = cells.tables[0]
    tokens = model.tokens(TEXT)
    shown = model.engine.store.open(model.ref).opened.weights.tokenizer.display  # type: ignore[union-attr]
    assert head[1:] == [f"{i} {shown(t)}" for i, t in enumerate(tokens[:8])]
    for i, row in enumerate(rows):
        wanted = answer.result.values[0, i, :8]
        assert row[0] == f"{i} {shown(tokens[i])}"
        np.testing.assert_allclose([float(cell) for cell in row[1:]], wanted, rtol=1e-3)
    assert "head L1H2" in cells.text and "first 8 of 11" in cells.text


def test_columns_along_one_axis_stand_beside_each_other(model: api.Model) -> None:
    answer = model.compute("predictions", text=TEXT, set={"k": 3})
    head, *rows = _Cells(answer._repr_html_()).tables[0]
    assert head == ["next token", "ids", "ids text", "logits", "log_probs"]
    assert [int(row[1]) for row in rows] == answer.result.ids.tolist()
    assert [row[2] for row in rows] == [answer.token_text(i) for i in answer.result.ids.tolist()]  # type: ignore[misc]


def test_a_token_that_is_markup_or_a_control_character_is_text(model: api.Model) -> None:
    hostile = replace(model.compute("attention", text=TEXT), token_text=lambda i: "</td><script>\x1b[2J\n")
    html = hostile._repr_html_()
    assert "<script" not in html and "\x1b" not in html and "&lt;script&gt;" in html
    assert "\x1b" not in repr(hostile)
    assert _Cells(html).tables


@pytest.mark.parametrize("path", ["/home/somebody/corpus.txt", "C:\\Users\\somebody\\corpus.txt"])
def test_a_file_is_named_without_its_folder(model: api.Model, path: str) -> None:
    answer = model.compute("attention", text=TEXT)
    params = InContextParams("file", TextRef(path), control=SeriesRef("file:/home/somebody/control/"))
    read = replace(answer, request=Request.named("in_context", params, answer.request.subject))
    for words in (repr(read), read._repr_html_()):
        assert "corpus.txt" in words and "control" in words and "somebody" not in words


def test_a_large_answer_reads_its_corner_alone(model: api.Model) -> None:
    class Watched(np.ndarray):
        read = 0

        def tolist(self) -> Any:
            Watched.read += self.size
            return np.asarray(self).tolist()

    small = model.compute("attention", text=TEXT)
    values = np.broadcast_to(np.float32(0.5), (1, 5000, 5000)).view(Watched)
    result = AttentionResult(values=values, heads=np.array([[0, 1]]), unit="share of attention")
    answer = replace(small, result=result)
    assert "5000" in repr(answer) and Watched.read == 0
    assert len(answer._repr_html_()) < 30_000
    assert 0 < Watched.read <= 64


def test_partial_and_stored_answers_say_so(model: api.Model) -> None:
    answer = model.compute("attention", text=TEXT)
    partial = replace(answer, complete=False, result=replace(answer.result, done=0.25))
    stored = replace(answer, provenance=replace(answer.provenance, stored=True))
    assert "partial: 25%" in repr(partial) and "stored" in repr(stored)
    assert "partial" not in repr(answer) and "stored" not in repr(answer)


def test_names_of_entries_are_declared_with_the_axes_that_have_them() -> None:
    """A tuple of texts in a result is named after an axis, or is one of those that name none."""
    free = {("over_prompts", "names"), ("over_prompts", "axes"), ("over_prompts", "common"), ("training_pca", "names")}
    free |= {("activations", "axes")}
    for name, analysis in analyses().items():
        axes = {a for f in fields(analysis.result) for a in f.metadata.get("axes", ())}
        for field in fields(analysis.result):
            if field.type == "tuple[str, ...]" and field.name != "conventions":
                axis = field.metadata.get("naming")
                assert (axis is None) == ((name, field.name) in free), (name, field.name)
                assert axis is None or axis in axes, (name, field.name, axis)
        for axis, names in analysis.result.ENTRIES.items():
            assert axis in axes and names, (name, axis)


def test_axes_are_labelled_by_heads_names_and_positions(model: api.Model) -> None:
    shown = _answers(model)
    attention = shown["attention"]
    text = attention.token_text
    head, dest, source = axes_with_labels(attention.result, "values", attention.prompt, text)
    assert head.entries.tolist() == [f"L{i}H{h}" for i in range(2) for h in range(4)]
    assert dest.entries.tolist() == list(range(len(attention.prompt)))
    assert source.more["source token"].tolist() == [text(i) for i in attention.prompt]  # type: ignore[misc]
    kind, *_ = axes_with_labels(shown["composition"].result, "scores")
    assert kind.entries.tolist() == ["Q", "K", "V"]
    score, layer, _ = axes_with_labels(shown["head_scores"].result, "mean", shown["head_scores"].prompt, text)
    assert "prefix_matching" in score.entries.tolist() and layer.entries.tolist() == [0, 1]
    gram = axes_with_labels(shown["embedding_gram"].result, "G")
    assert [axis.name for axis in gram] == ["dimension", "dimension (2)"]
    for name, answer in shown.items():
        for array_name, array in answer.result.arrays().items():
            axes = axes_with_labels(answer.result, array_name, answer.prompt, answer.token_text)
            assert tuple(len(axis.entries) for axis in axes) == array.shape, (name, array_name)
            assert all(len(column) == len(axis.entries) for axis in axes for column in axis.more.values())
            assert len({axis.name for axis in axes}) == len(axes)


def test_an_answer_about_weights_has_no_tokens_of_a_prompt(model: api.Model) -> None:
    answer = model.compute("ov_top_tokens", text=TEXT)
    assert answer.prompt == () and "tokens:" not in repr(answer)


def test_positions_of_other_texts_have_no_tokens_of_the_prompt(model: api.Model) -> None:
    """Random tokens as long as the prompt: the labels are those of the random ones, or none."""
    text = "ab" * 5
    stripe = model.compute("prefix_stripe", text=text, set={"on": "random", "block": 5, "repeats": 2})
    assert len(stripe.result.tokens) == len(model.tokens(text)) and stripe.prompt == ()
    _, source = axes_with_labels(stripe.result, "pattern", stripe.prompt, stripe.token_text)
    assert source.more["source token"].tolist() == [stripe.token_text(i) for i in stripe.result.tokens.tolist()]  # type: ignore[misc]
    edits = (Intervention("zero", Site("z", 0, (1,))),)
    context = model.compute("in_context", text=text, edits=edits, set={"on": "random", "block": 5, "repeats": 2, "edited": True})
    (position,) = axes_with_labels(context.result, "loss", context.prompt, context.token_text)
    assert "position token" not in position.more


def test_what_shows_itself_keeps_no_tokenizer_in_the_cache(model: api.Model) -> None:
    answer = model.compute("attention", text=TEXT, fresh=True)
    assert answer.token_text is not None and model.compute("attention", text=TEXT).token_text is not None
    kept = [value for value, _ in vars(model.engine.cache)["_held"].values() if isinstance(value, Answer)]
    assert kept and all(answer.token_text is None for answer in kept)


def test_a_result_prints_no_numbers() -> None:
    result: Result = AttentionResult(values=np.zeros((1, 2, 2), np.float32), heads=np.array([[0, 1]]), unit="score")
    assert re.search(r"values +\[head 1, destination 2, source 2\] +float32 +score", repr(result))


@pytest.mark.parametrize("read", ["score", "mean(mass)", "sum(mass)", "mass[-1]"])
def test_where_no_token_occurs_again_prefix_matching_is_nowhere_a_number(model: api.Model, read: str) -> None:
    """Null in JSON, empty in CSV, NaN in NPZ and in a data frame, "not computed" in a table, no value in a text."""
    answer = model.compute("prefix_stripe", text="abc", set={"on": "prompt"})
    n = len(answer.result.tokens)
    assert len(set(answer.result.tokens.tolist())) == n > 1
    assert np.isnan(answer.result.score)
    exported = export_of(model.engine, answer)
    assert json.loads(exported.data("json"))["result"]["mass"] == [None] * n
    rows = list(csv.DictReader(line for line in exported.data("csv").decode().splitlines() if not line.startswith("#")))
    assert [row["mass on them"] for row in rows] == [""] * n
    assert np.isnan(np.load(io.BytesIO(exported.data("npz")))["mass"]).all()
    assert np.isnan(answer.to_pandas("mass")["mass"].to_numpy()).all()
    with pytest.raises(BadInput, match="has no value here"):
        read_out(Value("v", "prefix_stripe", {}, read, ".2f"), answer.result, model.state("abc"))
