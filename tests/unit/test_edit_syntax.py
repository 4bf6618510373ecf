"""Interventions as text: what is written is read as the same, what cannot be read says what was expected, what is read acts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from circuitlab import api
from circuitlab.cli.parser import main
from circuitlab.errors import BadInput, UsageError
from circuitlab.model.forward import forward
from circuitlab.model.intervention import HEADLESS, SITE_NAMES, Intervention, Site
from circuitlab.state.edit_syntax import EditText, SiteText, plain_edit, read_edits, text_of_edit
from tests.models import CONFIGS, TINY, directory, weights_of

TEXT, OTHER = "the cat saw the dog", "the dog saw the bird"
numbers = st.floats(allow_nan=False, allow_infinity=False, width=64)
whole = st.integers(0, 10**6)


@st.composite
def sites(draw: st.DrawFn, names: tuple[str, ...], places: st.SearchStrategy[int | str]) -> SiteText:
    name = draw(st.sampled_from(names))
    heads = () if name in HEADLESS else tuple(draw(st.lists(whole, max_size=3)))
    sources = tuple(draw(st.lists(places, max_size=3))) if name in ("scores", "pattern") else ()
    return SiteText(name, draw(whole), heads, tuple(draw(st.lists(places, max_size=3))), sources)


@st.composite
def edits(draw: st.DrawFn, places: st.SearchStrategy[int | str], texts: bool) -> EditText:
    op = draw(st.sampled_from("zero mean scale set freeze patch project project_out".split()))
    directed = op.startswith("project")
    site = draw(sites(tuple(n for n in SITE_NAMES if not (directed and n in ("scores", "pattern"))), places))
    ids = st.lists(whole, min_size=1, max_size=4).map(tuple)
    prompts = ids | st.text(max_size=20) if texts else ids
    value = (draw(numbers),) if op == "scale" else ()
    if op == "set" or directed:
        value = tuple(draw(st.lists(numbers.filter(bool), min_size=1, max_size=4)))
    if directed and texts and draw(st.booleans()):
        value = tuple(draw(st.lists(st.text(max_size=9), min_size=1, max_size=2)))
    source = draw(prompts) if op == "patch" else draw(prompts | st.just(())) if op == "mean" else ()
    align = (
        draw(st.lists(st.integers(-1, 99), max_size=4).map(tuple) | (st.none() if texts else st.just(())))
        if op == "patch"
        else None
    )
    sender = None
    if site.name in ("q", "k", "v") and draw(st.booleans()):
        site = replace(site, layer=site.layer + 1)
        sender = replace(draw(sites(("result", "mlp_out"), places)), layer=draw(st.integers(0, site.layer - 1)))
    return EditText(op, site, value, source, align, sender)


@given(st.lists(edits(st.integers(-99, 99) | st.text(max_size=9), True), min_size=1, max_size=3))
def test_what_is_written_is_read_as_the_same(written: list[EditText]) -> None:
    assert read_edits("; ".join(map(str, written))) == tuple(written)


@given(edits(whole, False))
def test_an_intervention_is_written_and_read_as_the_same(written: EditText) -> None:
    edit = plain_edit(written)
    (again,) = read_edits(str(text_of_edit(edit)))
    assert plain_edit(again) == edit


@pytest.mark.parametrize(
    ("text", "edit"),
    [
        ("zero z L1H1", Intervention("zero", Site("z", 1, (1,)))),
        (" mean  z l1h1 , L1H3 ", Intervention("mean", Site("z", 1, (1, 3)))),
        ("mean z L1 of [3,4]", Intervention("mean", Site("z", 1), source=(3, 4))),
        ("scale q L0H2 @3,5 by -.5", Intervention("scale", Site("q", 0, (2,), (3, 5)), (-0.5,))),
        ("set resid_pre L2 to 0, 1e-3,2", Intervention("set", Site("resid_pre", 2), (0.0, 0.001, 2.0))),
        ("freeze pattern L1", Intervention("freeze", Site("pattern", 1))),
        ("zero pattern L1H0 @9<-4", Intervention("zero", Site("pattern", 1, (0,), (9,), (4,)))),
        ("zero scores L1H0 <-0", Intervention("zero", Site("scores", 1, (0,), (), (0,)))),
        ("patch v L0H1 from [1,2] align -1,0", Intervention("patch", Site("v", 0, (1,)), source=(1, 2), align=(-1, 0))),
        ("zero q L1H2 along result L0H3", Intervention("zero", Site("q", 1, (2,)), path_from=Site("result", 0, (3,)))),
        ("project_out z L1H1 on 1,0,-1", Intervention("project_out", Site("z", 1, (1,)), (1.0, 0.0, -1.0))),
    ],
)
def test_the_words(text: str, edit: Intervention) -> None:
    assert tuple(map(plain_edit, read_edits(text))) == (edit,)


@pytest.mark.parametrize(
    ("text", "expected", "got"),
    [
        ("", "an operation: zero mean", "the end"),
        ("zer z L1H1", "an operation: zero mean", "'zer z L1H1'"),
        ("zero x L1H1", "a site: resid_pre", "'x L1H1' after 'zero'"),
        ("zero z", "a head such as L1H1", "the end after 'zero z'"),
        ("zero z 1", "a head such as L1H1", "'1' after 'zero z'"),
        ("zero z L1H1,", "a head such as L1H1", "the end"),
        ("zero z L1H1 @", "a position", "the end"),
        ("zero z L1H1 @1.5", "a position", "'1.5'"),
        ("zero z L1H1 by 2", "@ and positions", "'by 2'"),
        ("scale z L1H1", "by, and a number", "the end"),
        ("scale z L1H1 by x", "a number", "'x'"),
        ("scale z L1H1 by 1e999", "a number", "'1e999'"),
        ("patch z L1H1", 'from, and another prompt: "a text"', "the end"),
        ("patch z L1H1 from 3", "another prompt", "'3'"),
        ("patch z L1H1 from [3", ", or ]", "the end"),
        ('patch z L1H1 from "abc', "another prompt", "'\"abc'"),
        ('patch z L1H1 from "a\\q"', "a text whose", ""),
        ("patch z L1H1 from [1] align x", "same, or a position", "'x'"),
        ("project z L1H1 on", "a direction", "the end"),
        ("zero q L1H1 along z L0H1", "a site: result mlp_out", "'z L0H1'"),
        ("zero z L1H1 § 3", "or the end", "'§ 3'"),
    ],
)
def test_what_cannot_be_read_says_what_was_expected(text: str, expected: str, got: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_edits(text)
    assert expected in caught.value.expected and got in caught.value.got and caught.value.remedy


def test_several_layers_are_several_interventions() -> None:
    with pytest.raises(UsageError, match="one layer"):
        read_edits("zero z L0H1,L1H1")
    assert len(read_edits("zero z L0H1; zero z L1H1;")) == 2
    with pytest.raises(UsageError, match="no model"):
        plain_edit(read_edits('patch z L1H1 from "a"')[0])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> api.Model:
    return api.open(str(directory(tmp_path_factory.mktemp("m"))))


def test_texts_are_read_with_the_model(model: api.Model) -> None:
    tokens, other = model.tokens(TEXT), model.tokens(OTHER)
    of = lambda words: model.subject(TEXT, edits=words).edits
    at = TEXT.rindex("the") + 3  # one byte a token, behind BOS
    assert of('zero z L1H1 @" the"') == (Intervention("zero", Site("z", 1, (1,), (at,))),)
    assert of("zero pattern L1H0 @-1<--2")[0].site.positions == (len(tokens) - 1,)
    (patch,) = of(f'patch resid_pre L1 from "{OTHER}"')
    assert patch.source == other and len(patch.align) == len(tokens) != len(other)
    assert tokens[-1] != other[patch.align[-1]] or patch.align[-1] == len(other) - 1
    (same,) = of(f'patch resid_pre L1 from "{TEXT}"')
    assert same.align == () and same.source == tokens
    assert of(f'patch resid_pre L1 from "{OTHER}" align same')[0].align == ()
    assert model.subject(TEXT, bos=False, edits=f'patch z L1 from "{OTHER}"').edits[0].source == other[1:]
    W_U = model.engine.store.open(model.ref).weights(api.Conventions()).unembed().W_U.double()
    (out,) = of('project_out resid_pre L1 on "a" - "b"')
    np.testing.assert_allclose(out.value, W_U[:, model.tokens("a", bos=False)[0]] - W_U[:, model.tokens("b", bos=False)[0]])
    for words in ('zero z L1H1 @"no such"', 'project z L1H1 on "two tokens"', "zero z L1H1 @999"):
        with pytest.raises(BadInput):
            of(words)
    with pytest.raises(UsageError):
        model.subject(TEXT, edits=3)  # type: ignore[arg-type]


def test_an_edited_model_and_edits_are_the_same_question(model: api.Model) -> None:
    typed = Intervention("zero", Site("z", 1, (1,)))
    wanted = model.compute("token_loss", text=TEXT, edits=(typed,)).result.loss
    plain = model.compute("token_loss", text=TEXT).result.loss
    edited = model.edit("zero z L1H1")
    for answer in (
        edited.compute("token_loss", text=TEXT),
        model.compute("token_loss", text=TEXT, edits="zero z L1H1"),
        model.compute("token_loss", text=TEXT, edits=["zero z L1H1"]),
        model.edit(typed).compute("token_loss", text=TEXT),
    ):
        np.testing.assert_array_equal(answer.result.loss, wanted)
    assert not np.array_equal(plain[1:], wanted[1:])
    assert "zero z L1H1" in repr(edited) and "zero" not in repr(model)
    both = edited.edit("mean z L0H0").subject(TEXT, edits=typed, cut="L0H3").edits
    assert [e.op for e in both] == ["zero", "mean", "zero", "zero"]
    with pytest.raises(UsageError):
        model.edit("zero z")


def test_edit_and_cut_on_the_command_line_agree(model: api.Model, capsys: pytest.CaptureFixture[str]) -> None:
    folder = model.ref.source.removeprefix("file:")
    ask = lambda *more: main(["compute", "token_loss", folder, "--text", TEXT, "--csv", "-", *more])
    said = []
    for more in (
        [],
        ["--cut", "L1H1,L0H2"],
        ["--edit", "zero z L1H1", "--edit", "zero z L0H2"],
        ["--edit", "zero z L1H1; zero z L0H2"],
    ):
        assert ask(*more) == 0
        said.append([line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")])
    assert said[0] != said[1] == said[2] == said[3]
    assert ask("--edit", "zero z") == 2 and "a head such as L1H1" in capsys.readouterr().err
    assert ask("--edit", "zero z L7H1") == 3
    assert main(["figure", "attention", "no/such/model", "--edit", "zero", "-o", "a.svg"]) == 2
    assert main(["compute", "token_loss", "--at", "a.circuitlab", "--edit", "zero z L1H1"]) == 2


@pytest.mark.parametrize("name", ["attention-only", "llama", "both-norms-capped"])
def test_projections_are_those_of_the_matrix(name: str) -> None:
    weights, _ = weights_of(CONFIGS[name])
    tokens = (0, 3, 5, 1, 3, 5, 2)
    v = np.random.default_rng(0).normal(size=CONFIGS[name].d_model)
    P = torch.tensor(np.outer(v, v) / (v @ v))
    clean = forward(weights, tokens).get("resid_pre", 1)
    for op, matrix in (("project", P), ("project_out", torch.eye(len(v)) - P)):
        edited = forward(weights, tokens, (Intervention(op, Site("resid_pre", 1, (), (2, 4)), tuple(v)),))  # type: ignore[arg-type]
        wanted = clean.double()
        wanted[[2, 4]] = wanted[[2, 4]] @ matrix.double()
        torch.testing.assert_close(edited.get("resid_pre", 1).double(), wanted, atol=1e-5, rtol=1e-4)
        longer = forward(weights, (*tokens, 6), edited.edits, edited)
        assert longer.reused == len(tokens)
        # what float32 rounds, through norms of a small stream; what the edits change is a thousand times as large
        torch.testing.assert_close(longer.logits(), forward(weights, (*tokens, 6), edited.edits).logits(), atol=1e-3, rtol=1e-3)


def test_a_projection_needs_a_direction_of_its_site() -> None:
    weights, _ = weights_of(TINY)
    with pytest.raises(UsageError):
        Intervention("project", Site("pattern", 1), (1.0,))
    for value in ((), (0.0, 0.0)):
        with pytest.raises(UsageError):
            Intervention("project_out", Site("z", 1), value)
    with pytest.raises(BadInput, match="wrong width"):
        forward(weights, (0, 1), (Intervention("project_out", Site("z", 1, (0,)), (1.0, 2.0)),))
