"""Training series: phase changes of curves with a known step, slopes against polyfit, the plane against an eigendecomposition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circuitlab.analysis.base import NullContext, SeriesRef
from circuitlab.analysis.training._phase_change import PhaseRule, phase_change
from circuitlab.analysis.training.pca import TrainingPcaParams, TrainingPcaResult, components
from circuitlab.analysis.training.series import KINDS, TrainingSeriesParams, TrainingSeriesResult, best
from circuitlab.disk.paths import model_dir, shipped_models
from circuitlab.engine.engine import Engine
from circuitlab.engine.measured_models import measured_models
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, BadModel, Refused
from circuitlab.model.records.series_measures import GONE, HEAD_ARRAYS, SeriesMeasures, read_series, write_series
from circuitlab.model.subject import ModelRef, Subject
from tests.models import directory
from tests.series_files import lay_beside

TOKENS = np.array([0, 100, 200, 400, 800, 1600, 1650, 3200, 6400])
RULE = PhaseRule(threshold=1.0)
SAID = {
    "texts": 4,
    "context": 16,
    "early": [2, 4],
    "late": [12, 15],
    "samples": 3,
    "block": 5,
    "seed": 7,
    "half": 6,
    "tokens": 40,
    "sha256": {"tokens": "aa" * 32},
}


def measures(tokens: np.ndarray = TOKENS, seed: int = 0, heads: tuple[int, int] = (2, 3), **said: Any) -> SeriesMeasures:
    """Random losses and scores at these points, the last one the final weights."""
    rng, n = np.random.default_rng(seed), len(tokens)
    widths = {"loss_by_index": 15, "repeated_loss_by_index": 10, "repeated_text_loss_by_index": 12, "token_loss": 40}
    arrays = {name: rng.normal(4, 1, (n, width)).astype(np.float32) for name, width in widths.items()}
    arrays["loss"] = arrays["loss_by_index"].mean(axis=1)
    arrays |= {name: rng.uniform(0, 1, (n, *heads)).astype(np.float32) for name in HEAD_ARRAYS}
    marks = tuple(range(n - 1))
    return SeriesMeasures((*marks, n - 1), tuple(tokens.tolist()), (*marks, None), arrays, SAID | said)


Ask = Callable[..., Any]


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """Series written beside models `a`, `b` …, and an analysis of them."""
    engine = Engine(ModelStore())

    def asked(name: str, *written: SeriesMeasures, fresh: bool = False, **params: Any) -> Any:
        folders = [directory(tmp_path / "abcd"[i]) for i in range(len(written))]
        for folder, one in zip(folders, written, strict=True):
            lay_beside(folder, one)
        kind = TrainingPcaParams if name == "training_pca" else TrainingSeriesParams
        made = kind(tuple(SeriesRef(f"file:{f}") for f in folders), **params)
        return engine.answer(Request.named(name, made, Subject(ModelRef(f"file:{folders[0]}"))), NullContext(), fresh).result

    return asked


# -- phase changes ---------------------------------------------------------------------------------------------------------


def test_the_window_is_the_steepest_interval_and_its_steep_neighbours() -> None:
    score = np.array([0.0, 0.0, -0.1, -0.2, -1.2, -2.0, np.nan, -2.1, -2.15])
    assert phase_change(TOKENS, score, RULE) == (3, 5), "−1 and −0.8 a doubling; −0.1 is less than half as fast"
    assert phase_change(TOKENS, score, replace(RULE, share=0.9)) == (3, 4)
    assert phase_change(TOKENS, score, replace(RULE, share=0.05, steeper=1.0)) == (1, 7)
    assert phase_change(TOKENS, score, replace(RULE, threshold=1.9)) is None
    assert phase_change(TOKENS, score, replace(RULE, first=500, threshold=0.5)) == (4, 5)


def test_noise_between_close_points_is_not_the_steepest_fall() -> None:
    score = np.array([0.0, 0.0, -0.1, -0.2, -1.3, -2.4, -2.5, -2.6, -2.7])
    assert (score[6] - score[5]) / np.log(1650 / 1600) < (score[5] - score[4]) / np.log(2), "it is steeper by the logarithm"
    assert phase_change(TOKENS, score, replace(RULE, apart=1.05)) == (3, 5)
    assert phase_change(TOKENS, score, replace(RULE, apart=1.0, threshold=0.05)) == (5, 6)


def test_what_has_no_phase_change() -> None:
    n = len(TOKENS)
    falls_first = np.where(np.arange(n) == 0, 5.0, 0.0)
    for score in (np.zeros(n), np.linspace(0, 4, n), np.full(n, np.nan), falls_first):
        assert phase_change(TOKENS, score, RULE) is None
    assert phase_change(TOKENS[:1], np.zeros(1), RULE) is None
    assert phase_change(TOKENS, np.linspace(0, -0.9, n), RULE) is None


def test_a_score_that_falls_evenly_has_no_phase() -> None:
    tokens = np.geomspace(1e4, 1e8, 40).round().astype(int)
    evenly = -np.log(tokens)
    assert phase_change(tokens, evenly, RULE) is None
    assert phase_change(tokens, evenly, replace(RULE, steeper=1 - 1e-9)) == (0, 39)
    # one piece of the way `times` as fast as the rest: as fast as the whole times times · n / (times + n − 1)
    for times, there in ((2.0, False), (2.2, True)):
        slope = np.where(np.arange(39) == 20, times, 1.0)
        score = -np.concatenate([[0.0], np.cumsum(slope * np.diff(np.log(tokens)))])
        rule = replace(RULE, threshold=0.1, share=0.9)
        assert (phase_change(tokens, score, rule) == (20, 21)) is there


def test_a_logistic_fall_is_found_where_it_is() -> None:
    tokens = np.round(np.geomspace(1e4, 1e8, 80))
    at, width = np.log(3e6), 0.12
    score = -7 / (1 + np.exp(-(np.log(tokens) - at) / width))
    first, last = phase_change(tokens, score, RULE)  # type: ignore[misc]
    # the logistic falls half as fast as at its steepest where it is at (1 ± √½) / 2, width · ln((1 + √½)/(1 − √½)) from it
    half = width * np.log((1 + np.sqrt(0.5)) / (1 - np.sqrt(0.5)))
    step = np.log(tokens[1] / tokens[0])
    assert abs(np.log(tokens[first]) - (at - half)) <= step
    assert abs(np.log(tokens[last]) - (at + half)) <= step


# -- the series ------------------------------------------------------------------------------------------------------------


def test_scores_are_means_of_what_was_measured(ask: Ask) -> None:
    made = measures()
    result: TrainingSeriesResult = ask("training_series", made)
    for i in range(len(TOKENS)):
        random, text, plain = (
            made[k][i].astype(float) for k in ("repeated_loss_by_index", "repeated_text_loss_by_index", "loss_by_index")
        )
        assert result.scores[i, 0] == pytest.approx(np.mean(random[6:10]) - np.mean(random[:5]))
        assert result.scores[i, 1] == pytest.approx(np.mean(text[7:12]) - np.mean(text[:6]))
        # positions 12 … 15 and 2 … 4; index i is the token at position i + 1
        assert result.scores[i, 2] == pytest.approx(np.mean(plain[11:15]) - np.mean(plain[1:4]))
        assert result.repetitions[i, 0].tolist() == pytest.approx([np.mean(random[:5]), np.mean(random[6:])])
    np.testing.assert_array_equal(result.of("copying"), made["copying"])
    np.testing.assert_array_equal(result.loss_by_index, made["loss_by_index"])
    assert result.checkpoint.tolist() == [*range(8), -1]
    assert result.table().n_rows == len(TOKENS)
    words = " · ".join(result.conventions)
    for said in ("4 held-out texts of 16 tokens", "3 × 5 random tokens × 2, seed 7", "tokens 12–15 minus 2–4", "by 1 nat (0.1"):
        assert said in words


def test_slopes_are_those_of_a_line_through_the_neighbours(ask: Ask) -> None:
    made = measures()
    result = ask("training_series", made, ratio=2.0)
    for position in range(1, 16):
        near = [j for j in range(1, 16) if position / 2 <= j <= position * 2]
        for point in (0, 4):
            slope = np.polyfit(np.log(near), made["loss_by_index"][point, np.array(near) - 1].astype(float), 1)[0]
            assert result.derivative[point, position - 1] == pytest.approx(slope, abs=1e-6)


def test_a_phase_change_is_said_with_its_fall_and_the_rise_of_prefix_matching(ask: Ask) -> None:
    made = measures()
    arrays = {k: v.copy() for k, v in made.arrays.items()}
    low = np.array([4.0, 4, 4, 3.9, 2, 1, 1, 1, 1])
    arrays["repeated_loss_by_index"][:, :5], arrays["repeated_loss_by_index"][:, 5:] = 4.0, low[:, None]
    arrays["repeated_text_loss_by_index"][:] = 3.0
    arrays["prefix_matching"][:] = 0.1
    arrays["prefix_matching"][5:, 1, 2] = 0.8
    result = ask("training_series", replace(made, arrays=arrays))
    assert result.phase[0, 0].tolist() == [400, 1600]
    assert result.fall[0, 0] == pytest.approx(2.9)
    assert result.rise[0, 0] == pytest.approx(0.7)
    assert np.isnan(result.phase[0, 1]).all() and np.isnan(result.fall[0, 1])
    assert np.isnan(ask("training_series", replace(made, arrays=arrays), threshold=3.0).phase[0, 0]).all()


def test_models_of_different_sizes_stand_one_behind_the_other(ask: Ask) -> None:
    one, two, none = measures(), measures(TOKENS[:4], 1, (1, 4)), measures(TOKENS[:3], 2, (0, 4))
    result: TrainingSeriesResult = ask("training_series", one, two, none)
    assert result.names == ("a", "b", "c")
    assert result.model.tolist() == [0] * 9 + [1] * 4 + [2] * 3
    assert result.heads.shape == (16, len(HEAD_ARRAYS), 2, 4)
    assert result.shapes.tolist() == [[2, 3], [1, 4], [0, 4]]
    np.testing.assert_array_equal(result.of("copying")[9:13, :1], two["copying"])
    assert np.isnan(result.of("copying")[9:13, 1]).all() and np.isnan(result.of("copying")[:9, :, 3]).all()
    assert np.isnan(best(result.of("prefix_matching"))[13:]).all() and np.isfinite(best(result.of("prefix_matching"))[:13]).all()
    assert result.phase.shape == (3, len(KINDS), 2)
    assert result.points(1).tolist() == [9, 10, 11, 12]


def test_the_same_question_has_the_same_answer(ask: Ask) -> None:
    for name in ("training_series", "training_pca"):
        a, b = (ask(name, measures(), measures(seed=3), fresh=True).arrays() for _ in range(2))
        assert all(np.array_equal(a[k], b[k], equal_nan=True) for k in a)


def test_what_cannot_be_asked_is_said(ask: Ask, tmp_path: Path) -> None:
    model = Subject(ModelRef(f"file:{directory(tmp_path / 'm')}"))
    with pytest.raises(Refused, match="models="):
        Engine(ModelStore()).answer(Request.named("training_series", TrainingSeriesParams(), model))
    with pytest.raises(BadInput, match="phase change"):
        ask("training_series", measures(), share=0.0)
    bare = SeriesRef(f"file:{directory(tmp_path / 'n')}")
    with pytest.raises((BadInput, BadModel), match="not measured"):
        Engine(ModelStore()).answer(
            Request.named("training_series", TrainingSeriesParams((bare,)), Subject(ModelRef(bare.source)))
        )


def test_a_series_that_was_measured_again_is_read_again(tmp_path: Path) -> None:
    engine, folder = Engine(ModelStore()), directory(tmp_path / "m")
    ref = SeriesRef(f"file:{folder}")
    request = Request.named("training_series", TrainingSeriesParams((ref,)), Subject(ModelRef(ref.source)))
    ask: Ask = lambda: engine.answer(request).result
    write_series(folder, measures())
    first = ask()
    assert ask() is first
    write_series(folder, measures(TOKENS[:5], 9))
    assert len(ask().steps) == 5


def test_indices_that_a_series_does_not_say_are_adapted_to_its_length(ask: Ask) -> None:
    result = ask("training_series", replace(measures(), protocol={}))
    assert result.windows[0].tolist() == [1, 1, 15, 15]
    np.testing.assert_allclose(result.scores[:, 2], result.loss_by_index[:, 14] - result.loss_by_index[:, 0])


# -- the plane -------------------------------------------------------------------------------------------------------------


def test_the_plane_is_that_of_the_largest_eigenvectors_of_the_covariance(ask: Ask) -> None:
    one, two = measures(), measures(TOKENS[:4], 1)
    result: TrainingPcaResult = ask("training_pca", one, two)
    losses = np.concatenate([one["token_loss"], two["token_loss"]]).astype(float)
    centred = losses - losses.mean(axis=0)
    values, vectors = np.linalg.eigh(centred.T @ centred)
    for k in (0, 1):
        wanted = centred @ vectors[:, -1 - k]
        sign = np.sign(wanted @ result.coordinates[:, k])
        np.testing.assert_allclose(result.coordinates[:, k], sign * wanted, atol=1e-9)
        assert result.explained[k] == pytest.approx(values[-1 - k] / values.sum())
        assert result.coordinates[8, k] >= result.coordinates[0, k], "the longest training goes to the right and up"
    assert result.explained.sum() == pytest.approx(1)
    assert result.remainder is not None and result.remainder.size < 1e-12 * result.remainder.of
    assert result.n_texts == 40 and result.table().n_rows == 13
    other: TrainingPcaResult = ask("training_pca", two, one)
    turned = np.concatenate([other.coordinates[4:], other.coordinates[:4]])
    np.testing.assert_allclose(turned, result.coordinates, atol=1e-9, err_msg="whichever model is open")


def test_the_plane_does_not_move_with_the_losses() -> None:
    losses = np.random.default_rng(0).normal(size=(7, 30))
    first, shares, _ = components(losses, np.arange(7))
    moved, same, _ = components(losses + np.linspace(-5, 5, 30), np.arange(7))
    np.testing.assert_allclose(moved, first, atol=1e-9)
    np.testing.assert_allclose(same, shares, atol=1e-12)
    mirrored, _, _ = components(-losses, np.arange(7))
    np.testing.assert_allclose(mirrored, first, atol=1e-9, err_msg="a component has no sign of its own")


def test_a_plane_of_points_that_are_all_alike_or_on_a_line() -> None:
    top, explained, left = components(np.ones((4, 9)), np.arange(4))
    assert not top.any() and not explained.any() and left.size == 0
    line = np.outer([0.0, 1, 3], np.arange(9.0))
    top, explained, _ = components(line, np.arange(3))
    assert explained[0] == pytest.approx(1) and top[2, 0] > top[0, 0]
    np.testing.assert_allclose(top[:, 1], 0, atol=1e-9)


def test_models_measured_on_other_texts_are_refused_by_name_or_left_out(ask: Ask) -> None:
    one, two = measures(sha256={"tokens": "aa" * 32}), measures(seed=1, sha256={"tokens": "bb" * 32})
    with pytest.raises(BadInput, match="same texts") as caught:
        ask("training_pca", one, two)
    assert "b" in caught.value.got and "a" in caught.value.expected
    result = ask("training_pca", one, two, strict=False)
    assert result.names == ("a",) and len(result.steps) == len(TOKENS)
    assert "left out, not known to be measured on the same texts: b" in result.conventions


def test_texts_that_nothing_names_are_not_taken_to_be_the_same(ask: Ask) -> None:
    with pytest.raises(BadInput, match="same texts") as caught:
        ask("training_pca", measures(sha256={}), measures(seed=1, sha256={}))
    assert "unknown" in caught.value.expected
    assert ask("training_pca", measures(sha256={}), measures(seed=1, sha256={}), strict=False).names == ("a",)
    assert ask("training_pca", measures(), measures(seed=1)).names == ("a", "b")


def test_checkpoints_are_found_by_their_step_among_the_files_there_are_now(ask: Ask, tmp_path: Path) -> None:
    ask("training_series", measures())
    folder = tmp_path / "a" / "checkpoints"
    (folder / "step-000002.safetensors").unlink()
    source = f"file:{folder.parent}"
    request = Request.named("training_series", TrainingSeriesParams((SeriesRef(source),)), Subject(ModelRef(source)))
    result: Any = Engine(ModelStore()).answer(request).result
    assert result.checkpoint.tolist() == [0, 1, GONE, 2, 3, 4, 5, 6, -1]


def test_a_series_that_is_not_the_one_that_was_named_is_refused(ask: Ask, tmp_path: Path) -> None:
    ask("training_series", measures())
    source = f"file:{tmp_path / 'a'}"
    params = TrainingSeriesParams((SeriesRef(source, "0" * 64),))
    with pytest.raises(BadInput, match="has changed"):
        Engine(ModelStore()).answer(Request.named("training_series", params, Subject(ModelRef(source))))


def test_what_a_series_does_not_say_is_not_claimed(ask: Ask) -> None:
    silent = replace(measures(), protocol={})
    words = " · ".join(ask("training_series", silent).conventions)
    assert "float32" not in words and "held-out" not in words and "seed" not in words
    assert "measured in float32" in ask("training_series", replace(silent, protocol={"dtype": "float32"})).conventions


def test_a_plane_wants_three_points(ask: Ask) -> None:
    with pytest.raises(BadInput, match="too few"):
        ask("training_pca", measures(TOKENS[:2]))
    assert len(ask("training_pca", measures(), first=400).steps) == 6
    with pytest.raises(BadInput, match="too few"):
        ask("training_pca", measures(), first=3000)


# -- the models that ship --------------------------------------------------------------------------------------------------


def test_whose_training_was_measured(tmp_path: Path) -> None:
    bare, own = directory(tmp_path / "bare"), directory(tmp_path / "own")
    write_series(own, measures())
    shipped = tuple(f"builtin:{name}" for name in shipped_models() if (model_dir(name) / "series.safetensors").is_file())
    assert measured_models(f"file:{own}") == (f"file:{own}", *shipped)
    assert measured_models(f"file:{bare}") == shipped
    assert measured_models(f"file:{bare}", f" {own} ,{own}") == (f"file:{own}",)
    assert measured_models("construct:rope-induction", str(own)) == (f"file:{own}",)
    with pytest.raises(BadInput, match="bare has no training series"):
        measured_models(f"file:{own}", str(bare))


@pytest.mark.parametrize("name, changes", [("attn-only-2l", True), ("attn-only-1l-smeared", True), ("attn-only-1l", False)])
def test_the_phase_change_of_a_shipped_model_is_there_or_not(name: str, changes: bool) -> None:
    ref = SeriesRef(f"builtin:{name}")
    request = Request.named("training_series", TrainingSeriesParams((ref,)), Subject(ModelRef(ref.source)))
    result: Any = Engine(ModelStore()).answer(request).result
    assert np.isfinite(result.phase[0, 0]).all() == changes
    assert np.isfinite(result.phase[0, 1]).all() == changes
    if changes:
        assert result.fall[0, 0] > 4 and result.rise[0, 0] > 0.5, "prefix matching and the score move together"
    else:
        assert np.nanmax(result.of("prefix_matching")) < 0.05
    assert len(read_series(model_dir(name)).steps) == len(result.steps)


def test_a_series_with_heads_that_its_model_does_not_have_is_refused(ask: Ask) -> None:
    assert len(ask("training_series", measures(heads=(2, 4))).steps)
    for heads in ((2, 5), (3, 4)):
        with pytest.raises(BadModel, match="another model") as caught:
            ask("training_series", measures(heads=heads), fresh=True)
        assert caught.value.expected == "2 layers × 4 heads" and caught.value.remedy
