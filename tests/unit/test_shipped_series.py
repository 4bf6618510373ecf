"""The shipped training series: whole, true to the weights beside them, and the phase change where theory has it."""

from __future__ import annotations

import hashlib
import re
import statistics
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest

from circuitlab.analysis.base import SeriesRef
from circuitlab.analysis.circuits.own_tokens import OwnTokensParams, OwnTokensResult
from circuitlab.analysis.training.scores import KINDS, RANDOM, TEXT, on_text, phase_of, repetitions, scores_of
from circuitlab.analysis.training.series import TrainingSeriesParams, TrainingSeriesResult
from circuitlab.disk.paths import model_dir, shipped, shipped_models
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.figures.contracts.panel import find_panel
from circuitlab.figures.marks import Lines
from circuitlab.figures.panels.training.panel import TrainingView
from circuitlab.figures.panels.training.points import phase_words
from circuitlab.model.loading import open_model
from circuitlab.model.loading.checkpoint import weight_files
from circuitlab.model.records.series import checkpoint_of, series_of
from circuitlab.model.records.series_measures import (
    GONE,
    HEAD_ARRAYS,
    OWN_ARRAYS,
    TEXT_ARRAYS,
    SeriesMeasures,
    has_series,
    read_series,
)
from circuitlab.model.subject import Head, ModelRef, Subject
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.report.render import figure_of
from circuitlab.state.state import State
from circuitlab.training.metrics import head_scores, losses, repeated_random
from circuitlab.training.series_card import control_series, section
from circuitlab.training.series_points import points_of
from tests.shipped_models import config_of

MEASURED = tuple(name for name in shipped_models() if has_series(model_dir(name)))
LEAST = {"attn-only-2l": 11, "attn-only-1l": 8, "attn-only-1l-smeared": 8}
KEPT = {"226227c45833": 136}  # texts whose own losses were kept, of windows (by their sha256) of which some were not
# the in-context score minus the control's, of weights by their sha256
CONTROLLED = {"6254f3d5490d": -0.05, "2f616bd01831": -0.27, "7a67b3957476": -0.39, "1b572e8e730c": -0.255}
LARGEST = 200_000_000  # bytes of all models together


def _kept(m: SeriesMeasures) -> int:
    """Of so many texts each one's own losses are there."""
    return KEPT.get(m.protocol["sha256"]["held_out"][:12], m.protocol["texts"])


def _alike(name: str) -> tuple[str, ...]:
    """Of `MEASURED`, the models with layers that were measured on the same texts, in the same tokens, as this one."""
    sha256 = read_series(model_dir(name)).protocol["sha256"]
    alike = [one for one in MEASURED if read_series(model_dir(one)).protocol["sha256"] == sha256]
    return tuple(one for one in alike if config_of(one)["n_layers"])


def _best(m: SeriesMeasures, name: str = "prefix_matching") -> np.ndarray:
    """[point]: the largest score of any head."""
    return m[name].reshape(len(m.steps), -1).max(1)


@pytest.mark.parametrize("name", sorted({*MEASURED, *LEAST}))
def test_a_series_is_whole(name: str) -> None:
    m, c = read_series(model_dir(name)), open_model(model_dir(name)).weights.config
    if GONE in m.checkpoints:  # weights of some steps only, or of none
        indices = {step: i for i, (step, _) in enumerate(series_of(model_dir(name)))}
        assert m.checkpoints == (*(indices.get(step, GONE) for step in m.steps[:-1]), None) and set(indices) <= set(m.steps)
    else:
        points = points_of(model_dir(name))
        assert m.steps == tuple(p.step for p in points) and m.checkpoints == tuple(p.checkpoint for p in points)
        assert m.tokens == tuple(p.tokens for p in points)
        assert len(series_of(model_dir(name))) == len(points) - 1 >= LEAST.get(name, 1)
    assert sorted(set(m.tokens)) == list(m.tokens) and m.checkpoints[-1] is None
    final = b"".join(file.read_bytes() for file in weight_files(model_dir(name)))
    assert m.protocol["weights"][-1] == hashlib.sha256(final).hexdigest(), "of these weights and no others"
    assert all(np.isfinite(a).all() for name, a in m.arrays.items() if name not in (*TEXT_ARRAYS, *OWN_ARRAYS))
    assert all(m[a].shape[1:] == (c.n_layers, c.n_heads) for a in HEAD_ARRAYS)
    assert m["token_loss"].shape[1] >= 2048 and m["loss_by_index"].shape[1] == m.protocol["context"] - 1 == 127
    if m.steps[0] == 0:  # every token is as likely; a tied unembedding gives the token that is read a logit of its own
        assert np.log(c.d_vocab) - 0.1 < m["loss"][0] < np.log(c.d_vocab) + (1.0 if c.tied else 0.1)
    card = (model_dir(name) / "card.md").read_text(encoding="utf-8")
    assert section(m, control_series()) in card, "the card says what the file holds"
    assert all("/" not in source["label"] for source in m.protocol["sources"])


@pytest.mark.parametrize("name", sorted(LEAST))
def test_what_was_measured_is_what_the_weights_do(name: str) -> None:
    m = read_series(model_dir(name))
    random = repeated_random(config_of(name)["d_vocab"], 128)
    for point in (len(m.steps) // 2, -1):
        weights = open_model(model_dir(name), checkpoint=m.checkpoints[point]).weights
        np.testing.assert_allclose(losses(weights, random).mean(0), m["repeated_loss_by_index"][point], atol=2e-3)
        for score, values in head_scores(weights, random).items():
            np.testing.assert_allclose(values, m[score][point], atol=1e-3)
    last = checkpoint_of(model_dir(name), -1)
    assert m.protocol["weights"][-2] == hashlib.sha256(last.read_bytes()).hexdigest()


def test_all_models_are_measured_on_the_same_texts() -> None:
    names = sorted({*MEASURED, *LEAST})
    said = [read_series(model_dir(name)).protocol for name in names]
    of_tokenizer = {_tokens(name): one for name, one in zip(names, said, strict=True)}
    for name, one in zip(names, said, strict=True):
        same = [other for other in said if other["texts"] == one["texts"]]
        assert all(other["sha256"] == one["sha256"] for other in same), "as many windows of a text are the same windows"
        other = of_tokenizer[_tokens(name)]
        assert one["sources"] == other["sources"]
        assert all(one["sha256"][of] == other["sha256"][of] for of in ("tokens", "random"))


def _tokens(name: str) -> bytes:
    """What makes a model's tokens, without what its file says beside."""
    return Tokenizer.from_file(model_dir(name) / "tokenizer.json").content


def _rows(card: str, head: str) -> list[list[str]]:
    """The cells of the table under a line that begins so."""
    lines = card[card.index(head) :].splitlines()[2:]
    return [[c.strip() for c in line.strip("|").split("|")] for line in lines[: [*lines, ""].index("")]]


def _ends(cell: str) -> tuple[float, float]:
    a, b = (float(part.replace(",", "")) for part in cell.split("→"))
    return a, b


@pytest.mark.parametrize("name", sorted({*MEASURED, *LEAST}))
def test_the_card_and_the_panel_say_the_same_phase_changes(name: str) -> None:
    """What the Training panel writes, of the engine's answer; and the card's own columns at the ends of each window."""
    card = (model_dir(name) / "card.md").read_text(encoding="utf-8")
    ref = f"builtin:{name}"
    asked = Request.named("training_series", TrainingSeriesParams((SeriesRef(ref),)), Subject(ModelRef(ref)))
    result = Engine(ModelStore()).answer(asked).result
    assert isinstance(result, TrainingSeriesResult)
    points = {cells[0]: cells for cells in _rows(card, "| step | tokens |")}
    found = _rows(card, "| score on | steps |")
    assert [cells[0] for cells in found] == list(KINDS)
    for kind, (_, steps, tokens, score, fall, prefix) in enumerate(found):
        shown = phase_words(result, kind)
        if steps == "no phase change":
            assert shown == steps
            continue
        words = re.fullmatch(r"phase change at (.*) M tokens, score (.*) nats, best prefix matching (.*)", shown)
        assert words is not None
        millions = [float(part.removesuffix(" M")) for part in words[1].split("–")]
        np.testing.assert_allclose(np.array(_ends(tokens)) / 1e6, millions, rtol=5e-3)
        before, after = _ends(score)
        assert float(fall) == pytest.approx(before - after, abs=2e-3)
        assert float(words[2].replace("−", "-")) == pytest.approx(after - before, abs=0.006)
        assert float(words[3]) == pytest.approx(_ends(prefix)[1] - _ends(prefix)[0], abs=0.011)
        for step, said, best in zip(steps.split(" → "), _ends(score), _ends(prefix), strict=True):
            _, seen, _, on_text, *pieces, matching, _ = points[step]
            columns = [float(pieces[1]) - float(pieces[0]), float(pieces[3]) - float(pieces[2]), float(on_text)]
            assert said == pytest.approx(columns[kind], abs=2e-3) and seen in tokens.split(" → ")
            assert best == float(matching.split()[0])


@pytest.mark.parametrize("name", ["attn-only-2l", "attn-only-1l-smeared"])
def test_checkpoints_stand_where_the_head_forms(name: str) -> None:
    m = read_series(model_dir(name))
    kept = np.array([c != GONE for c in m.checkpoints])
    assert ((_best(m) > 0.1) & (_best(m) < 0.8) & kept).sum() >= 3


def test_where_a_phase_change_is_and_where_there_is_none() -> None:
    found = lambda name, kind: phase_of(read_series(model_dir(name)), kind, TrainingSeriesParams().rule(kind))
    for name in ("attn-only-0l", "attn-only-1l"):
        assert [found(name, kind) for kind in range(len(KINDS))] == [None] * len(KINDS), "one layer does no induction"
    for name in ("attn-only-2l", "attn-only-1l-smeared", "gpt-mini", "attn-only-2l-smeared"):
        change, score = found(name, RANDOM), scores_of(read_series(model_dir(name)))[0][:, RANDOM]
        assert change is not None and change.before < 0.5 < 0.7 < change.after
        assert change.fall > (score.max() - score.min()) / 2, "more of the fall than all the rest of the training"


def test_all_models_together_are_small() -> None:
    assert sum(f.stat().st_size for f in shipped("models").rglob("*") if f.is_file()) <= LARGEST


@pytest.mark.parametrize("name", ["attn-only-2l", "attn-only-1l-smeared"])
def test_prefix_matching_and_in_context_learning_come_together(name: str) -> None:
    m = read_series(model_dir(name))
    rep1, rep2 = repetitions(m["repeated_loss_by_index"]).T
    best, fallen = _best(m), (rep2.max() - rep2) / (rep2.max() - rep2[-1])
    crossed = int(np.flatnonzero(best >= 0.5)[0])
    change = phase_of(m, RANDOM, TrainingSeriesParams().rule(RANDOM))
    assert change is not None and change.first < crossed < change.last, "the score passes one half within the phase change"
    assert 0.05 < fallen[crossed] < 0.5, "with the score half there, the fall has begun and is not half done"
    assert rep2[-1] < 2 and rep1.min() > np.log(config_of(name)["d_vocab"]) - 0.01, "first occurrences cannot be foretold"
    later = np.array(m.steps) >= 512
    assert np.corrcoef(best[later], (rep1 - rep2)[later])[0, 1] > 0.8
    layer, head = np.unravel_index(m["prefix_matching"][-1].argmax(), m["prefix_matching"][-1].shape)
    assert m["zeroed_repeated"][-1].argmax() == m["prefix_matching"][-1].argmax(), "without that head the repetition is lost"
    assert m["zeroed_repeated"][-1][layer, head] > 4 > 0.1 > abs(m["zeroed_repeated"][0]).max()


def test_a_previous_token_head_comes_with_two_layers_and_not_with_smeared_keys() -> None:
    two, smeared = (read_series(model_dir(n)) for n in ("attn-only-2l", "attn-only-1l-smeared"))
    assert _best(two, "previous_token")[-1] > 0.9 and two["previous_token"][-1][0].max() > 0.9
    assert _best(smeared, "previous_token").max() < 0.3


def test_one_layer_does_no_induction() -> None:
    m = read_series(model_dir("attn-only-1l"))
    rep1, rep2 = repetitions(m["repeated_loss_by_index"]).T
    assert _best(m).max() < 0.2 and rep2.min() > np.log(config_of("attn-only-1l")["d_vocab"]) - 0.01
    assert abs(rep1 - rep2).max() < 0.5
    assert m["loss"][-1] < 4.5, "it learns the text all the same"


def test_more_layers_foretell_text_better() -> None:
    final = lambda name: read_series(model_dir(name))["loss"][-1]
    alike = _alike("attn-only-2l")
    assert "attn-only-1l" in alike and final("attn-only-2l") < final("attn-only-1l") < 4.5
    assert all(final("attn-only-2l") < final(name) for name in alike if config_of(name)["n_layers"] == 1)
    two = read_series(model_dir("attn-only-2l"))
    score = scores_of(two)[0][:, TEXT]
    assert score[-1] < -0.3 < -0.2 < score[np.searchsorted(two.steps, 1000)]


def _texts(m: SeriesMeasures) -> np.ndarray:
    """[text]: the score of each text at the final weights, NaN where its losses were not kept."""
    return (m["late_by_text"][-1].astype(float) - m["early_by_text"][-1]).astype(float)


def test_the_control_takes_the_texts_own_part_off_and_much_of_the_noise() -> None:
    """Minus the losses of the model without layers at the same indices: 0 for one layer but for little, and less scatter."""
    control = control_series()
    assert control is not None
    names = [one for one in _alike("attn-only-0l") if one in LEAST]
    assert {"attn-only-1l", "attn-only-2l"} <= set(names)
    for name in names:
        m = read_series(model_dir(name))
        text, (a, b), (c, d) = on_text(m, control), m.protocol["early"], m.protocol["late"]
        left = (m["loss_by_index"][-1].astype(float) - control["loss_by_index"][-1]).tolist()
        late, early = left[c - 1 : d], left[a - 1 : b]
        assert text.controlled[-1] == pytest.approx(sum(late) / len(late) - sum(early) / len(early))
        assert text.controlled[-1] == pytest.approx(CONTROLLED[m.protocol["weights"][-1][:12]], abs=0.01)
        known = np.isfinite(_texts(m))
        plain, paired = _texts(m)[known].tolist(), (_texts(m) - _texts(control))[known].tolist()
        error = statistics.stdev(paired) / len(paired) ** 0.5
        assert text.each.texts[-1] == len(plain) == _kept(m)
        assert text.each.mean[-1] == pytest.approx(statistics.fmean(plain))
        assert text.each.error[-1] == pytest.approx(statistics.stdev(plain) / len(plain) ** 0.5)
        assert text.each_controlled.mean[-1] == pytest.approx(statistics.fmean(paired))
        assert text.each_controlled.error[-1] == pytest.approx(error)
        assert error < 0.85 * text.each.error[-1], "much of the scatter is the texts' own"
        card = " ".join((model_dir(name) / "card.md").read_text(encoding="utf-8").split())
        assert f"{text.score[-1]:+.3f} nats".replace("-", "−") in card
        assert f"{statistics.fmean(paired):+.3f} ± {error:.3f} nats".replace("-", "−") in card
    other = replace(control, protocol={**control.protocol, "sha256": {"held_out": "of another text"}})
    assert np.isnan(on_text(read_series(model_dir("attn-only-2l")), other).controlled).all()
    assert np.isnan(on_text(control, read_series(model_dir("attn-only-1l"))).controlled).all(), "a control has no layers"


@pytest.mark.parametrize("name", sorted({*MEASURED, *LEAST}))
def test_each_texts_losses_are_of_the_texts_that_are_still_at_hand(name: str) -> None:
    """The same columns in every model, those of the last sources; own tokens wherever the weights were kept."""
    m = read_series(model_dir(name))
    gone = m.protocol["texts"] - _kept(m)
    kept = np.array([c != GONE for c in m.checkpoints])
    for array in (m["early_by_text"], m["late_by_text"]):
        assert array.shape == (len(m.steps), m.protocol["texts"])
        assert (np.isfinite(array).sum(1) == np.where(kept, _kept(m), 0)).all()
        assert np.isnan(array[:, :gone]).all() and (array[kept][:, gone:] > 0).all()
    assert np.isfinite(m["own_token_top_10"][kept]).all() and np.isnan(m["own_token_top_10"][~kept]).all()


@pytest.mark.parametrize("name", ["attn-only-1l", "attn-only-2l", "gpt-mini"])
def test_shares_of_own_tokens_are_those_of_the_rows(name: str) -> None:
    """At the last weights, of one head: ranks in rows of W_E W_OV W_U, one after the other."""
    m, w = read_series(model_dir(name)), open_model(model_dir(name)).weights
    ref = ModelRef(f"builtin:{name}")
    result = Engine(ModelStore()).answer(Request.named("own_tokens", OwnTokensParams((Head(0, 1),)), Subject(ref))).result
    assert isinstance(result, OwnTokensResult) and w.config.d_vocab == result.n_tokens
    assert m["own_token_top_1"][-1, 0, 1] == pytest.approx(result.top1[0, 1], abs=1e-3)
    assert m["own_token_top_10"][-1, 0, 1] == pytest.approx(result.top10[0, 1], abs=1e-3)


def test_models_are_compared_text_by_text() -> None:
    """One layer against two: the error of the difference is smaller than either score's, as the same texts are dear to both."""
    names = [one for one in _alike("attn-only-2l") if one in LEAST]
    one, two = names.index("attn-only-1l"), names.index("attn-only-2l")
    asked = TrainingSeriesParams(tuple(SeriesRef(f"builtin:{n}") for n in names), SeriesRef("builtin:attn-only-0l"))
    result = (
        Engine(ModelStore()).answer(Request.named("training_series", asked, Subject(ModelRef("builtin:attn-only-2l")))).result
    )
    assert isinstance(result, TrainingSeriesResult)
    texts = [_texts(read_series(model_dir(n))) for n in names]
    for i, j in permutations(range(len(names)), 2):
        differences = (texts[i] - texts[j])[np.isfinite(texts[i])].tolist()
        assert result.between[i, j] == pytest.approx(statistics.fmean(differences))
        assert result.between_error[i, j] == pytest.approx(statistics.stdev(differences) / len(differences) ** 0.5)
        assert result.between_error[i, j] < max(result.each_error[result.points(k)[-1]] for k in (i, j))
    assert result.between[two, one] < -3 * result.between_error[two, one], "two layers learn more from the context than one"
    assert np.isnan(np.diag(result.between)).all()


def test_the_panel_says_the_score_with_its_error_and_minus_the_control() -> None:
    ref = ModelRef("builtin:attn-only-2l")
    state = State(ref).with_view("training", TrainingView(context="text"))
    figure = figure_of(Engine(ModelStore()), find_panel("training"), state)
    m, control, in_context = read_series(model_dir("attn-only-2l")), read_series(model_dir("attn-only-0l")), {}
    plain = m["loss_by_index"][-1].astype(float)
    for words, curve in (("plain", plain), ("less", plain - control["loss_by_index"][-1])):
        early, late = (curve[a - 1 : b].mean() for a, b in (m.protocol["early"], m.protocol["late"]))
        in_context[words] = late - early
    said = {words: f"{value:.2f}".replace("-", "−") for words, value in in_context.items()}
    title = re.sub(" ± [0-9.]+", "", figure.title)
    assert f"{said['plain']} nats (text), {said['less']} nats minus a model without layers" in title
    assert (f"over the {_kept(m)} texts" in figure.caption) == (_kept(m) < m.protocol["texts"])
    assert " ± " in (figure.caption if _kept(m) < m.protocol["texts"] else figure.title)
    mark = figure.find("in-context score")
    assert isinstance(mark, Lines) and mark.names == ("on text", "minus a model without layers")
    assert mark.ys[1, -1] == pytest.approx(in_context["less"], abs=1e-5)
