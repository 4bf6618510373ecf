"""Held answers and ghosts: what a session carries is given where computing would give it; the rest says why it is not there."""

from __future__ import annotations

import json
import random
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circuitlab.analysis.attention.pattern import AttentionParams
from circuitlab.analysis.base import NullContext, TextRef, find_analysis
from circuitlab.analysis.behaviour.in_context import InContextParams
from circuitlab.analysis.behaviour.model_comparison import SideBySideParams
from circuitlab.analysis.behaviour.token_loss import TokenLossParams
from circuitlab.analysis.checks.model_facts import ModelFactsParams
from circuitlab.engine.engine import Engine
from circuitlab.engine.export_data import described, export_of
from circuitlab.engine.ghost import ABOUT, CONFIG, MISSING, TOKENIZER, ghost, ghost_members, placeless
from circuitlab.engine.request import Answer, Request
from circuitlab.engine.store import ModelStore, reference
from circuitlab.engine.stored_answer import read_stored, stored_bytes
from circuitlab.errors import BadModel
from circuitlab.figures.contracts.facts import facts_of
from circuitlab.model.loading.assumptions import Assumption
from circuitlab.model.saving import random_tensors, save_directory
from circuitlab.model.subject import Conventions, ModelRef, Subject
from circuitlab.model.weights import parameters_of
from tests.fuzz.byte_mutators import BYTES
from tests.models import CONFIGS, FULL, byte_tokenizer, directory
from tests.series_files import keep_scaled

TOKENS = (0, 5, 9, 5, 7)
SECRET = "zoe-quagmire"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return directory(tmp_path / SECRET / "m", FULL)


@pytest.fixture
def ref(folder: Path) -> ModelRef:
    return ModelRef(f"file:{folder}")


def asked(ref: ModelRef, name: str = "token_loss", params: Any = None, tokens: tuple[int, ...] = TOKENS) -> Request:
    return Request.named(name, params or TokenLossParams(), Subject(ref, tokens))


def stored(answer: Answer, ref: ModelRef | None = None) -> Answer:
    """The answer as another machine reads it."""
    return read_stored(stored_bytes(answer), ref or answer.request.subject.model)


def engine_with_ghost(folder: Path, ref: ModelRef) -> Engine:
    """An engine on a machine where the model of a folder is not."""
    live, other = ModelStore(), Engine(ModelStore())
    model = live.open(ModelRef(f"file:{folder}"))
    other.store.place(ghost(ref, ghost_members(model), live.sha256(model.ref)))
    return other


GONE = ModelRef("file:/not/there/m")


# -- held answers -------------------------------------------------------------------------------------------------------------


def test_a_held_answer_comes_before_the_cache_and_is_never_dropped(ref: ModelRef) -> None:
    engine = Engine(ModelStore())
    live = engine.answer(asked(ref))
    marked = stored(live)
    assert engine.cached(asked(ref)) is not None and not live.provenance.stored
    engine.hold([marked])
    for _ in range(2):
        held = engine.cached(asked(ref))
        assert held is not None and held.result is marked.result and held.provenance == marked.provenance
        assert held.provenance.stored and held.request == live.request
        assert engine.answer(asked(ref)).result is marked.result
        engine.budget(0)
        engine.cache.clear()
    engine.release([marked])
    assert engine.cached(asked(ref)) is None and not engine.held(asked(ref))


def test_fresh_is_computed(ref: ModelRef) -> None:
    engine = Engine(ModelStore())
    wrong = stored(engine.answer(asked(ref)))
    wrong = replace(wrong, result=replace(wrong.result, loss=np.zeros(len(TOKENS), np.float32)))
    engine.hold([wrong])
    assert engine.answer(asked(ref)).result is wrong.result
    fresh = engine.answer(asked(ref), fresh=True)
    assert not fresh.provenance.stored and fresh.result.arrays()["loss"].any()


def test_what_is_computed_is_computed_in_all_its_parts(ref: ModelRef) -> None:
    """A running analysis is not given a held answer: its own would be half stored and not say so."""
    engine = Engine(ModelStore())
    wrong = stored(engine.answer(asked(ref)))
    engine.cache.clear()
    engine.hold([replace(wrong, result=replace(wrong.result, loss=np.zeros(len(TOKENS), np.float32)))])
    compared = engine.answer(asked(ref, "side_by_side", SideBySideParams()))
    assert not compared.provenance.stored and compared.result.arrays()["loss"].any()


def test_other_questions_are_not_answered(ref: ModelRef) -> None:
    engine = Engine(ModelStore())
    engine.hold([stored(engine.answer(asked(ref)))])
    engine.cache.clear()
    engine.store.open(ref)
    raw = Request.named("token_loss", TokenLossParams(), Subject(ref, TOKENS, (), Conventions(centre=False)))
    for other in (asked(ref, tokens=(0, 5, 9)), raw, asked(ref, "attention", AttentionParams())):
        assert engine.held(other) is None and not engine.answer(other).provenance.stored
    partial = replace(stored(engine.answer(asked(ref))), complete=False)
    engine.release()
    engine.hold([partial])
    assert engine.held(asked(ref)) is None


@pytest.mark.parametrize("name", ["previous_head_spectrum", "pair_positivity"])
def test_an_answer_that_has_more_is_given_for_a_part_and_never_the_other_way(ref: ModelRef, name: str) -> None:
    """Sessions of before, when both scores of a pair were always asked for, are shown as they were stored."""
    engine, kind = Engine(ModelStore()), find_analysis(name).params
    ask = lambda scores: Request.named(name, kind(scores=scores), Subject(ref))
    both, centred = (engine.answer(ask(scores)) for scores in ("both", "centred"))
    engine.cache.clear()
    engine.hold([stored(both)])
    given = engine.cached(ask("centred"))
    assert given is not None and given.provenance.stored and given.request == centred.request
    np.testing.assert_array_equal(given.result.arrays()["pairs"], centred.result.arrays()["pairs"])
    engine.release()
    engine.hold([stored(centred)])
    assert engine.held(ask("both")) is None and engine.held(ask("raw")) is None


def test_an_answer_computed_on_another_device_is_held_here(ref: ModelRef) -> None:
    engine = Engine(ModelStore())
    live = engine.answer(asked(ref))
    there = replace(live, provenance=replace(live.provenance, device="cuda:0"))
    engine.cache.clear()
    engine.hold([stored(there)])
    held = engine.cached(asked(ref))
    assert held is not None and held.provenance.device == "cuda:0"


@pytest.mark.parametrize("changed", ["nothing", "weights", "configuration"])
def test_a_model_that_is_here_must_be_the_one_that_was_stored(tmp_path: Path, folder: Path, ref: ModelRef, changed: str) -> None:
    was = stored(Engine(ModelStore()).answer(asked(ref)))
    other = directory(tmp_path / "other" / "m", FULL)
    if changed == "weights":
        save_directory(other, FULL, random_tensors(FULL, 1, 0.35), byte_tokenizer())
    if changed == "configuration":
        directory(other, FULL, norm_eps=1e-3)
        assert (other / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    engine, here = Engine(ModelStore()), ModelRef(f"file:{other}")
    engine.hold([was])
    engine.store.open(here)
    assert (engine.cached(asked(here)) is not None) == (changed == "nothing")
    assert engine.answer(asked(here)).provenance.stored == (changed == "nothing")


def test_an_answer_without_a_hash_is_given_for_no_model_that_is_here(ref: ModelRef) -> None:
    engine = Engine(ModelStore())
    live = engine.answer(asked(ref))
    engine.hold([stored(replace(live, provenance=replace(live.provenance, weights="")))])
    assert engine.held(asked(ref)) is None
    engine.hold([stored(live)])
    engine.store.open(ref).sha256 = ""
    assert engine.held(asked(ref)) is None


def test_held_twice_is_let_go_twice(ref: ModelRef) -> None:
    engine = Engine(ModelStore())
    one, other = stored(engine.answer(asked(ref))), stored(engine.answer(asked(ref)))
    engine.hold([one, other])
    engine.hold([one])
    assert engine.answer(asked(ref)).result is one.result
    engine.release([one])
    assert engine.answer(asked(ref)).result is other.result
    engine.release([other])
    assert engine.answer(asked(ref)).result is one.result
    engine.release([one, other])
    assert engine.held(asked(ref)) is None
    engine.release([one])


def test_holding_and_letting_go_from_many_threads(ref: ModelRef) -> None:
    engine = Engine(ModelStore())
    live = engine.answer(asked(ref))
    mine = [stored(live) for _ in range(4)]
    begin, failed = threading.Barrier(5), list[BaseException]()

    def work(one: Answer | None) -> None:
        try:
            begin.wait()
            for _ in range(200):
                if one is None:
                    assert engine.cached(asked(ref)) is not None
                else:
                    engine.hold([one])
                    engine.release([one])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(one,)) for one in (*mine, None)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and engine.held(asked(ref)) is None


def test_a_text_is_known_by_its_hash_and_by_its_name_where_it_is_not_there(tmp_path: Path, ref: ModelRef) -> None:
    engine, path, elsewhere = Engine(ModelStore()), tmp_path / "a.txt", tmp_path / "b.txt"
    path.write_text("abcdefghij" * 30, encoding="utf-8")
    elsewhere.write_bytes(path.read_bytes())
    of = lambda file: asked(ref, "in_context", InContextParams(on="file", text=TextRef(str(file)), texts=2), ())
    live = engine.answer(of(path))
    data = stored_bytes(live, {}, {str(path): "text"})
    engine.cache.clear()
    engine.hold([read_stored(data, ref, {"text": str(path)})])
    for file in (path, elsewhere):
        held = engine.answer(of(file))
        assert held.provenance.stored and held.request.asked == of(file) and held.request.params.text.sha256
    elsewhere.write_text("jihgfedcba" * 30, encoding="utf-8")
    assert not engine.answer(of(elsewhere)).provenance.stored
    elsewhere.unlink()
    assert engine.held(of(elsewhere)) is None
    path.unlink()
    held = engine.cached(of(path))
    assert held is not None and held.request.params == live.request.params
    assert engine.answer(of(path)).provenance.stored


def test_files_say_that_numbers_are_stored(ref: ModelRef) -> None:
    engine = Engine(ModelStore())
    live = engine.answer(asked(ref))
    assert described(export_of(engine, live))["provenance"]["stored"] is False
    assert described(export_of(engine, stored(live)))["provenance"]["stored"] is True


# -- ghosts -------------------------------------------------------------------------------------------------------------------


def test_a_ghost_answers_what_is_held_and_says_of_the_rest_why_not(folder: Path, ref: ModelRef) -> None:
    live = Engine(ModelStore())
    answer, sha256 = live.answer(asked(ref)), live.store.sha256(ref)
    engine = engine_with_ghost(folder, GONE)
    engine.hold([stored(answer, GONE)])
    held = engine.cached(asked(GONE))
    assert held is not None and held.fingerprint == answer.fingerprint and held.request == asked(GONE)
    assert engine.answer(asked(GONE)).provenance.stored and engine.check(asked(GONE)) == 0
    others = [
        asked(GONE, tokens=(1, 2)),
        asked(GONE, "attention", AttentionParams()),
        asked(GONE, "model_facts", ModelFactsParams()),
        asked(GONE, "in_context", InContextParams(on="file", text=TextRef("/not/there/a.txt"))),
    ]
    for request in others:
        assert engine.cached(request) is None
        for fresh in (False, True):
            with pytest.raises(BadModel) as caught:
                engine.answer(request, fresh=fresh)
            assert caught.value.what == MISSING and caught.value.expected and caught.value.got and caught.value.remedy
    model = engine.store.open(GONE)
    weights = model.opened.weights
    for touch in (weights.embed, weights.unembed, lambda: weights.layer(0), lambda: model.weights(Conventions())):
        with pytest.raises(BadModel, match="not on this machine"):
            touch()
    with pytest.raises(BadModel, match="not on this machine"):
        engine.run_of(model, Subject(GONE, TOKENS), NullContext())
    unidentified = replace(held, provenance=replace(held.provenance, weights=""))
    assert engine.store.sha256(GONE) == sha256 == engine.identified(unidentified).provenance.weights
    assert hash(engine.key(asked(GONE), model)) and not model.changed_on_disk and model.absent
    engine.store.read_whole(GONE)


def test_a_ghost_knows_what_panels_may_know(folder: Path, ref: ModelRef) -> None:
    keep_scaled(folder, {10: 0.5, 20: 0.7})
    live, engine = Engine(ModelStore()), engine_with_ghost(folder, GONE)
    here, there = facts_of(live, ref), facts_of(engine, GONE)
    assert there.config == here.config and there.name_parts == here.name_parts and there.steps == here.steps == (10, 20)
    assert (there.notes, there.bos, there.has_tokenizer) == (here.notes, here.bos, here.has_tokenizer)
    assert there.vocabulary() == here.vocabulary() and there.find_tokens("a", 5) == here.find_tokens("a", 5)
    assert there.tokens(TOKENS) == here.tokens(TOKENS) and there.token_of("a") == here.token_of("a")
    model, absent = live.store.open(ref), engine.store.open(GONE)
    assert parameters_of(absent.opened.weights) == parameters_of(model.opened.weights)
    assert (absent.dtypes, absent.opened.family, absent.config_sha256) == (model.dtypes, model.opened.family, model.config_sha256)
    rows = [row for row in there.memory_report(Subject(GONE)) if row[0] == "file"]
    assert rows == [row for row in here.memory_report(Subject(ref)) if row[0] == "file"]
    assert ("memory", "weights", "not on this machine") in there.memory_report(Subject(GONE))
    text, other = (model.opened.weights.tokenizer, absent.opened.weights.tokenizer)
    assert text is not None and other is not None and text.encode("a b", bos=True) == other.encode("a b", bos=True)


def test_checkpoints_of_a_ghost(folder: Path, ref: ModelRef) -> None:
    keep_scaled(folder, {10: 0.5, 20: 0.7})
    live, engine = Engine(ModelStore()), engine_with_ghost(folder, GONE)
    answer, second = live.answer(asked(replace(ref, checkpoint=0))), replace(GONE, checkpoint=1)
    engine.hold([stored(answer, replace(GONE, checkpoint=0))])
    held = engine.answer(asked(replace(GONE, checkpoint=0)))
    assert held.fingerprint == answer.fingerprint and engine.store.open(second).name == "m · step 20"
    export = export_of(engine, held)
    assert export.step == 10 == export_of(live, answer).step
    for nothing in (GONE, second):
        with pytest.raises(BadModel, match="not on this machine"):
            engine.answer(asked(nothing))


def test_a_ghost_is_no_model_that_was_found_and_gives_way_to_one(tmp_path: Path, folder: Path, ref: ModelRef) -> None:
    here = ModelRef(f"file:{tmp_path / 'later' / 'm'}")
    engine = engine_with_ghost(folder, here)
    store = engine.store
    with pytest.raises(BadModel):
        store.sha256_unopened(here)
    with pytest.raises(BadModel):
        store.reload(here)
    assert store.open(here).absent and store.use(here) is store.peek(here) and store.ghosts == (store.peek(here),)
    directory(Path(here.source[5:]), FULL)
    assert store.sha256_unopened(here) == store.open(here).sha256
    assert store.open(here).absent and not store.reload(here).absent and not store.open(here).absent and not store.ghosts
    other = engine_with_ghost(folder, here).store
    other.open(replace(here, checkpoint=0))
    other.remove(here)
    assert not other.ghosts and other.peek(replace(here, checkpoint=0)) is None and not other.open(here).absent


def test_ghosts_take_no_room(folder: Path) -> None:
    store = ModelStore(most=1, room=0)
    members = ghost_members(ModelStore().open(ModelRef(f"file:{folder}")))
    refs = [ModelRef(f"file:/not/there/{i}") for i in range(5)]
    for one in refs:
        store.place(ghost(one, members, ""))
    store.open(ModelRef(f"file:{folder}"))
    assert all(store.peek(one) is not None for one in refs) and store.peek(ModelRef(f"file:{folder}")) is not None


def test_what_a_session_carries_of_a_model_says_nothing_of_its_place(folder: Path, ref: ModelRef) -> None:
    store = ModelStore()
    model = store.open(ref)
    notes = (f"imported from /home/{SECRET}/m.pt", f"C:\\Users\\{SECRET}\\x.bin is not read", "see https://a.org/b/c")
    assumed = Assumption("tokenizer", f"../{SECRET}/of that one/", (), "your choice", free=True)
    model.opened = replace(model.opened, notes=notes, assumptions=(assumed,))
    members = ghost_members(model)
    assert set(members) == {CONFIG, ABOUT, TOKENIZER} and SECRET.encode() not in b"".join(members.values())
    assert ghost(GONE, members, "").opened.notes == ("imported from m.pt", "x.bin is not read", notes[2])
    assert ghost(GONE, members, "").opened.assumptions == (replace(assumed, value="of that one"),)
    assert ghost_members(ghost(GONE, members, "")) == members
    for text in ("1/√d_head, and/or, p /q", "attn-only-2l", "/", ""):
        assert placeless(text) == text
    for path in ("/home/zoe b/her models/m", "~/zoe/m", "C:\\\\Users\\\\zoe\\\\m", "\\\\host\\share\\m", "file:/home/zoe/m"):
        assert placeless(path) in ("m", "file:m"), path


@pytest.mark.parametrize("name", [CONFIG, ABOUT, TOKENIZER])
@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"n_layers": "two"}', b"\xff", b'{"steps": [1.5]}'])
def test_members_that_cannot_be_read_make_no_ghost(folder: Path, ref: ModelRef, name: str, data: bytes) -> None:
    members = ghost_members(ModelStore().open(ref))
    with pytest.raises(BadModel):
        ghost(GONE, members | {name: data}, "")
    with pytest.raises(BadModel, match="too large"):
        ghost(GONE, members | {name: b" " * (64 * 2**20 + 1)}, "")


@pytest.mark.parametrize("source", ["builtin:attn-only-2l", "construct:rope-induction"])
def test_a_ghost_reads_and_shows_text_as_its_model_does(source: str) -> None:
    model = ModelStore().open(reference(source))
    text, other = (one.opened.weights.tokenizer for one in (model, ghost(GONE, ghost_members(model), model.sha256)))
    assert text is not None and other is not None
    assert (text.n_tokens, text.bos, text.adds_bos, text.vocabulary) == (
        other.n_tokens,
        other.bos,
        other.adds_bos,
        other.vocabulary,
    )
    assert [text.display(i) for i in range(text.n_tokens)] == [other.display(i) for i in range(other.n_tokens)]
    assert text.encode("abcabc") == other.encode("abcabc") and text.decode((1, 2, 3)) == other.decode((1, 2, 3))


@pytest.mark.parametrize("name", CONFIGS)
def test_every_configuration_comes_back(tmp_path: Path, name: str) -> None:
    """An answer is known by the hash of its configuration: a ghost, and the model on another machine, must have the same."""
    config = CONFIGS[name]
    members = {CONFIG: json.dumps(config.to_json()).encode()}
    twin = ghost(GONE, members, "")
    assert twin.opened.weights.config == config and ghost_members(twin)[CONFIG] == ghost_members(ghost(GONE, members, ""))[CONFIG]


def test_damaged_members_make_a_ghost_or_a_typed_error(tmp_path: Path, ref: ModelRef) -> None:
    members, outcomes = ghost_members(ModelStore().open(ref)), set[str]()
    for seed in range(300):
        rng = random.Random(seed)
        name, file = rng.choice([CONFIG, ABOUT, ABOUT, TOKENIZER]), tmp_path / "member"
        file.write_bytes(members[name])
        rng.choice(BYTES)(file, rng)
        try:
            made = ghost(GONE, members | {name: file.read_bytes()}, "")
            assert made.nbytes and made.name and made.steps_trained is None
            outcomes.add("made")
        except BadModel as error:
            assert error.what and error.expected
            outcomes.add("refused")
    assert outcomes == {"made", "refused"}


def test_a_hash_that_was_read_before_opening_is_not_read_again(ref: ModelRef, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ModelStore()
    sha256 = store.sha256_unopened(ref)
    monkeypatch.setattr("circuitlab.engine.store.SMALL", 0)
    monkeypatch.setattr("circuitlab.engine.store._digest", lambda *a: pytest.fail("read again"))
    assert store.open(ref).sha256 == sha256 == store.sha256(ref)
