"""Engine, cache, codec and store: what is kept, what is refused, what can be cancelled, what two threads may do."""

from __future__ import annotations

import shutil
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuitlab.analysis import base
from circuitlab.analysis.attention.head_scores import HeadScoresParams
from circuitlab.analysis.attention.pattern import AttentionParams
from circuitlab.analysis.base import NullContext, Result, TextRef, analyses
from circuitlab.analysis.behaviour.predictions import PredictionsParams
from circuitlab.analysis.behaviour.token_loss import TokenLossParams
from circuitlab.disk.paths import model_dir
from circuitlab.engine.cache import Cache
from circuitlab.engine.codec import from_json, parse_params, to_json
from circuitlab.engine.engine import Engine, memory_words
from circuitlab.engine.export_data import WEIGHTS_UNKNOWN, data_bytes, export_of
from circuitlab.engine.file_changes import FileChange
from circuitlab.engine.request import Request, needs
from circuitlab.engine.store import ModelStore, reference
from circuitlab.errors import BadInput, BadModel, Cancelled, OverBudget, Refused, UsageError
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject
from tests.models import CONFIGS, FULL, byte_tokenizer, directory

TOKENS = (0, 5, 9, 5, 7)


@pytest.fixture
def ref(tmp_path: Path) -> ModelRef:
    return ModelRef(f"file:{directory(tmp_path / 'm')}")


def _ask(ref: ModelRef, tokens: tuple[int, ...] = TOKENS, **changes: Any) -> Request:
    return Request.named("token_loss", TokenLossParams(), Subject(ref, tokens, **changes))


def test_an_answer_is_kept_and_found_again(ref: ModelRef) -> None:
    engine = Engine(ModelStore())
    assert engine.cached(_ask(ref)) is None
    first = engine.answer(_ask(ref))
    result = engine.cached(_ask(ref))
    assert result is not None
    assert result.result is first.result
    assert first.complete
    assert dict(first.provenance.versions)["torch"]


def test_what_differs_is_kept_apart(ref: ModelRef) -> None:
    engine = Engine(ModelStore())
    engine.answer(_ask(ref))
    assert engine.cached(_ask(ref, (0, 5, 9))) is None
    assert engine.cached(_ask(ref, conventions=Conventions(centre=False))) is None
    assert engine.cached(Request.named("predictions", PredictionsParams(), Subject(ref, TOKENS))) is None


def test_what_needs_only_weights_is_not_asked_again_for_another_text(ref: ModelRef) -> None:
    engine = Engine(ModelStore())
    params = base.find_analysis("model_facts").params()
    engine.answer(Request.named("model_facts", params, Subject(ref, TOKENS)))
    assert engine.cached(Request.named("model_facts", params, Subject(ref, (1,)))) is not None


def test_what_reads_prompts_of_its_own_is_kept_for_the_interventions_alone(ref: ModelRef) -> None:
    engine, params = Engine(ModelStore()), base.find_analysis("over_prompts").params()
    model, cut = engine.store.open(ref), (Intervention("zero", Site("z", 0, (1,))),)
    key = lambda *subject: engine.key(Request.named("over_prompts", params, Subject(ref, *subject)), model)
    assert key(TOKENS, cut) == key((1,), cut) != key(TOKENS)


def test_typing_on_reuses_the_prefix_and_says_so(ref: ModelRef) -> None:
    engine = Engine(ModelStore())
    engine.answer(_ask(ref))
    longer = engine.answer(_ask(ref, (*TOKENS, 8, 9)))
    assert longer.provenance.reused == 5
    fresh = Engine(ModelStore()).answer(_ask(ref, (*TOKENS, 8, 9)), fresh=True)
    assert fresh.provenance.reused == 0
    np.testing.assert_allclose(longer.result.arrays()["loss"], fresh.result.arrays()["loss"], rtol=1e-5)


def test_a_file_changed_on_disk_is_noticed(ref: ModelRef) -> None:
    store = ModelStore()
    opened = store.open(ref)
    assert not opened.changed_on_disk
    sha = store.sha256(ref)
    directory(Path(ref.source[5:]), n_ctx=40)
    assert opened.changed_on_disk
    assert store.reload(ref).opened.weights.config.n_ctx == 40
    assert store.sha256(ref) != sha


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"]
)
def test_each_file_that_a_model_is_read_from_is_noticed_and_named(name: str, tmp_path: Path) -> None:
    folder = directory(tmp_path / "gpt2", CONFIGS["gpt2"])
    byte_tokenizer().save(folder / "tokenizer.json")
    template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    for beside, text in (("tokenizer_config.json", "{}"), ("special_tokens_map.json", "{}"), ("chat_template.jinja", template)):
        (folder / beside).write_text(text)
    (folder / "notes.json").write_text("{}")
    store = ModelStore()
    model = store.open(reference(str(folder)))
    assert model.file_change is None
    text = (folder / name).read_text("utf-8")
    (folder / "notes.json").write_text("[]")
    (folder / name).unlink()
    assert model.file_change == FileChange(gone=(name,))
    (folder / name).write_text(text, "utf-8")
    assert model.file_change is None, "it is what was read"
    (folder / name).write_text(f"{text} ", "utf-8")
    assert model.file_change == FileChange(changed=(name,)) and model.outdated and not model.changed_on_disk
    again = store.reload(model.ref)
    assert again.file_change is None and again.key != model.key


def test_which_files_have_changed_is_said_in_words() -> None:
    assert FileChange(changed=("config.json",)).words("gpt2") == "config.json of gpt2 has changed since it was opened"
    several = FileChange(("a",), ("b", "c"), ("d", "e", "f", "g"))
    gone, unreachable = "a of gpt2 is gone", "b and c cannot be reached"
    assert several.words("gpt2") == f"{gone}, {unreachable}, d, e and 2 other files have changed since it was opened"


def test_opened_now_it_is_what_the_files_hold(ref: ModelRef) -> None:
    """Weights, what lies beside them, and checkpoints that have come; what has not changed is not read again."""
    store, folder, changed = ModelStore(), Path(ref.source[5:]), list[ModelRef]()

    class Hears:
        def change(self, one: ModelRef) -> None:
            changed.append(one)

    hears = Hears()
    store.when_changed(hears.change)
    first = store.open(ref)
    assert store.open_now(ref) is first and not changed
    directory(folder, n_ctx=40)
    assert store.open(ref) is first
    second = store.open_now(ref)
    assert second.opened.weights.config.n_ctx == 40 and changed == [ref]
    (folder / "checkpoints").mkdir()
    for step in (100, 200):
        shutil.copy(folder / "model.safetensors", folder / "checkpoints" / f"step-{step:06d}.safetensors")
    assert store.open_now(ref).opened.steps == (100, 200) and changed == [ref] * 2
    early, late = replace(ref, checkpoint=0), replace(ref, checkpoint=1)
    kept = store.open(late)
    store.open(early)
    shutil.copy(folder / "model.safetensors", folder / "checkpoints" / "step-000100.safetensors")
    store.reload(ref)
    assert store.peek(early) is None and store.peek(late) is kept and changed == [ref] * 2
    store.open(early)
    assert changed == [ref, ref, early], "read anew after it was closed, of another file"


def test_no_number_gets_the_hash_of_weights_that_came_later(ref: ModelRef) -> None:
    engine, folder = Engine(ModelStore()), Path(ref.source[5:])
    answer = engine.answer(_ask(ref))
    old = answer.provenance.weights
    unhashed = replace(answer, provenance=replace(answer.provenance, weights=""))
    assert engine.identified(unhashed).provenance.weights == old
    directory(folder, n_ctx=40)
    assert engine.store.sha256(engine.store.open_now(ref).ref) != old
    assert engine.identified(unhashed).provenance.weights == old, "it was hashed while it was open"
    assert engine.identified(engine.answer(_ask(ref))).provenance.weights == engine.store.sha256(ref)
    engine.store._hashes.clear()  # a large file of which nobody had read the hash before it was replaced
    late = engine.identified(unhashed)
    assert late.provenance.weights == "" and late.identity == answer.identity
    assert WEIGHTS_UNKNOWN in data_bytes(export_of(engine, unhashed), "json").decode()
    assert WEIGHTS_UNKNOWN not in data_bytes(export_of(engine, engine.answer(_ask(ref))), "json").decode()


def test_a_failed_reload_keeps_the_model(ref: ModelRef) -> None:
    store = ModelStore()
    opened = store.open(ref)
    (Path(ref.source[5:]) / "config.json").unlink()
    with pytest.raises(BadModel):
        store.reload(ref)
    assert store.peek(ref) is opened


def test_the_memory_budget_is_stated_and_kept(ref: ModelRef) -> None:
    engine = Engine(ModelStore(), memory=10_000)
    with pytest.raises(OverBudget, match="memory") as caught:
        engine.answer(Request.named("attention", AttentionParams(), Subject(ref, tuple([1] * 48))))
    assert caught.value.exit_code == 4


def test_an_empty_prompt_is_refused(ref: ModelRef) -> None:
    with pytest.raises(BadInput, match="empty"):
        Engine(ModelStore()).answer(_ask(ref, ()))


class _Stop(NullContext):
    """Cancels at the n-th tick."""

    def __init__(self, after: int) -> None:
        self.after, self.partials = after, 0

    def tick(self, done: int, total: int, text: str = "") -> None:
        self.after -= 1
        if self.after < 0:
            raise Cancelled

    def partial(self, result: Result) -> None:
        self.partials += 1


@pytest.mark.parametrize("after", range(4))
def test_cancelling_leaves_the_engine_as_it_was(ref: ModelRef, after: int) -> None:
    engine = Engine(ModelStore())
    request = Request.named("head_scores", HeadScoresParams(block=4), Subject(ref, TOKENS))
    with pytest.raises(Cancelled):
        engine.answer(request, _Stop(after))
    assert engine.cached(request) is None
    assert engine.answer(request).complete


def test_a_cancelled_partial_is_kept_for_the_next_attempt(tmp_path: Path) -> None:
    ref = ModelRef(f"file:{directory(tmp_path / 'm', n_layers=9)}")
    engine = Engine(ModelStore())
    request = Request.named("attention_overview", base.find_analysis("attention_overview").params(), Subject(ref, TOKENS))
    stop = _Stop(9 + 6)
    with pytest.raises(Cancelled):
        engine.answer(request, stop)
    assert stop.partials == 1
    assert engine.cached(request) is None
    whole = engine.answer(request).result
    assert whole.done == 1.0
    assert not np.isnan(whole.arrays()["largest"]).any()


def test_two_threads_ask_at_once_and_it_is_computed_once(ref: ModelRef) -> None:
    engine, found = Engine(ModelStore()), []
    threads = [threading.Thread(target=lambda: found.append(engine.answer(_ask(ref)).result)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(r) for r in found}) == 1


def test_text_files_are_opened_by_the_engine(ref: ModelRef, tmp_path: Path) -> None:
    engine = Engine(ModelStore())
    model = engine.store.open(ref)
    (tmp_path / "a.txt").write_text("ab", encoding="utf-8")
    assert len(engine.read_text(model, TextRef(str(tmp_path / "a.txt")))) == 2
    for wrong in (TextRef(str(tmp_path / "b.txt")), TextRef(str(tmp_path / "a.txt"), "0" * 64)):
        with pytest.raises(BadInput):
            engine.read_text(model, wrong)
    (tmp_path / "c.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="UTF-8"):
        engine.read_text(model, TextRef(str(tmp_path / "c.txt")))


def test_references_are_what_a_person_means(tmp_path: Path) -> None:
    assert reference("attn-only-2l") == ModelRef("builtin:attn-only-2l")
    assert reference("builtin:x") == ModelRef("builtin:x")
    assert reference(str(tmp_path)).source == f"file:{tmp_path.resolve()}"
    assert reference(str(model_dir("attn-only-2l"))) == ModelRef("builtin:attn-only-2l"), "a model has one name"
    assert reference(str(model_dir("attn-only-2l") / "config.json")).source.startswith("file:")


@pytest.mark.parametrize("name", ["~nobody-of-this-name/x", "\ud800", "a" * 5000, "file:~nobody-of-this-name/x"])
def test_what_no_path_can_be_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="not a path"):
        reference(name)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 60)), max_size=60), st.integers(1, 100))
def test_the_cache_keeps_within_its_bound(puts: list[tuple[int, int]], limit: int) -> None:
    cache = Cache(limit)
    for key, size in puts:
        cache.put(key, size, size)
        assert cache.nbytes <= limit
        assert cache.nbytes == sum(v for k in range(10) if (v := cache.get(k)) is not None)
        assert (cache.get(key) == size) == (size <= limit)


def test_the_cache_drops_what_was_used_longest_ago() -> None:
    cache = Cache(3)
    for key in "abc":
        cache.put(key, key, 1)
    cache.get("a")
    cache.put("d", "d", 1)
    assert cache.get("b") is None
    assert cache.get("a") == "a"


@dataclass(frozen=True)
class Everything:
    """Every field type of the codec."""

    a: bool = False
    b: int = 1
    c: float = 0.5
    d: str = ""
    e: Literal["x", "y"] = "x"
    f: Head = Head(0, 0)
    g: tuple[Head, ...] = ()
    h: int | None = None
    i: tuple[float, ...] = ()
    j: TextRef | None = None


def test_parameters_are_read_from_text() -> None:
    words = {
        "a": "yes",
        "b": "-1",
        "c": "2",
        "d": "x=y",
        "e": "y",
        "f": "l2h3",
        "g": "L1H4,L0H2",
        "h": "none",
        "i": "1,2.5",
    }
    made = parse_params(Everything, words)
    assert made == Everything(True, -1, 2.0, "x=y", "y", Head(2, 3), (Head(1, 4), Head(0, 2)), None, (1.0, 2.5))
    assert parse_params(Everything, {"g": "all"}).g == ()


@pytest.mark.parametrize(
    "words", [{"z": "1"}, {"a": "maybe"}, {"b": "1.5"}, {"c": "nan"}, {"e": "z"}, {"f": "H1"}, {"g": "L1H4,"}]
)
def test_what_cannot_be_read_is_a_usage_error(words: dict[str, str]) -> None:
    with pytest.raises(UsageError) as caught:
        parse_params(Everything, words)
    assert caught.value.exit_code == 2
    assert caught.value.expected


HEADS = st.builds(Head, st.integers(0, 99), st.integers(0, 99))
EVERYTHING = st.builds(
    Everything,
    a=st.booleans(),
    b=st.integers(-(2**40), 2**40),
    c=st.floats(allow_nan=False, allow_infinity=False),
    d=st.text(),
    e=st.sampled_from(["x", "y"]),
    f=HEADS,
    g=st.lists(HEADS, max_size=4).map(tuple),
    h=st.none() | st.integers(0, 9),
    i=st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=3).map(tuple),
    j=st.none() | st.builds(TextRef, st.text(), st.text()),
)


@given(EVERYTHING)
def test_json_gives_back_what_went_in(value: Everything) -> None:
    import json

    assert from_json(Everything, json.loads(json.dumps(to_json(value)))) == value


@pytest.mark.parametrize("data", [[], {"a": 1}, {"b": True}, {"z": 1}, {"f": 3}, {"i": ["x"]}, {"e": "z"}])
def test_json_that_does_not_fit_is_refused(data: Any) -> None:
    with pytest.raises(UsageError):
        from_json(Everything, data)


def test_scores_on_random_tokens_outlive_the_prompt(ref: ModelRef) -> None:
    engine, params = Engine(ModelStore()), HeadScoresParams(block=4)
    engine.answer(Request.named("head_scores", params, Subject(ref)))
    assert engine.cached(Request.named("head_scores", params, Subject(ref, TOKENS))) is not None
    text = HeadScoresParams(on="text")
    engine.answer(Request.named("head_scores", text, Subject(ref, TOKENS)))
    assert engine.cached(Request.named("head_scores", text, Subject(ref, (1, 2)))) is None


def test_a_streamed_forward_pass_that_does_not_fit_is_refused_with_the_number(tmp_path: Path) -> None:
    from circuitlab.engine.estimates import estimate_run, estimate_streaming

    config = replace(CONFIGS["llama"], d_vocab=20000, d_vocab_out=20000)
    ref = ModelRef(f"file:{directory(tmp_path / 'm', config)}")
    wide = estimate_streaming(config)
    assert wide == 4 * 20000 * config.d_model, "its unembedding is larger than a block"
    needed = wide + estimate_run(config, len(TOKENS))
    small = Engine(ModelStore(), needed)
    with pytest.raises(OverBudget, match="memory"):
        small.answer(_ask(ref))
    assert Engine(ModelStore(), needed + (1 << 22)).answer(_ask(ref)).complete


@pytest.mark.parametrize(
    ("size", "said"),
    [
        (11, "11 bytes"),
        (5_000, "4.88 KiB"),
        (3_000_000, "2.86 MiB"),
        (2**30 - 1, "1,024 MiB"),
        (2**32, "4 GiB"),
        (2**40, "1,024 GiB"),
    ],
)
def test_memory_is_said_in_a_unit_of_which_there_is_one(size: int, said: str) -> None:
    assert memory_words(size) == said


@pytest.mark.parametrize("name", sorted(analyses()))
def test_a_text_beyond_the_context_is_refused_for_that_and_not_for_its_memory(tmp_path: Path, name: str) -> None:
    """Whatever the budget: no memory makes the model read on. What compares models says so in its answer."""
    config = replace(FULL, d_vocab=300)
    engine = Engine(ModelStore(), 1)
    subject = Subject(ModelRef(f"file:{directory(tmp_path / 'm', config)}"), (5,) * 100_000)
    found = analyses()[name]
    params = found.params()
    reads = needs(found, params) == "tokens" and found.refuse(config, params) is None
    with pytest.raises(BadInput if reads and not found.any_prompt else (OverBudget, Refused)) as caught:
        engine.check(Request.named(name, params, subject))
    if type(caught.value) is BadInput:
        assert f"{config.n_ctx}" in caught.value.expected and caught.value.got == "100000"
    if found.any_prompt:
        assert Engine(ModelStore()).answer(Request.named(name, params, subject)).result.why  # type: ignore[attr-defined]
