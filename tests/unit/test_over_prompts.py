"""Means over prompt sets: against the same analysis asked prompt by prompt; targets, interventions, resuming, refusals."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circuitlab.analysis import _registry, base
from circuitlab.analysis.attribution.neurons import NeuronsParams
from circuitlab.analysis.attribution.term_importance import TermImportanceParams
from circuitlab.analysis.attribution.token_attribution import NEAR, TokenAttributionParams
from circuitlab.analysis.base import Ctx, Inputs, NullContext, Remainder, Result, Table, TextRef, analysis
from circuitlab.analysis.behaviour.over_prompts import OverPromptsParams, OverPromptsResult, can_be_averaged, statistics
from circuitlab.analysis.interventions.patching import PatchingParams
from circuitlab.analysis.interventions.path_patching import PathPatchingParams
from circuitlab.analysis.target import position_of, target_at
from circuitlab.disk.paths import resource
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, Cancelled, CircuitLabError, Refused, UsageError
from circuitlab.model.config import ModelConfig
from circuitlab.model.forward import forward
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.plain import from_json
from circuitlab.model.prompts import read_prompts
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject, Target
from tests.models import CONFIGS, byte_tokenizer, directory

LINES = "# four lines\nabcabc\ta\tb\nxyz xyz\tx\nthe cat, the\t \tdog\nqq\tq\tr\n"
DOUBLE = Conventions(dtype="float64")


@dataclass(frozen=True)
class ProbeParams:
    target: Target = Target()
    position: int = 3
    shape: str = "fixed"
    other: TextRef | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class ProbeResult(Result):
    value: np.ndarray
    attention: np.ndarray
    shape: str

    def table(self) -> Table:
        return Table(())

    def across(self) -> Mapping[str, np.ndarray]:
        result = {"attention": self.attention, "value": self.value}
        return {} if self.shape == "nothing" else result if self.shape == "fixed" else {"pos": np.zeros(int(self.value[1]))}


def probe(inputs: Inputs, p: ProbeParams, ctx: Ctx) -> ProbeResult:
    """The target at a position and its length; attention to the first token."""
    run = inputs.run()
    at = position_of(run.n, p.position)
    value = target_at(inputs, p.target, [at]).measure(
        inputs.weights, run.get("resid_post", run.weights.config.n_layers - 1)[[at]]
    )
    layers = range(run.weights.config.n_layers)
    attention = np.array([run.get("pattern", i)[:, at, 0].numpy() for i in layers])
    return ProbeResult(
        value=np.array([float(value), run.n]),
        attention=attention,
        shape=p.shape,
        conventions=(*inputs.convention_words(), "a probe", f"{run.n} tokens"),
        remainder=Remainder(0.001 * run.n, 1.0, "logit"),
    )


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    base.analyses()
    monkeypatch.setattr(_registry, "_REGISTRY", dict(_registry._REGISTRY))
    reason = lambda c, p: "this shape is refused." if p.shape == "refused" else None
    analysis(version=1, needs="tokens", lane="live", memory=lambda c, n, p: 0, refuse=reason)(probe)
    yield


@dataclass
class Asker:
    folder: Path
    config: str = "attention-only"

    def __post_init__(self) -> None:
        self.ref = ModelRef(f"file:{directory(self.folder / 'm', CONFIGS[self.config])}")
        self.file = self.folder / "set.tsv"
        self.file.write_text(LINES, encoding="utf-8")
        self.engine = Engine(ModelStore())

    @property
    def weights(self) -> Any:
        return self.engine.store.open(self.ref).weights(DOUBLE)

    @property
    def prompts(self) -> Any:
        return read_prompts(LINES, "set", byte_tokenizer(), self.weights.config)

    def request(self, name: str = "probe", edits: Any = (), tokens: Any = (), **params: Any) -> Request:
        p = OverPromptsParams(TextRef(str(self.file)), name, json.dumps(params.pop("inner", {})), **params)
        return Request.named("over_prompts", p, Subject(self.ref, tokens, edits, DOUBLE))

    def __call__(self, *words: Any, **params: Any) -> OverPromptsResult:
        result = self.engine.answer(self.request(*words, **params)).result
        assert isinstance(result, OverPromptsResult)
        return result


@pytest.fixture
def ask(tmp_path: Path) -> Asker:
    return Asker(tmp_path)


def slowly(ask: Asker, edits: Any = ()) -> tuple[np.ndarray, np.ndarray]:
    """(target's value [prompt], attention to the first token from the last [prompt, layer, head]) from logits and patterns."""
    values, attention = [], []
    for prompt in ask.prompts:
        run = forward(ask.weights, prompt.tokens, edits)
        logits = run.logits()[-1].numpy()
        a, *b = prompt.target.tokens
        values.append(logits[a] - sum(logits[x] for x in b))
        attention.append([run.get("pattern", i)[:, -1, 0].numpy() for i in range(run.weights.config.n_layers)])
    return np.array(values), np.array(attention)


@pytest.mark.parametrize("config", ["attention-only", "gpt2", "llama"])
@pytest.mark.parametrize("edits", [(), (Intervention("zero", Site("z", 0, (1,))), Intervention("mean", Site("result", 1, (2,))))])
def test_mean_and_spread_are_those_of_the_prompts_one_by_one(tmp_path: Path, config: str, edits: Any) -> None:
    ask = Asker(tmp_path, config)
    values, attention = slowly(ask, edits)
    result = ask(edits=edits)
    assert (result.field, result.names, result.axes) == ("attention", ("attention", "value"), ("layer", "head"))
    np.testing.assert_allclose(result.values, attention, atol=1e-9)
    np.testing.assert_allclose(result.mean, attention.mean(0), atol=1e-9)
    np.testing.assert_allclose(result.sd, attention.std(0, ddof=1), atol=1e-9)
    assert (result.n == 4).all() and result.counted == 4 and result.done == 1
    value = ask(edits=edits, field="value")
    np.testing.assert_allclose(value.values[:, 0], values, atol=1e-9)
    np.testing.assert_allclose(value.mean[0], values.mean(), atol=1e-9)
    assert value.axes == ("axis 0",)


def test_both_answers_stand_beside_each_prompt_with_their_probabilities(ask: Asker) -> None:
    edits = (Intervention("zero", Site("z", 0)),)
    result = ask(edits=edits)
    for i, prompt in enumerate(ask.prompts):
        logits = forward(ask.weights, prompt.tokens, edits).logits()[-1].numpy()
        p = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        first, *other = prompt.target.tokens
        assert (result.answer[i], result.other_answer[i]) == (first, other[0] if other else -1)
        assert result.answer_probability[i] == pytest.approx(p[first], rel=1e-9)
        expected = p[other[0]] if other else np.nan
        assert result.other_answer_probability[i] == pytest.approx(expected, rel=1e-9, nan_ok=True)
        assert result.answer_rank[i] == 1 + int((logits > logits[first]).sum()) and result.answer_equal[i] == 1
    assert result.first_choices == (int((result.answer_rank == 1).sum()), 4)
    both = [i for i, prompt in enumerate(ask.prompts) if len(prompt.target.tokens) == 2]
    above = sum(bool(result.answer_probability[i] > result.other_answer_probability[i]) for i in both)
    assert result.above_the_other == (above, len(both))
    frame = ask.engine.answer(ask.request(edits=edits)).to_pandas("answer_probability", "other_answer_probability")
    assert frame["answer text"].tolist() == ["a", "x", "·", "q"]  # of a line's prompt, in words
    assert frame["other_answer text"].tolist() == ["b", "", "d", "r"]


def test_the_target_is_measured_behind_what_both_answers_begin_with(ask: Asker) -> None:
    ask.file.write_text("abcabc\t d\t e\nabc\td\te\n")
    result = ask()
    logits = forward(ask.weights, (*ask.prompts[0].tokens, *byte_tokenizer().encode(" "))).logits()[-1]
    assert result.prompts == ("abcabc ", "abc")
    assert result.answer_probability[0] == pytest.approx(float(logits.double().softmax(0)[result.answer[0]]), rel=1e-9)
    assert "what both answers begin with is part of 1 prompt" in result.conventions


def test_of_a_line_without_answers_what_was_measured_stands_there(ask: Asker) -> None:
    ask.file.write_text("abcabc\n")
    logits = forward(ask.weights, ask.prompts[0].tokens).logits()[-1]
    assert ask().answer.tolist() == [int(logits.argmax())] and ask().other_answer.tolist() == [-1]
    given = ask(inner={"target": {"tokens": [7, 9]}})
    assert (given.answer.tolist(), given.other_answer.tolist()) == ([7], [9])
    assert ask("head_scores", inner={"on": "text"}).answer.tolist() == [-1]  # which measures no target


def test_the_caption_says_set_sample_and_what_all_prompts_share(ask: Asker) -> None:
    result = ask()
    assert "mean of 4 prompts of set.tsv" in result.conventions
    assert "1 longer answer, by its first token" in result.conventions  # "dog"
    assert "a probe" in result.conventions and not any("tokens" in w for w in result.conventions)
    words = DOUBLE.words(CONFIGS["attention-only"])
    assert result.conventions[: len(words)] == words
    longest = max(len(p.tokens) for p in ask.prompts)
    assert result.remainder == Remainder(0.001 * longest, 1.0, "logit")


def test_the_table_has_a_row_an_entry(ask: Asker) -> None:
    result = ask()
    columns = {c.name: c.values for c in result.table().columns}
    assert list(columns) == ["layer", "head", "mean", "sd", "n"]
    row = 1 * 4 + 2
    assert (columns["layer"][row], columns["head"][row], columns["mean"][row]) == (1, 2, result.mean[1, 2])


def test_a_line_without_answers_keeps_the_target_that_was_given(ask: Asker) -> None:
    ask.file.write_text("abcabc\n")
    run = forward(ask.weights, ask.prompts[0].tokens)
    given = ask(inner={"target": {"tokens": [7, 9]}}, field="value")
    assert given.values[0, 0] == pytest.approx(float(run.logits()[-1][7] - run.logits()[-1][9]), abs=1e-9)
    assert ask(field="value").values[0, 0] == pytest.approx(float(run.logits()[-1].max()), abs=1e-9)
    assert np.isnan(given.sd).all() and (given.n == 1).all()


def test_the_subjects_own_text_does_not_count_and_its_interventions_do(ask: Asker) -> None:
    edits = (Intervention("zero", Site("z", 0)),)
    model, key = ask.engine.store.open(ask.ref), ask.engine.key
    same = key(ask.request(tokens=(0, 1, 2)), model)
    assert key(ask.request(tokens=()), model) == same != key(ask.request(edits=edits), model)
    free, cut = ask(), ask(edits=edits)
    assert not np.allclose(free.mean[1], cut.mean[1])


def test_afresh_is_bit_equal(ask: Asker) -> None:
    prints = [ask.engine.answer(ask.request(), fresh=True).fingerprint for _ in range(2)]
    ask()
    assert len({*prints, ask.engine.answer(ask.request(), fresh=True).fingerprint}) == 1


def test_a_changed_file_is_another_question(ask: Asker) -> None:
    first = ask()
    ask.file.write_text("abcabcabc\ta\tb\nqq\tq\n")
    assert ask().counted == 2 != first.counted


class Stops(NullContext):
    """Cancels when `after` prompts are in; keeps what it was shown."""

    def __init__(self, after: int) -> None:
        self.after, self.seen = after, []

    def tick(self, done: int, total: int, text: str = "") -> None:
        if len(self.seen) >= self.after:
            raise Cancelled

    def partial(self, result: Result) -> None:
        self.seen.append(result)


def test_partial_results_and_going_on(ask: Asker) -> None:
    whole = ask.engine.answer(ask.request(), fresh=True).result
    ask.engine = Engine(ask.engine.store)
    stops = Stops(2)
    with pytest.raises(Cancelled):
        ask.engine.answer(ask.request(), stops)
    last: Any = stops.seen[-1]
    assert (last.counted, last.done) == (2, 0.5)
    assert np.isnan(last.values[2:]).all() and not np.isnan(last.values[:2]).any()
    assert (last.answer >= 0).tolist() == [True, True, False, False] == (~np.isnan(last.answer_probability)).tolist()
    np.testing.assert_array_equal(last.mean, last.values[:2].mean(0))
    asked: list[Any] = []
    real = _registry._REGISTRY["probe"]
    counted = lambda inputs, p, ctx: asked.append(p) or real.run(inputs, p, ctx)
    _registry._REGISTRY["probe"] = replace(real, run=counted)
    going_on = NullContext()
    going_on.previous = last
    ask.engine = Engine(ask.engine.store)  # which has no answer of the inner analysis either
    after = ask.engine.answer(ask.request(), going_on).result
    assert len(asked) == 2
    for name, array in whole.arrays().items():
        np.testing.assert_allclose(after.arrays()[name], array, rtol=1e-9, err_msg=name)
    assert after.conventions == whole.conventions and after.remainder == whole.remainder


def test_what_was_not_computed_is_left_out_of_mean_and_spread() -> None:
    values = np.array([[1.0, np.nan, np.nan], [2.0, 5.0, np.nan], [6.0, np.nan, np.nan]])
    mean, sd, n = statistics(values)
    np.testing.assert_array_equal(n, [3, 1, 0])
    np.testing.assert_allclose(mean, [3.0, 5.0, np.nan])
    np.testing.assert_allclose(sd, [np.sqrt(7), np.nan, np.nan])


READS_OTHER = ("patching", "path_patching")
AVERAGED = {name: found for name, found in base.analyses().items() if can_be_averaged(found) and name not in READS_OTHER}
ON_TEXT = {"head_scores": {"on": "text"}, "in_context": {"on": "prompt"}}


@pytest.mark.parametrize("config", ["attention-only", "gpt2"])
@pytest.mark.parametrize("name", AVERAGED)
def test_every_analysis_that_offers_a_mean_gives_one(tmp_path: Path, name: str, config: str) -> None:
    """On prompts of different lengths: what is averaged has one shape, and is the mean of the same analysis asked alone."""
    ask, inner = Asker(tmp_path, config), ON_TEXT.get(name, {})
    params = from_json(AVERAGED[name].params, inner)
    if reason := AVERAGED[name].refuse(CONFIGS[config], params) or unread(AVERAGED[name], params):
        with pytest.raises(Refused, match=re.escape(reason[1:])):
            ask(name, inner=inner)
        return
    every = ask(name, inner=inner).names
    for field in every:
        result = ask(name, inner=inner, field=field)
        for row, prompt in zip(result.values, ask.prompts, strict=True):
            named = {f.name for f in fields(params)}
            aimed = replace(params, target=prompt.target) if "target" in named and prompt.target.tokens else params
            alone = ask.engine.answer(Request.named(name, aimed, Subject(ask.ref, prompt.tokens, (), DOUBLE))).result.across()
            assert tuple(alone) == every
            np.testing.assert_allclose(row, alone[field], rtol=1e-9, atol=1e-12)
        assert result.mean.shape == result.values.shape[1:]


def test_what_is_patched_comes_from_the_lines_other_prompt(tmp_path: Path) -> None:
    ask = Asker(tmp_path)
    ask.file.write_text("abcab\tc\td\tabdab\nbcdbc\td\tc\tbcabcc\n", encoding="utf-8")
    inner = {"what": "head", "grid": "all"}
    result = ask("patching", inner=inner)
    assert result.field == "effect" and result.axes == ("layer", "head")
    prompts = read_prompts(ask.file.read_text(encoding="utf-8"), "set", byte_tokenizer(), ask.weights.config)
    for row, prompt in zip(result.values, prompts, strict=True):
        params = PatchingParams(prompt.other, "head", "all", prompt.target)
        alone: Any = ask.engine.answer(Request.named("patching", params, Subject(ask.ref, prompt.tokens, (), DOUBLE))).result
        np.testing.assert_allclose(row.ravel(), alone.effect[:, 0], rtol=1e-9)
        assert np.abs(row).max() > 1e-3
    with pytest.raises(BadInput, match="nothing to average"):
        ask("patching", inner={"grid": "position"})
    ask.file.write_text("abcab\tc\td\n", encoding="utf-8")
    with pytest.raises(BadInput, match="no other prompt"):
        ask("patching", inner=inner)


def one_by_one(ask: Asker, name: str, params: Any, edits: Any = ()) -> list[Any]:
    """The analysis on each prompt alone, with that prompt's target, and other prompt where it takes one."""
    prompts = read_prompts(ask.file.read_text(encoding="utf-8"), "set", byte_tokenizer(), ask.weights.config)
    asked = []
    for prompt in prompts:
        changes = {"target": prompt.target} if hasattr(params, "target") and prompt.target.tokens else {}
        changes |= {"source": prompt.other} if hasattr(params, "source") else {}
        subject = Subject(ask.ref, prompt.tokens, edits, DOUBLE)
        asked.append(ask.engine.answer(Request.named(name, replace(params, **changes), subject)).result)
    return asked


def same_statistics(found: OverPromptsResult, rows: Any, tolerance: float = 1e-9) -> None:
    """Mean and spread of `rows` [prompt, …] in plain float64."""
    rows = np.array(rows, dtype=np.float64)
    np.testing.assert_allclose(found.mean, sum(rows) / len(rows), atol=tolerance)
    squares = sum((row - sum(rows) / len(rows)) ** 2 for row in rows)
    np.testing.assert_allclose(found.sd, np.sqrt(squares / (len(rows) - 1)), atol=tolerance)


CUT = (Intervention("scale", Site("result", 0, (1,)), (0.5,)),)


@pytest.mark.parametrize("edits", [(), CUT])
@pytest.mark.parametrize("direction", ["sources", "destinations"])
def test_what_heads_sent_is_summed_and_sorted_by_distance(tmp_path: Path, direction: str, edits: Any) -> None:
    ask = Asker(tmp_path, "gpt2")
    ask.file.write_text("abc\ta\tb\n" + "the cat and the dog, the\tc\td\n" + "xy" * 14 + "\tx\ty\n")
    params = TokenAttributionParams(direction=direction)  # type: ignore[arg-type]
    singles = one_by_one(ask, "token_attribution", params, edits)
    inner = {"direction": direction}
    heads = [np.nansum(one.values, axis=1).reshape(2, 4) for one in singles]
    result = ask("token_attribution", edits, inner=inner, field="heads")
    same_statistics(result, heads)
    assert result.axes == ("layer", "head")
    near = ask("token_attribution", edits, inner=inner, field="by_distance")
    assert near.axes == ("distance",) and near.mean.shape == (NEAR + 1,)
    if direction == "destinations":  # of the last token there is no other
        assert (near.n == [3, *[0] * NEAR]).all()
        return
    for distance in range(NEAR + 1):
        sent = []
        for one in singles:
            last = len(one.summed) - 1
            far = [s for s in range(last + 1) if (last - s == distance if distance < NEAR else last - s >= NEAR)]
            sent += [sum(float(one.values[h, s]) for h in range(8) for s in far)] if far else []
        assert near.n[distance] == len(sent)
        assert near.mean[distance] == pytest.approx(np.mean(sent), abs=1e-9)
    np.testing.assert_allclose(np.nansum(near.values, axis=1), [one.summed.sum() for one in singles], atol=1e-9)


def test_of_chosen_heads_there_is_one_sum_each(tmp_path: Path) -> None:
    ask = Asker(tmp_path, "gpt2")
    some = ask("token_attribution", inner={"heads": ["L1H2", "L0H1"]})
    assert some.mean.shape == (2,)
    every = ask("token_attribution")
    np.testing.assert_allclose(some.mean, every.mean[[1, 0], [2, 1]], atol=1e-12)


@pytest.mark.parametrize("config", ["gpt2", "llama"])
def test_neurons_are_averaged_before_the_strongest_are_chosen(tmp_path: Path, config: str) -> None:
    ask = Asker(tmp_path, config)
    c = CONFIGS[config]
    singles = one_by_one(ask, "neurons", NeuronsParams(k=c.n_layers * c.d_mlp))
    rows = np.zeros((len(singles), c.n_layers, c.d_mlp))
    for row, one in zip(rows, singles, strict=True):  # the listed rows in full, in place of the array that is averaged
        row[one.layer, one.neuron] = one.effect
        np.testing.assert_allclose(row.sum(1), one.summed, atol=1e-9)
    result = ask("neurons", inner={"k": 2})
    assert (result.field, result.axes) == ("effect", ("layer", "neuron"))
    same_statistics(result, rows, 1e-6)
    same_statistics(ask("neurons", field="mlp"), [one.mlp for one in singles])


def test_paths_are_averaged_by_receiver(tmp_path: Path) -> None:
    ask = Asker(tmp_path)
    with pytest.raises(BadInput, match="no other prompt"):
        ask("path_patching")
    ask.file.write_text("abcab\tc\td\tabdab\nbcdbc\td\tc\tbcabcc\nccbcc\td\tb\tccacc\n", encoding="utf-8")
    params = PathPatchingParams(sender=Head(0, 1))
    singles = one_by_one(ask, "path_patching", params)
    inner = {"sender": "L0H1"}
    result = ask("path_patching", inner=inner)
    assert (result.field, result.axes) == ("effect", ("through", "layer", "head"))
    assert np.isnan(result.mean[:, 0]).all() and (result.n[:, 1] == 3).all()
    same_statistics(result, [one.values - one.clean for one in singles])
    assert np.nanmax(np.abs(result.mean)) > 1e-4
    same_statistics(ask("path_patching", inner=inner, field="total"), [one.total - one.clean for one in singles])


@pytest.mark.parametrize("field", ["reduction", "layers", "heads"])
def test_loss_reductions_are_weighted_by_tokens(tmp_path: Path, field: str) -> None:
    ask = Asker(tmp_path)
    inner = {"heads": field == "heads"}
    singles = one_by_one(ask, "term_importance", TermImportanceParams(heads=field == "heads"))
    result = ask("term_importance", inner=inner, field=field)
    tokens = np.array([len(p.tokens) - 1 for p in ask.prompts])
    np.testing.assert_array_equal(result.weights, tokens)
    assert f"each prompt weighted by its tokens, {tokens.sum()} in all" in result.conventions
    rows = [one.across()[field] for one in singles]
    mean = sum(w * row for w, row in zip(tokens, rows, strict=True)) / tokens.sum()
    np.testing.assert_allclose(result.mean, mean, atol=1e-9)
    squares = sum(w * (row - mean) ** 2 for w, row in zip(tokens, rows, strict=True)) / tokens.sum()
    np.testing.assert_allclose(result.sd, np.sqrt(squares * 4 / 3), atol=1e-9)
    if field == "reduction":  # every token alike: the mean over all tokens of all prompts
        runs = [forward(ask.weights, p.tokens) for p in ask.prompts]
        whole = np.concatenate([run.losses().numpy() for run in runs]).mean()
        assert np.log(ask.weights.config.d_vocab_out) - result.mean.sum() == pytest.approx(whole, abs=1e-9)


def test_weights_go_on_with_what_a_cancelled_answer_holds(ask: Asker) -> None:
    stops = Stops(2)
    request = ask.request("term_importance")
    with pytest.raises(Cancelled):
        ask.engine.answer(request, stops)
    last: Any = stops.seen[-1]
    assert np.isfinite(last.weights[:2]).all() and np.isnan(last.weights[2:]).all()
    going_on = NullContext()
    going_on.previous = last
    after: Any = Engine(ask.engine.store).answer(request, going_on).result
    whole: Any = Engine(ask.engine.store).answer(request, fresh=True).result
    for name, array in whole.arrays().items():
        np.testing.assert_allclose(after.arrays()[name], array, rtol=1e-9, err_msg=name)


def test_weighted_statistics_are_those_of_repeated_entries() -> None:
    values, weights = np.array([[1.0], [4.0], [np.nan]]), np.array([3.0, 1.0, 5.0])
    mean, sd, n = statistics(values, weights)
    repeated = np.array([1.0, 1.0, 1.0, 4.0])
    assert (mean[0], n[0]) == (repeated.mean(), 2)
    assert sd[0] == pytest.approx(repeated.std() * np.sqrt(2))


def unread(found: Any, params: Any) -> str | None:
    return None if getattr(params, "needs", found.needs) == "tokens" else "reads no prompt"


def test_a_shipped_set_on_the_shipped_model() -> None:
    """Names repeated: heads, direct, add up to the logit difference but for the rest that the analysis names."""
    engine, file = Engine(ModelStore()), TextRef(str(resource("prompts", "names_repeated.tsv")))
    ask: Any = lambda field: (
        engine.answer(
            Request.named(
                "over_prompts",
                OverPromptsParams(file, "direct_attribution", field=field),
                Subject(ModelRef("builtin:attn-only-2l")),
            )
        ).result
    )
    heads, others = ask("heads"), ask("others")
    config = engine.store.open(ModelRef("builtin:attn-only-2l")).opened.weights.config
    assert heads.counted == 24 and heads.values.shape == (24, config.n_layers, config.n_heads)
    model = engine.store.open(ModelRef("builtin:attn-only-2l")).weights(Conventions())
    prompts = read_prompts(file_text(file), "names", model.tokenizer, model.config)
    for prompt, parts in zip(prompts, heads.values.sum((1, 2)) + others.values.sum(1), strict=True):
        logits = forward(model, prompt.tokens).logits()[-1]
        a, b = prompt.target.tokens
        assert parts == pytest.approx(float(logits[a] - logits[b]), abs=1e-3)


def file_text(ref: TextRef) -> str:
    return Path(ref.path).read_text(encoding="utf-8")


# -- what is refused -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (Intervention("zero", Site("z", 0, (0,), (2,))), "names positions"),
        (Intervention("patch", Site("z", 0), source=(0, 1, 2)), "another prompt"),
        (Intervention("zero", Site("q", 1), path_from=Site("result", 0, (), (1,))), "names positions"),
    ],
)
def test_interventions_on_places_of_one_prompt_are_refused(ask: Asker, edit: Intervention, why: str) -> None:
    with pytest.raises(Refused, match=why):
        ask(edits=(edit,))


@pytest.mark.parametrize(
    ("params", "kind", "why"),
    [
        ({"name": ""}, Refused, "probe"),
        ({"name": "attention_overview"}, Refused, "These have: .*probe"),
        ({"name": "nothing_like_it"}, UsageError, "no such analysis"),
        ({"name": "composition"}, Refused, "average"),
        ({"name": "head_scores"}, Refused, "reads no prompt"),
        ({"inner": {"shape": "refused"}}, Refused, "This shape is refused"),
        ({"inner": {"shape": "pos"}}, BadInput, "another shape in prompt 2"),
        ({"inner": {"shape": "nothing"}}, BadInput, "nothing to average"),
        ({"inner": {"wrong": 1}}, UsageError, "not known"),
        ({"inner": {"other": {"path": "x.txt"}}}, Refused, "sha256"),
        ({"field": "wrong"}, UsageError, "attention value"),
    ],
)
def test_what_cannot_be_averaged_is_said(ask: Asker, params: dict[str, Any], kind: type[CircuitLabError], why: str) -> None:
    with pytest.raises(kind, match=why):
        ask(**params)


def test_a_set_must_be_named_and_params_must_be_json(ask: Asker) -> None:
    for p, kind in ((OverPromptsParams(), Refused), (replace(ask.request().params, params="{"), UsageError)):
        with pytest.raises(kind):
            ask.engine.answer(Request.named("over_prompts", p, Subject(ask.ref)))


def test_the_memory_of_the_inner_analysis_is_checked_at_every_prompt(ask: Asker) -> None:
    long = lambda c, n, p, dtype: 2**40 if n > 8 else 0
    _registry._REGISTRY["probe"] = replace(_registry._REGISTRY["probe"], memory=long)
    with pytest.raises(CircuitLabError, match="does not fit in the memory budget"):
        ask()


def test_a_model_without_a_tokenizer(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", ModelConfig(1, 2, 8, 4, 9, 6), tokenizer=False)
    (tmp_path / "set.tsv").write_text("a\tb\n")
    p = OverPromptsParams(TextRef(str(tmp_path / "set.tsv")), "probe")
    with pytest.raises(BadInput, match="no tokenizer"):
        Engine(ModelStore()).answer(Request.named("over_prompts", p, Subject(ModelRef(f"file:{path}"))))
