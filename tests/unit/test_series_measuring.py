"""Measuring a training series: every array against its definition done slowly, the points, what is taken over, what is said."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from circuitlab.analysis.training.scores import RANDOM, TEXT, late_minus_early, phase_of, repetitions, scores_of
from circuitlab.analysis.training.series import TrainingSeriesParams
from circuitlab.cli.parser import main
from circuitlab.errors import BadInput, BadMachine, BadModel
from circuitlab.model.forward import forward
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.loading import open_model
from circuitlab.model.records.series import series_of
from circuitlab.model.records.series_measures import (
    FILE,
    GONE,
    HEAD_ARRAYS,
    OWN_ARRAYS,
    TEXT_ARRAYS,
    SeriesMeasures,
    read_series,
    write_series,
)
from circuitlab.training import shipping
from circuitlab.training.corpus import Stream
from circuitlab.training.measured_texts import MeasuredTexts, sha256, texts_for
from circuitlab.training.recipe import Recipe, Stage
from circuitlab.training.recipe_file import read_recipe
from circuitlab.training.series_adding import add_to_series
from circuitlab.training.series_card import describe, section
from circuitlab.training.series_card import main as describe_all
from circuitlab.training.series_measuring import STAGE, measure_series, set_outdated_aside
from circuitlab.training.series_point import measure_point, zeroed
from circuitlab.training.series_points import points_of, tokens_after
from circuitlab.training.shipping import ship
from tests.models import CONFIGS, TINY, directory, weights_of
from tests.series_files import keep_scaled

SMALL: dict[str, Any] = {"windows": 4, "context": 16, "many": 12}
WORDS = "the grey heron stood in the shallow water and the small boat went by; def f(x): return x + 1\n"


def _streams(vocab: int = 257) -> tuple[Stream, ...]:
    rng = np.random.default_rng(1)
    make = lambda label, share: Stream(label, share, *(rng.integers(1, vocab, n).astype(np.uint16) for n in (50, 200)))
    return make("a", 0.75), make("b", 0.25)


@pytest.fixture
def texts() -> MeasuredTexts:
    return texts_for(TINY, 0, _streams(), **SMALL)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model with two checkpoints, random weights scaled down; its final step is 300."""
    path = directory(tmp_path / "toy")
    keep_scaled(path, {0: 0.25, 100: 0.5})
    (path / "metrics.json").write_text(json.dumps({"step": 300, "tokens": 7000, "checkpoints": [{"step": 100, "tokens": 2500}]}))
    return path


# -- definitions -----------------------------------------------------------------------------------------------------------


def _slow_losses(t: dict[str, Tensor], ids: list[int], cut: tuple[int, int] | None = None) -> np.ndarray:
    """float64, one head after the other: the losses of an attention-only model, one head's result left out, patterns kept."""
    W = {name: value.double().numpy() for name, value in t.items()}
    n = len(ids)

    def passed(patterns: dict[tuple[int, int], np.ndarray] | None, without: tuple[int, int] | None) -> Any:
        x, kept = W["embed.W_E"][ids], {}
        for layer in range(TINY.n_layers):
            out = np.zeros_like(x)
            for h in range(TINY.n_heads):
                name = f"layers.{layer}.W_"
                if patterns is None:
                    at = x + W["embed.W_pos"][:n]
                    raw = (at @ W[name + "Q"][h]) @ (at @ W[name + "K"][h]).T / math.sqrt(TINY.d_head)
                    raw = np.where(np.tril(np.ones((n, n), bool)), raw, -np.inf)
                    e = np.exp(raw - raw.max(1, keepdims=True))
                    kept[layer, h] = e / e.sum(1, keepdims=True)
                A = kept[layer, h] if patterns is None else patterns[layer, h]
                if (layer, h) != without:
                    out += A @ x @ W[name + "V"][h] @ W[name + "O"][h]
            x = x + out
        return x, kept

    x, kept = passed(None, None)
    x = passed(kept, cut)[0] if cut else x
    logits = x[:-1] @ W["unembed.W_U"]
    logits = logits - logits.max(1, keepdims=True)
    return np.log(np.exp(logits).sum(1)) - logits[np.arange(n - 1), ids[1:]]


def test_losses_and_zeroed_heads_are_their_definitions(texts: MeasuredTexts) -> None:
    w, t = weights_of(TINY)
    made = measure_point(w, texts)
    slow = lambda rows, cut=None: np.array([_slow_losses(t, row, cut) for row in rows.tolist()])
    np.testing.assert_allclose(made["loss_by_index"], slow(texts.held_out).mean(0), rtol=2e-5)
    np.testing.assert_allclose(made["loss"], slow(texts.held_out).mean(), rtol=1e-5)
    np.testing.assert_allclose(made["repeated_loss_by_index"], slow(texts.random).mean(0), rtol=2e-5)
    np.testing.assert_allclose(made["repeated_text_loss_by_index"], slow(texts.repeated).mean(0), rtol=2e-5)
    np.testing.assert_allclose(made["token_loss"], slow(texts.many)[:, -1], rtol=2e-5)
    block = (texts.random.shape[1] - 1) // 2
    for layer, head in ((0, 1), (1, 3)):
        text = slow(texts.held_out, (layer, head)).mean() - slow(texts.held_out).mean()
        again = (slow(texts.random, (layer, head)) - slow(texts.random))[:, block + 1 :].mean()
        assert made["zeroed_text"][layer, head] == pytest.approx(text, abs=2e-5)
        assert made["zeroed_repeated"][layer, head] == pytest.approx(again, abs=2e-5)
    assert abs(made["zeroed_text"]).min() > 1e-3, "a head that does nothing shows nothing"


@pytest.mark.parametrize("name", ["gpt2", "llama", "smeared", "parallel", "both-norms-capped"])
def test_zeroed_heads_are_interventions_with_later_patterns_frozen(name: str) -> None:
    w, _ = weights_of(CONFIGS[name])
    tokens = torch.randint(1, 260, (2, 9), generator=torch.Generator().manual_seed(0))
    found = zeroed(w, tokens, 3)
    for layer, head in ((0, 0), (0, 3), (1, 2)):
        edits = [Intervention("zero", Site("z", layer, (head,)))]
        edits += [Intervention("freeze", Site("pattern", i)) for i in range(layer + 1, w.config.n_layers)]
        rows = [tuple(row.tolist()) for row in tokens]
        after, before = (torch.stack([forward(w, row, e).losses() for row in rows]) for e in (tuple(edits), ()))
        assert found[layer, head] == pytest.approx(float((after - before)[:, 2:].mean()), abs=1e-5)


def test_scores_are_those_of_slow_loops(texts: MeasuredTexts) -> None:
    w, t = weights_of(TINY)
    made = measure_point(w, texts)
    expected = np.zeros((4, TINY.n_layers, TINY.n_heads))
    for row in texts.random.tolist():
        run = forward(w, tuple(row))
        for layer in range(TINY.n_layers):
            A, n = run.get("pattern", layer).double().numpy(), len(row)
            targets = [[s for s in range(1, d + 1) if row[s - 1] == row[d]] for d in range(n)]
            earlier = [[s for s in range(d) if row[s] == row[d]] for d in range(n)]
            for i, wanted in enumerate((targets, earlier)):
                mass = [A[:, d, s].sum(-1) for d, s in enumerate(wanted) if s]
                expected[(0, 2)[i], layer] += np.mean(mass, axis=0)
            expected[1, layer] += np.mean([A[:, d, d - 1] for d in range(1, n)], axis=0)
            expected[3, layer] += np.mean([A[:, d, 0] for d in range(1, n)], axis=0)
    for name, value in zip(("prefix_matching", "previous_token", "duplicate_token", "first_token"), expected, strict=True):
        np.testing.assert_allclose(made[name], value / len(texts.random), atol=2e-5)
    W_E, W_U = t["embed.W_E"].double(), t["unembed.W_U"].double()
    W_U = W_U - W_U.mean(1, keepdim=True)
    for layer, head in ((0, 0), (1, 2)):
        OV = t[f"layers.{layer}.W_V"][head].double() @ t[f"layers.{layer}.W_O"][head].double()
        values = torch.linalg.eigvals(W_E @ OV @ W_U)
        assert made["copying"][layer, head] == pytest.approx(float(values.sum().real / values.abs().sum()), abs=1e-4)


def test_a_model_without_layers_has_arrays_without_layers(texts: MeasuredTexts) -> None:
    w, _ = weights_of(replace(TINY, n_layers=0))
    made = measure_point(w, texts)
    assert all(made[name].shape == (0, TINY.n_heads) for name in HEAD_ARRAYS)
    assert made["loss_by_index"].shape == (15,) and np.isfinite(made["loss"])


def test_a_model_that_cannot_predict_what_it_reads_is_refused(texts: MeasuredTexts) -> None:
    with pytest.raises(BadModel, match="cannot predict"):
        measure_point(weights_of(replace(TINY, d_vocab_out=100))[0], texts)


# -- texts -----------------------------------------------------------------------------------------------------------------


def test_texts_are_held_out_windows_by_share_and_the_same_for_every_model(texts: MeasuredTexts) -> None:
    streams = _streams()
    assert [len(x) for x in (texts.held_out, texts.random, texts.repeated, texts.many)] == [4, 16, 4, 12]
    inside = lambda row, stream: row[1:].tolist() in np.lib.stride_tricks.sliding_window_view(stream.held_out, 15).tolist()
    assert [sum(inside(row, s) for row in texts.many) for s in streams] == [9, 3]
    assert [sum(inside(row, s) for row in texts.held_out) for s in streams] == [3, 1]
    assert len({tuple(row.tolist()) for row in texts.many}) == 12
    assert all((x[:, 0] == 0).all() for x in (texts.held_out, texts.random, texts.repeated, texts.many))
    assert torch.equal(texts.repeated[:, 1:8], texts.repeated[:, 8:]) and torch.equal(
        texts.repeated[:, :8], texts.held_out[:, :8]
    )
    assert torch.equal(texts.random[:, 1:8], texts.random[:, 8:])
    other = texts_for(replace(TINY, n_layers=1, smeared_keys=True), 0, streams, **SMALL)
    assert other.protocol == texts.protocol and other.protocol["sha256"]["tokens"] == sha256(texts.many)
    assert texts_for(TINY, 0, _streams(256), **SMALL).protocol["sha256"] != texts.protocol["sha256"]


def test_heads_are_zeroed_on_evenly_spaced_windows_where_there_are_many() -> None:
    made = texts_for(TINY, 0, _streams(), windows=130, context=16, many=12)
    assert len(made.held_out) == 130 and made.protocol["zeroed_texts"] == len(made.zeroing) == 64
    places = [made.held_out.tolist().index(row) for row in made.zeroing.tolist()]
    assert places[0] == 0 and places[-1] == 129 and set(np.diff(places)) == {2, 3}
    assert texts_for(TINY, 0, _streams(), **SMALL).zeroing.shape == (4, 16)


def test_texts_that_do_not_suffice_are_refused() -> None:
    with pytest.raises(BadInput, match="a has too little"):
        texts_for(TINY, 0, _streams(), windows=4, context=16, many=1000)
    short = tuple(replace(s, held_out=s.held_out[:10]) for s in _streams())
    with pytest.raises(BadInput, match="a has too little"):
        texts_for(TINY, 0, short, **SMALL)
    with pytest.raises(BadInput, match="too short"):
        texts_for(replace(TINY, n_ctx=3), 0, _streams(), **SMALL)


def test_as_many_texts_as_there_are_where_no_number_is_asked(texts: MeasuredTexts) -> None:
    """Source b has 186 windows for its quarter: not 2 048 texts but what keeps the shares, none of them twice."""
    streams = tuple(replace(s, held_out=s.held_out[:n]) for s, n in zip(_streams(), (200, 60), strict=True))
    made = texts_for(TINY, 0, streams, windows=4, context=16)
    room = {"a": 200 - 14, "b": 60 - 14}
    from_b = len(made.many) - round(0.75 * len(made.many))
    assert made.protocol["tokens"] == len(made.many) < 2048
    assert 0.9 * room["b"] <= from_b <= room["b"] and len(made.many) - from_b <= room["a"]
    assert len({tuple(row) for row in made.many.tolist()}) == len(made.many)
    large = tuple(replace(s, held_out=np.tile(s.held_out, 40)) for s in _streams())
    assert texts_for(TINY, 0, large, windows=4, context=16).protocol["tokens"] == 2048


def test_another_bos_begins_every_text() -> None:
    made = texts_for(TINY, 5, _streams(), **SMALL)
    assert all((x[:, 0] == 5).all() for x in (made.held_out, made.random, made.repeated, made.many))
    assert not (made.random[:, 1:] == 5).any()


# -- points ----------------------------------------------------------------------------------------------------------------


def test_points_are_the_checkpoints_and_then_the_final_weights(model: Path) -> None:
    assert [(p.step, p.tokens, p.checkpoint) for p in points_of(model)] == [(0, 0, 0), (100, 2500, 1), (300, 7000, None)]
    shutil.copy(model / "checkpoints" / "step-000100.safetensors", model / "checkpoints" / "step-000300.safetensors")
    assert [(p.step, p.checkpoint) for p in points_of(model)] == [(0, 0), (100, 1), (300, None)], "the final step stands once"
    shutil.copy(model / "checkpoints" / "step-000100.safetensors", model / "checkpoints" / "step-000400.safetensors")
    with pytest.raises(BadModel, match="after the final weights"):
        points_of(model)


def test_without_metrics_the_last_checkpoint_is_final_and_a_recipe_counts_tokens(model: Path) -> None:
    (model / "metrics.json").unlink()
    with pytest.raises(BadInput, match="step 100"):
        points_of(model)
    tiny = read_recipe("tiny")
    seen = sum(tiny.stage(k).batch * tiny.stage(k).context for k in range(100))
    assert [(p.step, p.tokens, p.checkpoint) for p in points_of(model, "tiny")] == [(0, 0, 0), (100, seen, None)]
    named = model.rename(model.parent / "attn-only-2l")
    assert [p.tokens for p in points_of(named)] == [0, 100 * 2048]


def test_tokens_of_a_recipe_are_the_sum_over_its_steps() -> None:
    stages = (Stage(5, 7, 3), Stage(0, 4, 2), Stage(9, 10, 1))
    recipe = Recipe("r", 0, 9, {}, {}, stages, read_recipe("tiny").optimiser)
    for step in (0, 1, 5, 6, 9, 20):
        assert tokens_after(recipe, step) == sum(recipe.stage(k).batch * recipe.stage(k).context for k in range(step))


def test_a_model_without_checkpoints_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadModel, match="no checkpoint series") as caught:
        points_of(directory(tmp_path / "m"))
    assert "circuitlab train" in caught.value.remedy


# -- a series --------------------------------------------------------------------------------------------------------------


def check_measures(found: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]) -> None:
    """The same arrays up to rounding."""
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-5, err_msg=name)


def test_a_series_is_measured_written_and_taken_over(model: Path) -> None:
    lines: list[str] = []
    made = measure_series(model, _streams(), say=lines.append, **SMALL)
    result = read_series(model)
    assert (result.steps, result.tokens, result.checkpoints) == ((0, 100, 300), (0, 2500, 7000), (0, 1, None))
    assert all(np.array_equal(result[name], made[name]) for name in made.arrays) and not (model / STAGE).exists()
    texts = texts_for(TINY, 0, _streams(), **SMALL)
    for i, checkpoint in enumerate((0, 1, None)):
        alone = measure_point(open_model(model, checkpoint=checkpoint).weights, texts)
        check_measures({name: result[name][i] for name in alone}, alone)
    assert result["token_loss"].shape == (3, 12) and result["loss"].min() > 0
    assert result.protocol["context"] == 16 and result.protocol["sources"][0] == {"label": "a", "share": 0.75, "held_out": 200}
    score = scores_of(result)[0][:, TEXT]
    np.testing.assert_allclose(score, result["loss_by_index"][:, 14] - result["loss_by_index"][:, :2].mean(1), rtol=1e-5)
    before = (model / FILE).read_bytes()
    lines.clear()
    measure_series(model, _streams(), say=lines.append, **SMALL)
    assert (model / FILE).read_bytes() == before and all("measured before" in line for line in lines) and len(lines) == 3


def test_only_what_changed_is_measured_again(model: Path) -> None:
    measure_series(model, _streams(), **SMALL)
    before = read_series(model)
    checkpoint = model / "checkpoints" / "step-000100.safetensors"
    save_file({n: t / 2 for n, t in load_file(checkpoint).items()}, checkpoint)
    lines: list[str] = []
    after = measure_series(model, _streams(), say=lines.append, **SMALL)
    assert ["before" in line for line in lines] == [True, False, True]
    assert not np.array_equal(after["loss"][1], before["loss"][1]) and after["loss"][2] == before["loss"][2]
    lines.clear()
    measure_series(model, _streams(), say=lines.append, windows=5, context=16, many=12)
    assert not any("before" in line for line in lines), "other texts are other measures"


def test_measures_of_other_weights_are_set_aside_and_taken_over(model: Path) -> None:
    measure_series(model, _streams(), **SMALL)
    set_outdated_aside(model)
    assert (model / FILE).is_file(), "they are of these weights"
    save_file({n: t / 2 for n, t in load_file(model / "model.safetensors").items()}, model / "model.safetensors")
    set_outdated_aside(model)
    assert not (model / FILE).exists()
    lines: list[str] = []
    made = measure_series(model, _streams(), say=lines.append, **SMALL)
    assert ["before" in line for line in lines] == [True, True, False] and not (model / STAGE).exists()
    set_outdated_aside(model)
    assert np.array_equal(read_series(model)["loss"], made["loss"])


def test_a_killed_measurement_goes_on_where_it_was(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(line: str) -> None:
        if line.startswith("step 100"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_series(model, _streams(), say=stop, **SMALL)
    assert not (model / FILE).exists() and (model / STAGE / FILE).is_file()
    lines: list[str] = []
    resumed = measure_series(model, _streams(), say=lines.append, **SMALL)
    assert ["before" in line for line in lines] == [True, True, False]
    (model / FILE).unlink()
    whole = measure_series(model, _streams(), **SMALL)
    check_measures(resumed.arrays, whole.arrays)
    assert whole.protocol == resumed.protocol


def test_what_an_earlier_file_lacks_is_added_on_the_texts_at_hand(model: Path) -> None:
    whole = measure_series(model, _streams(), **SMALL)
    score = whole["late_by_text"] - whole["early_by_text"]
    np.testing.assert_allclose(score.mean(1), scores_of(whole)[0][:, TEXT], atol=1e-4)
    later = (*TEXT_ARRAYS, *OWN_ARRAYS)
    old = replace(whole, arrays={name: a for name, a in whole.arrays.items() if name not in later})
    write_series(model, old)
    assert all(np.isnan(read_series(model)[name]).all() for name in later), "an old file is read: not measured"
    added = add_to_series(model, _streams(), 0)
    check_measures(added.arrays, whole.arrays)
    write_series(model, old)
    first, second = _streams()
    part = add_to_series(model, (first, replace(second, held_out=second.held_out[:-1])), 0)
    assert np.isnan(part["late_by_text"][:, 3:]).all()
    check_measures({"late": part["late_by_text"][:, :3]}, {"late": whole["late_by_text"][:, :3]})
    with pytest.raises(BadInput, match="None of the measured texts"):
        add_to_series(model, (replace(first, label="other"),), 0)


def test_points_whose_weights_were_not_kept_stay_as_they_were_measured(model: Path) -> None:
    whole = measure_series(model, _streams(), **SMALL)
    write_series(model, replace(whole, checkpoints=(GONE, GONE, None)))
    shutil.rmtree(model / "checkpoints")
    again = measure_series(model, _streams(), **SMALL)
    assert again.checkpoints == (GONE, GONE, None) and again.steps == whole.steps
    check_measures(again.arrays, whole.arrays)


def test_a_damaged_file_is_measured_anew(model: Path) -> None:
    measure_series(model, _streams(), **SMALL)
    whole = (model / FILE).read_bytes()
    for damaged in (whole[:100], b"", whole.replace(b"circuitlab-series", b"x" * 17), whole[:-40]):
        (model / FILE).write_bytes(damaged)
        with pytest.raises(BadModel):
            read_series(model)
    measure_series(model, _streams(), **SMALL)
    assert (model / FILE).read_bytes() == whole


def test_what_cannot_be_measured_is_said_before_any_work(model: Path, tmp_path: Path) -> None:
    (model / STAGE).write_text("in the way")  # what a folder that may not be written to answers with, for root too
    with pytest.raises(BadMachine, match="could not be written"):
        measure_series(model, _streams(), **SMALL)
    (model / STAGE).unlink()
    (model / "tokenizer.json").unlink()
    with pytest.raises(BadModel, match="no tokenizer"):
        measure_series(model, _streams(), **SMALL)
    assert not (model / FILE).exists()


# -- the command -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "some text.txt"
    path.write_text(WORDS * 60, encoding="utf-8")
    return path


def test_the_command_measures_a_series(model: Path, text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--windows", "3", "--context", "20", "--tokens", "7"]
    assert main(["measure", str(model), "--text", str(text), *options]) == 0
    out = capsys.readouterr().out
    assert "3 points" in out and "step 300 (3/3)" in out and "rep2" in out
    result = read_series(model)
    assert result["token_loss"].shape == (3, 7) and result["loss_by_index"].shape == (3, 19)
    assert str(text.parent) not in json.dumps(dict(result.protocol)) and result.protocol["sources"][0]["label"] == "some text.txt"


def test_the_command_says_what_is_missing(model: Path, text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = lambda *words: (main(["measure", *words]), capsys.readouterr().err)
    assert said(str(model))[0] == 2, "without a text"
    status, err = said(str(model), "--text", str(text.parent / "none.txt"))
    assert status == 3 and "does not exist" in err
    text.write_text("a few words")
    status, err = said(str(model), "--text", str(text))
    assert status == 3 and "too little" in err
    status, err = said("no-such-model", "--text", str(text))
    assert status == 3 and "attn-only-2l" in err
    (model / "tokenizer.json").unlink()
    status, err = said(str(model), "--text", str(text))
    assert status == 3 and "no tokenizer" in err
    shutil.rmtree(model / "checkpoints")
    status, err = said(str(model), "--text", str(text))
    assert status == 3 and "no checkpoint series" in err
    assert not (model / FILE).exists()


# -- shipping --------------------------------------------------------------------------------------------------------------


def test_a_run_becomes_a_model_folder(model: Path, tmp_path: Path) -> None:
    run, made = tmp_path / "run", tmp_path / "made"
    run.mkdir()
    (model / "checkpoints").rename(run / "checkpoints")
    shutil.copy(run / "checkpoints" / "step-000100.safetensors", run / "checkpoints" / "step-000300.safetensors")
    model.rename(run / "model")
    (run / "model" / "card.md").write_text("# toy\n\nWords.\n")
    with pytest.raises(BadInput, match="no checkpoints of these steps"):
        ship(run, made, (0, 7))
    ship(run, made)
    assert [step for step, _ in series_of(made)] == [0, 100], "the final step is in the model itself"
    measure_series(made, _streams(), **SMALL)
    describe(made)
    once = (made / "card.md").read_text()
    describe(made)
    assert (
        (made / "card.md").read_text() == once and once.count("## Checkpoint series") == 1 and once.startswith("# toy\n\nWords.")
    )
    assert once.count("\n| ") == 4 + 4
    with pytest.raises(BadInput, match="no finished model"):
        ship(made, tmp_path / "other")


def test_shipping_measures_a_run_and_may_leave_its_weights_out(model: Path, text: Path, tmp_path: Path) -> None:
    run, made = tmp_path / "run", tmp_path / "made"
    run.mkdir()
    (model / "checkpoints").rename(run / "checkpoints")
    model.rename(run / "model")
    words = [str(run), str(made), "--text", str(text), "--measures-only"]
    (run / "model" / "metrics.json").write_text(json.dumps({"step": 300, "tokens": 7000}))
    assert shipping.main(words) == 3 and not (made / FILE).exists(), "nothing says how many tokens step 100 had seen"
    assert shipping.main([*words, "--recipe", "tiny"]) == 0
    result = read_series(made)
    assert result.steps == (0, 100, 300) and result.tokens[-1] == 7000 and set(result.checkpoints) == {GONE, None}
    assert not series_of(made) and "## Checkpoint series" in (made / "card.md").read_text()


def _with_a_fall(model: Path) -> SeriesMeasures:
    """Three points of a model: the second repetition falls from 8 nats by 2 and stays, a head comes to match prefixes."""
    made = measure_series(model, _streams(), **SMALL)
    by_index, prefix = np.full((3, 14), 8.0, np.float32), np.zeros((3, 2, 4), np.float32)
    by_index[1:, 8:], prefix[1:, 1, 2] = 6.0, 0.6
    changed = replace(made, arrays={**made.arrays, "repeated_loss_by_index": by_index, "prefix_matching": prefix})
    return replace(changed, tokens=(1000, 2000, 64000))


def test_the_card_states_rule_window_fall_and_prefix_matching(model: Path) -> None:
    changed = _with_a_fall(model)
    found = phase_of(changed, RANDOM, TrainingSeriesParams().rule(RANDOM))
    assert found == (0, 1, 2.0, 0.0, pytest.approx(0.6)), "2 nats a doubling, then nothing for five"
    said = section(changed)
    row = "| repeated random tokens | 0 → 100 | 1,000 → 2,000 | 0.000 → -2.000 | 2.000 | 0.00 → 0.60 |"
    assert row in said
    words = " ".join(said.split())
    for part in ("at least 0.5 as steep", "falls by 1 nat (0.1 on text) or more there", "factor of 1.03 (1.2 on text)"):
        assert part in words
    noise = replace(changed, tokens=(1000, 1010, 64000))
    assert "| repeated random tokens | no phase change" in section(noise), "a point too close to the one before is passed over"


def test_a_card_is_written_anew_from_the_file_alone(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_series(model, _with_a_fall(model))
    (model / "card.md").write_text("# toy\n\n## Checkpoint series\n\nold words\n\n### Phase changes\n\nold\n\n## After\n\nkept\n")
    (model / "model.safetensors").unlink()  # nothing is measured
    assert describe_all([str(model)]) == 0
    made = (model / "card.md").read_text(encoding="utf-8")
    assert made.startswith("# toy\n\n## Checkpoint series\n") and made.endswith("\n\n## After\n\nkept\n")
    assert (
        "old words" not in made and "\n\nold\n" not in made and made.count("### Phase changes") == 1 and "1,000 → 2,000" in made
    )
    (model / FILE).unlink()
    assert describe_all([str(model)]) == 3 and "was not measured" in capsys.readouterr().err


def test_repetitions_and_ends_of_a_text() -> None:
    losses = np.array([[1, 2, 3, 9, 4, 6], [1, 1, 1, 7, 2, 2]], np.float32)
    np.testing.assert_array_equal(repetitions(losses), [[2, 5], [1, 2]])
    np.testing.assert_array_equal(repetitions(losses[0]), [2, 5])
    assert np.isnan(repetitions(losses[:, :2])).all(), "one token and itself: nothing is left of the second"
    assert late_minus_early(losses[0], (1, 2, 5, 6)) == 3.5
    assert np.isnan(late_minus_early(losses, (1, 3, 3, 4))).all(), "ends that overlap"
