"""The shipped training series: whole, true to the weights beside them, and the phase change where theory has it."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from circuitlab.model.loading import open_model
from circuitlab.model.loading.found import weight_files
from circuitlab.model.series import checkpoint_of, series_of
from circuitlab.model.series_measures import GONE, HEAD_ARRAYS, SeriesMeasures, has_series, read_series
from circuitlab.paths import model_dir, shipped, shipped_models
from circuitlab.training.metrics import head_scores, losses, repeated_random
from circuitlab.training.series_measuring import in_context, rep1_rep2
from circuitlab.training.series_points import points_of
from circuitlab.training.shipping import phase, steepest

MEASURED = tuple(name for name in shipped_models() if has_series(model_dir(name)))
LEAST = {"attn-only-2l": 24, "attn-only-1l": 8, "attn-only-1l-smeared": 8}
LARGEST = 160_000_000  # bytes of all models together


def _best(m: SeriesMeasures, name: str = "prefix_matching") -> np.ndarray:
    """[point]: the largest score of any head."""
    return m[name].reshape(len(m.steps), -1).max(1)


@pytest.mark.parametrize("name", sorted({*MEASURED, *LEAST}))
def test_a_series_is_whole(name: str) -> None:
    m, c = read_series(model_dir(name)), open_model(model_dir(name)).weights.config
    if GONE in m.checkpoints:
        assert name == "attn-only-2l-smeared" and not series_of(model_dir(name))
    else:
        points = points_of(model_dir(name))
        assert m.steps == tuple(p.step for p in points) and m.checkpoints == tuple(p.checkpoint for p in points)
        assert m.tokens == tuple(p.tokens for p in points)
        assert len(series_of(model_dir(name))) == len(points) - 1 >= LEAST.get(name, 1)
    assert sorted(set(m.tokens)) == list(m.tokens) and m.checkpoints[-1] is None
    final = b"".join(file.read_bytes() for file in weight_files(model_dir(name)))
    assert m.said["weights"][-1] == hashlib.sha256(final).hexdigest(), "of these weights and no others"
    assert all(np.isfinite(a).all() for a in m.arrays.values())
    assert all(m[a].shape[1:] == (c.n_layers, c.n_heads) for a in HEAD_ARRAYS)
    assert m["token_loss"].shape[1] >= 2048 and m["loss_by_index"].shape[1] == m.said["context"] - 1 == 127
    if m.steps[0] == 0:  # every token is as likely; a tied unembedding gives the token that is read a logit of its own
        assert np.log(c.d_vocab) - 0.1 < m["loss"][0] < np.log(c.d_vocab) + (1.0 if c.tied else 0.1)
    assert "## Checkpoint series" in (card := (model_dir(name) / "card.md").read_text()) and phase(m) in " ".join(card.split())
    assert all("/" not in source["label"] for source in m.said["sources"])


@pytest.mark.parametrize("name", sorted(LEAST))
def test_what_was_measured_is_what_the_weights_do(name: str) -> None:
    m = read_series(model_dir(name))
    random = repeated_random(4096, 128)
    for point in (len(m.steps) // 2, -1):
        weights = open_model(model_dir(name), checkpoint=m.checkpoints[point]).weights
        np.testing.assert_allclose(losses(weights, random).mean(0), m["repeated_loss_by_index"][point], atol=2e-3)
        for score, values in head_scores(weights, random).items():
            np.testing.assert_allclose(values, m[score][point], atol=1e-3)
    last = checkpoint_of(model_dir(name), -1)
    assert m.said["weights"][-2] == hashlib.sha256(last.read_bytes()).hexdigest()


def test_all_models_are_measured_on_the_same_texts() -> None:
    said = [read_series(model_dir(name)).said for name in sorted({*MEASURED, *LEAST})]
    for one in said:
        same = [other for other in said if other["texts"] == one["texts"]]
        assert all(other["sha256"] == one["sha256"] for other in same), "as many windows of a text are the same windows"
        assert one["sources"] == said[0]["sources"]
        assert all(one["sha256"][of] == said[0]["sha256"][of] for of in ("tokens", "random"))


def test_all_models_together_are_small() -> None:
    assert sum(f.stat().st_size for f in shipped("models").rglob("*") if f.is_file()) <= LARGEST


@pytest.mark.parametrize("name", ["attn-only-2l", "attn-only-1l-smeared"])
def test_prefix_matching_and_in_context_learning_come_together(name: str) -> None:
    m = read_series(model_dir(name))
    rep1, rep2 = rep1_rep2(m["repeated_loss_by_index"])
    best, fallen = _best(m), (rep2.max() - rep2) / (rep2.max() - rep2[-1])
    crossed = int(np.flatnonzero(best >= 0.5)[0])
    assert abs(crossed - steepest(m.steps, rep2)) <= 1, "within the points between which the second repetition falls fastest"
    assert 0.05 < fallen[crossed] < 0.5, "with the score half there, the fall has begun and is not half done"
    assert rep2[-1] < 2 < 8 < rep1.min(), "first occurrences cannot be foretold"
    together = np.corrcoef(best[m.steps.index(512) :], (rep1 - rep2)[m.steps.index(512) :])[0, 1]
    assert together > 0.8
    layer, head = np.unravel_index(m["prefix_matching"][-1].argmax(), m["prefix_matching"][-1].shape)
    assert m["zeroed_repeated"][-1].argmax() == m["prefix_matching"][-1].argmax(), "without that head the repetition is lost"
    assert m["zeroed_repeated"][-1][layer, head] > 4 > 0.1 > abs(m["zeroed_repeated"][0]).max()


def test_a_previous_token_head_comes_with_two_layers_and_not_with_smeared_keys() -> None:
    two, smeared = (read_series(model_dir(n)) for n in ("attn-only-2l", "attn-only-1l-smeared"))
    assert _best(two, "previous_token")[-1] > 0.9 and two["previous_token"][-1][0].max() > 0.9
    assert _best(smeared, "previous_token").max() < 0.3


def test_one_layer_does_no_induction() -> None:
    m = read_series(model_dir("attn-only-1l"))
    rep1, rep2 = rep1_rep2(m["repeated_loss_by_index"])
    assert _best(m).max() < 0.2 and rep2.min() > 8 and abs(rep1 - rep2).max() < 0.5
    assert m["loss"][-1] < 4.5, "it learns the text all the same"


def test_more_layers_foretell_text_better() -> None:
    final = lambda name: read_series(model_dir(name))["loss"][-1]
    assert final("attn-only-2l") < final("attn-only-1l-smeared") < 4.3 and final("attn-only-2l") < final("attn-only-1l")
    two = read_series(model_dir("attn-only-2l"))
    score = in_context(two["loss_by_index"], two.said)
    assert score[-1] < -0.3 < -0.2 < score[two.steps.index(1024)]
