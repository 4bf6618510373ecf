"""What files say of every array of every analysis: axes, units, and where there is nothing, in all three forms."""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circuitlab import api
from circuitlab.analysis.base import analyses
from circuitlab.engine.codec import parse_params
from circuitlab.engine.export_data import csv_text, data_bytes, export_of, json_text
from circuitlab.engine.export_series import series_bytes
from circuitlab.engine.request import Answer
from circuitlab.errors import CircuitLabError
from circuitlab.model.intervention import Intervention, Site
from circuitlab.state.cuts import ablation  # noqa: F401  (the cuts that menus offer are registered)
from tests.axes import check_axes, check_columns
from tests.models import CONFIGS, FULL, directory

SOURCES = {"construction": "rope-induction", "rotation_clock": "rope-induction"}
OTHERWISE: dict[str, tuple[dict[str, str], ...]] = {  # questions that put other units or other arrays into the answer
    "attention": ({"show": "scores"}, {"show": "value_weighted"}, {"show": "contribution"}),
    "attention_overview": ({"show": "contribution"}, {"leave_out_bos": "yes"}),
    "head_scores": ({"on": "text"},),
    "largest_entries": ({"circuit": "QK"},),
    "logit_lens": ({"mid": "yes"},),
    "ov_spectrum": ({"matrix": "bare"},),
    "path_expansion": ({"measure": "log_prob"}, {"order": "2"}),
    "patching": ({"source": "0,98,98,98,98,98,98"},),
    "qk_spectrum": ({"matrix": "bare"},),
    "skip_trigrams": ({"source": "3"},),
    "training_pca": ({"models": "attn-only-0l,attn-only-1l"},),
    "training_series": ({"models": "attn-only-0l,attn-only-1l"},),
    "over_prompts": tuple(
        {"analysis": name, "field": field}
        for name, field in (("head_scores", "control"), ("path_expansion", ""), ("term_importance", ""), ("residual_norms", ""))
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("exported")
    directory(made / "gpt2", FULL, n_ctx=128)
    directory(made / "odd", CONFIGS["odd"], tokenizer=False)
    (made / "prompts.tsv").write_text("ab ab\ta\tb\nba ba\tb\ta\n", encoding="utf-8")
    return made


def answers(name: str, folder: Path) -> list[Answer]:
    """Of a tiny model with everything and one of another vocabulary going out, with the defaults and otherwise."""
    made = []
    for source, tokens in ((SOURCES.get(name, str(folder / "gpt2")), (0, 5, 6, 5, 6, 5)), (str(folder / "odd"), (5, 6, 5))):
        model = api.open(source)
        cut = (Intervention("zero", Site("result", 0)),) if "patching" in name else ()
        for given in ({}, *OTHERWISE.get(name, ())):
            given |= {"file": str(folder / "prompts.tsv"), "params": '{"on": "text"}'} if name == "over_prompts" else {}
            given |= {"params": "{}"} if "params" in given and given.get("analysis") != "head_scores" else {}
            try:
                params = parse_params(analyses()[name].params, given)
                made.append(model.compute(name, tokens=tokens, edits=cut, set={k: getattr(params, k) for k in given}))
            except CircuitLabError:
                continue
    return made


@pytest.mark.parametrize("name", sorted(analyses()))
def test_every_array_has_axes_and_a_unit_and_nothing_stands_for_nothing(name: str, folder: Path) -> None:
    result = answers(name, folder)
    assert result, f"{name} was never answered"
    for answer in result:
        check_axes(answer.result)
        check_columns(answer.result)
        for field, array in answer.result.across().items():
            unit = answer.result.unit_across(field)
            assert unit and (isinstance(unit, str) or len(unit) in array.shape), (name, field, unit)
        what = export_of(api.engine(), answer, identified=False)
        read, held = json.loads(json_text(what)), np.load(io.BytesIO(data_bytes(what, "npz")))
        about = json.loads(str(held["about"]))
        assert read["axes"].keys() == about["axes"].keys() == answer.result.arrays().keys()
        assert answer.result.arrays().keys() <= read["units"].keys() and read["units"] == about["units"]
        for field, array in answer.result.arrays().items():
            if not answer.result.has_none(field):
                continue
            there = np.array(read["result"][field], dtype=object).reshape(array.shape)
            assert [v is None for v in there.ravel()] == (array < 0).ravel().tolist()
            np.testing.assert_array_equal(held[about["missing"][field]], array < 0)


def rows_of(text: str) -> list[list[str]]:
    return [line.split(",") for line in text.splitlines() if not line.startswith("# ")]


@pytest.mark.parametrize("text", ["", "a", "ab"])
def test_nothing_predicts_the_first_token(folder: Path, text: str) -> None:
    """Neither loss nor rank, of an empty prompt too, in any form and on the screen."""
    model = api.open(str(folder / "gpt2"))
    for name in ("token_loss", "side_by_side"):
        what = export_of(api.engine(), model.compute(name, text), identified=False)
        result = json.loads(json_text(what))["result"]
        assert result["rank"][0] is None and result["loss"][0] is None
        assert all(rank >= 1 for rank in result["rank"][1:]) and len(result["rank"]) == len(text) + 1
        held = np.load(io.BytesIO(data_bytes(what, "npz")))
        assert held["rank.missing"].tolist() == [True, *[False] * len(text)]
        head, first, *others = rows_of(csv_text(what))
        row = dict(zip(head, first, strict=True))
        assert row["rank"] == row["loss (nats)"] == "" and all(o[head.index("rank")] for o in others)
        assert api.table(what.answer).splitlines()[1].split("\t")[head.index("rank")] == ""


def test_a_token_that_the_model_cannot_predict_has_no_rank(tmp_path: Path) -> None:
    folder = directory(tmp_path / "m", replace(CONFIGS["attention-only"], d_vocab=11, d_vocab_out=7), tokenizer=False)
    model = api.open(str(folder))
    tokens, none = (1, 10, 3), [True, True, False]
    for name, given in (("token_loss", {}), ("logit_lens", {}), ("predictions", {"position": 0})):
        what = export_of(api.engine(), model.compute(name, tokens=tokens, set=given), identified=False)
        result = json.loads(json_text(what))["result"]
        if name == "predictions":
            assert result["actual"] is None and result["actual_rank"] is None and result["actual_log_prob"] is None
        elif name == "token_loss":
            assert [rank is None for rank in result["rank"]] == none
        else:
            assert [[rank is None for rank in row] for row in result["rank"]] == [[True, False, True]] * len(result["rank"])


def test_scores_of_heads_have_each_its_own_unit(folder: Path) -> None:
    answer: Any = api.open(str(folder / "gpt2")).compute("head_scores", samples=1, block=3)
    what = export_of(api.engine(), answer, identified=False)
    units = json.loads(json_text(what))["units"]
    assert units["mean"]["entropy"] == "nats" and units["control"]["mean_distance"] == "positions"
    assert units["spread"]["prefix_matching"] == "share of attention" and len(units["mean"]) == len(answer.result.mean)
    head = rows_of(csv_text(what))[0]
    assert {"entropy (nats)", "entropy_control (nats)", "mean_distance_sd (positions)"} <= set(head)


def test_a_series_says_too_where_there_is_nothing(folder: Path) -> None:
    model: Any = api.open("attn-only-1l")
    made = [export_of(api.engine(), m.compute("token_loss", "one two"), identified=False) for m in (model.at_step(0), model)]
    held = np.load(io.BytesIO(series_bytes(made, "npz")))
    about = json.loads(str(held["about"]))
    assert held[about["missing"]["rank"]].tolist() == [[True, False, False]] * 2 and about["axes"]["rank"][0] == "checkpoint"
    head, *rows = rows_of(series_bytes(made, "csv").decode())
    assert [row[head.index("rank")] == "" for row in rows] == [True, False, False] * 2


def test_one_token_has_no_control_and_no_caption_of_one(folder: Path) -> None:
    answer: Any = api.open(str(folder / "gpt2")).compute("head_scores", "", set={"on": "text"})
    assert np.isnan(answer.result.control).all()
    assert [word for word in answer.result.conventions if "control" in word] == ["no control of one token"]
    assert not np.isnan(answer.result.mean[answer.result.names.index("entropy")]).any()


def test_no_number_that_json_lacks_is_written(folder: Path) -> None:
    answer: Any = api.open(str(folder / "gpt2")).compute("token_loss", tokens=(0, 5, 6, 5))
    result = replace(answer.result, loss=np.array([np.nan, np.inf, -np.inf, 1.5]))
    text = json_text(export_of(api.engine(), replace(answer, result=result), identified=False))
    assert json.loads(text, parse_constant=pytest.fail)["result"]["loss"] == [None, None, None, 1.5]


def test_every_form_has_the_hash_of_the_weights_also_where_it_was_not_known_yet(folder: Path) -> None:
    """Of a large file it is read behind the open: an answer may be older than its hash."""
    model = api.open(str(folder / "gpt2"))
    answer = model.compute("predictions", tokens=(0, 5, 6))
    answer = replace(answer, provenance=replace(answer.provenance, weights=""))
    (file,) = (folder / "gpt2").glob("*.safetensors")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    for form in ("json", "csv"):
        assert digest in data_bytes(export_of(model.engine, answer), form).decode()
    with np.load(io.BytesIO(data_bytes(export_of(model.engine, answer), "npz"))) as arrays:
        assert any(digest in str(arrays[name]) for name in arrays.files)
