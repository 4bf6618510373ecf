"""Spellings of special tokens in a text: the ids that `tokenizers` and `transformers` give, with every kind of added token."""

from __future__ import annotations

import json
import random
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, decoders, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Inner
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

import circuitlab.api as lab
from circuitlab.cli.parser import main
from circuitlab.errors import BadInput, UsageError
from circuitlab.figures.contracts.about import prompt as prompt_words
from circuitlab.figures.contracts.facts import facts_of
from circuitlab.model.text.reading import SpecialSwitch
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.session_files.migrations import migrated
from circuitlab.state.model_change import state_for, state_on
from tests.lines_run import lines_run
from tests.models import byte_tokenizer, directory, with_special
from tests.patience import SECONDS
from tests.session_files import opened, saved_and_opened
from tests.unit.test_hostile_tokenizers import cut

LETTERS = "ab \n<|>/é▁_.1"
PLAIN = ("<|start|>", "<|end|>", "<|end|>x", "</s>")  # one is the beginning of another
KINDS: dict[str, tuple[Any, ...]] = {
    "as they are": (),
    "strips the left": (AddedToken("[L]", special=True, lstrip=True),),
    "strips the right": (AddedToken("[R]", special=True, rstrip=True),),
    "a whole word": (AddedToken("[W]", special=True, single_word=True),),
    "after the normaliser": (AddedToken("[N]", special=True, normalized=True),),
    "beside tokens that are not special": (
        AddedToken("<|sta", special=False),
        AddedToken("rt|>a", special=False, normalized=True),
    ),
}


def byte_level() -> Inner:
    inner = Inner(BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    inner.train_from_iterator(["ab ab <|start|> user ab", "a.b/ab é"], trainer)
    return inner


def sentencepiece(scheme: Any) -> Inner:
    inner = Inner(BPE(unk_token="<unk>", byte_fallback=False))
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    inner.decoder = decoders.Metaspace(prepend_scheme=scheme)
    trainer = trainers.BpeTrainer(vocab_size=120, special_tokens=["<unk>"], initial_alphabet=list(LETTERS), show_progress=False)
    inner.train_from_iterator(["ab ab start user ab", "a b ab"], trainer)
    return inner


def lowered() -> Inner:
    inner = byte_level()
    inner.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    return inner


FILES = {
    "byte-level": byte_level,
    "lower case": lowered,
    "a space in front of everything": lambda: sentencepiece("always"),
    "a space in front of the text": lambda: sentencepiece("first"),
}


def file_of(name: str, kind: str) -> str:
    inner = FILES[name]()
    inner.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in PLAIN])
    for token in KINDS[kind]:
        (inner.add_special_tokens if token.special else inner.add_tokens)([token])
    return inner.to_str()


def texts(kind: str, count: int = 150) -> list[str]:
    """Random texts with spellings sprinkled in, whole and in pieces."""
    rng = random.Random(kind)
    spellings = [*PLAIN, *(t.content for t in KINDS[kind]), *(t.content.lower() for t in KINDS[kind])]
    piece = lambda: rng.choice(spellings) if rng.random() < 0.4 else "".join(rng.choices(LETTERS, k=rng.randrange(5)))
    return ["".join(piece() for _ in range(rng.randrange(9))) for _ in range(count)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FILES)
def test_spellings_have_the_ids_of_the_library(name: str, kind: str) -> None:
    text = file_of(name, kind)
    ours, theirs = Tokenizer.from_bytes(text.encode()), Inner.from_str(text)
    both = PreTrainedTokenizerFast(tokenizer_object=Inner.from_str(text))
    differ = 0
    for one in texts(kind):
        ids = tuple(theirs.encode(one, add_special_tokens=False).ids)
        assert ours.encode(one, special=True) == ids == tuple(both.encode(one, add_special_tokens=False)), one
        theirs.encode_special_tokens = True
        letters = tuple(theirs.encode(one, add_special_tokens=False).ids)
        theirs.encode_special_tokens = False
        assert ours.encode(one) == letters, one
        differ += ids != letters
    assert differ > 50


def test_a_tokenizer_in_a_process_reads_them_alike() -> None:
    spec = json.loads(file_of("byte-level", "strips the left")) | {"pre_tokenizer": cut("[ab]+|[^ab]+")}
    ours, theirs = Tokenizer.from_bytes(json.dumps(spec).encode()), Inner.from_str(json.dumps(spec))
    assert not ours.quick("a <|start|>", special=True)
    for one in texts("strips the left", 40):
        assert ours.encode(one, special=True) == tuple(theirs.encode(one, add_special_tokens=False).ids), one
        assert ours.decode(ours.encode(one, special=True), special=True) == theirs.decode(
            list(ours.encode(one, special=True)), skip_special_tokens=False
        )


def test_a_text_is_found_for_ids_with_special_tokens_and_cut_with_them() -> None:
    ours = Tokenizer.from_bytes(file_of("byte-level", "as they are").encode())
    start = ours.id_of("<|start|>")
    text = "<|start|>ab\nab<|end|>"
    ids = ours.encode(text, special=True)
    assert ids[0] == start and ours.text_of(ids, special=True) == text
    assert ours.text_of(ids) == ""  # no letters are read as these
    cut_text, kept = ours.cut(text, 2, special=True)
    assert kept == ids[:2] and cut_text.startswith("<|start|>") and ours.encode(cut_text, special=True) == kept
    assert ours.beginning(text * 50, 3, special=True).startswith("<|start|>")
    assert len(ours.encode(ours.beginning(text * 50, 3, special=True), special=True)) <= 3


def test_two_ways_of_reading_do_not_meet_and_nobody_waits_for_ever() -> None:
    inner = byte_tokenizer()._inner
    switch, inside, seen = SpecialSwitch(inner), list[bool](), list[str]()
    stop, lock = threading.Event(), threading.Lock()

    def reader(special: bool) -> None:
        while not stop.is_set():
            with switch.reading(special):
                with lock:
                    inside.append(special)
                    if len(set(inside)) > 1 or inner.encode_special_tokens == special:
                        seen.append("mixed")
                time.sleep(0)
                with lock:
                    inside.remove(special)

    threads = [threading.Thread(target=reader, args=(special,)) for special in (True, False, True, False)]
    for thread in threads:
        thread.start()
    came = threading.Event()

    def newcomer() -> None:
        for i in range(100):
            with switch.reading((True, False, None)[i % 3]):
                pass
        came.set()

    late = threading.Thread(target=newcomer)
    late.start()
    assert came.wait(SECONDS)
    stop.set()
    for thread in (*threads, late):
        thread.join()
    assert not seen


def test_the_interface_reads_them_unless_it_is_told_otherwise(tmp_path: Path) -> None:
    folder = str(directory(tmp_path / "m"))
    model, letters = lab.open(folder), lab.open(folder, special=False)
    n = len("<|bos|>")
    assert model.tokens("a<|bos|>b", bos=False) == (65, 0, 66)
    assert len(letters.tokens("a<|bos|>b", bos=False)) == len(model.tokens("a<|bos|>b", False, special=False)) == n + 2
    assert letters.at_step(None).edit("zero z L1H1").special is False
    state = model.state("a<|bos|>b", bos=False)
    assert state.special and state.tokens == (65, 0, 66)
    assert not model.state("a<|bos|>b", special=False).special
    spelled = model.compute("token_loss", "a<|bos|>b", bos=False).result.loss[1:]
    assert spelled.tolist() == model.compute("token_loss", tokens=(65, 0, 66)).result.loss[1:].tolist()
    patched = model.subject("a<|bos|>b", bos=False, edits='patch resid_pre L1 @1 from "c<|bos|>d"')
    assert patched.edits[0].source == (67, 0, 68)
    with pytest.raises(UsageError, match="taken as they are"):
        model.compute("token_loss", tokens=(1, 2), special=True)


def test_decoding_is_the_way_back_from_ids_with_special_tokens(tmp_path: Path) -> None:
    folder = directory(tmp_path / "m")
    model, theirs = lab.open(str(folder)), PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    for text in ("a<|bos|>b", "<|bos|>", "<|bos|><|bos|> é", "ab"):
        for bos in (True, False):
            ids = model.tokens(text, bos=bos)
            assert model.decode(ids) == theirs.decode(list(ids)) == "<|bos|>" * bos + text
            assert model.tokens(model.decode(ids), bos=False) == ids
            assert model.decode(ids, special=False) == theirs.decode(list(ids), skip_special_tokens=True)


def test_a_generated_text_spells_the_special_tokens_in_it(tmp_path: Path) -> None:
    model = lab.open(str(directory(tmp_path / "m")))
    drawn = (model.generate("ab", n=12, temperature=1000.0, seed=seed) for seed in range(400))
    found = next(one for one in drawn if 0 in one.new)
    assert "<|bos|>" in found.text == model.decode(found.new)


def test_a_session_of_before_shows_letters_where_it_did(tmp_path: Path) -> None:
    folder, engine = directory(tmp_path / "m"), lab.engine()
    letters = byte_tokenizer().encode("a<|bos|>b", True)
    words = {"model": "m", "text": "a<|bos|>b", "pin": {"text": "c<|bos|>", "label": "p"}}
    table = {"circuitlab": "session", "version": 1, "models": {"m": {"path": str(folder)}}, "now": words}
    state = opened(table, tmp_path, engine)
    assert state.tokens == letters and not state.special
    assert state.pins[0].subject.tokens == byte_tokenizer().encode("c<|bos|>", True)
    assert saved_and_opened(state, tmp_path, engine) == state
    assert opened(table | {"version": 2}, tmp_path, engine).tokens == byte_tokenizer().encode("a<|bos|>b", True, True)
    plain = opened(table | {"now": {"model": "m", "text": "a b"}}, tmp_path, engine)
    assert plain.special, "what cannot have meant letters is read as texts are now"
    steps = [
        {"title": "1", "set": words},
        {"title": "2", "values": {"v": {"analysis": "token_loss", "read": "mean", "text": "<|bos|>"}}},
    ]
    story = migrated(table | {"story": {"steps": steps}})["story"]["steps"]
    assert story[0]["set"]["special"] is False and story[0]["set"]["pin"]["special"] is False
    assert story[1]["values"]["v"]["special"] is False and "special" not in story[1]


@pytest.mark.parametrize("spelling", ["EOS", "a special token", "<|x|>"])
def test_the_ids_of_a_saved_text_say_whether_its_spellings_are_letters(tmp_path: Path, spelling: str) -> None:
    folder, engine = with_special(directory(tmp_path / "m"), spelling), lab.engine()
    model, text = lab.open(str(folder)), f"a{spelling}b"
    letters, special = (model.tokens(text, bos=False, special=one) for one in (False, True))
    assert len(letters) == len(text) and len(special) == 3
    now = {"model": "m", "text": text, "bos": False}
    table = {"circuitlab": "session", "version": 1, "models": {"m": {"path": str(folder)}}}
    for version, ids, read in ((1, letters, False), (2, letters, False), (2, special, True), (2, (1, 2), True)):
        state = opened(table | {"version": version, "now": now | {"tokens": list(ids)}}, tmp_path, engine)
        assert (state.text, state.tokens, state.special) == (text, ids, read)
        assert saved_and_opened(state, tmp_path, engine) == state
    stated = opened(table | {"version": 2, "now": now | {"tokens": list(letters), "special": True}}, tmp_path, engine)
    assert stated.special and stated.tokens == letters


def test_any_special_token_stands_in_front(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(with_special(directory(tmp_path / "m"), "<|x|>", "<|y|>"))
    model = lab.open(folder, bos="<|x|>")
    assert model.tokens("ab") == (257, 65, 66) == lab.open(folder).tokens("ab", bos="<|x|>")
    assert model.tokens("ab", bos=True)[0] == 0 and model.tokens("ab", bos=False) == (65, 66)
    state = model.state("ab")
    assert (state.bos, state.front, state.tokens) == (False, "<|x|>", (257, 65, 66))
    same = lab.open(folder, bos="<|bos|>").state("ab")
    assert (same.bos, same.front) == (True, ""), "BOS by its spelling is BOS"
    facts = facts_of(model.engine, model.ref)
    assert prompt_words(state, facts) == "“ab” (3 tokens, <|x|> first)"
    assert prompt_words(same, facts).endswith("BOS first)")
    assert model.subject("ab", edits='patch resid_pre L1 from "ba"').edits[0].source == (257, 66, 65)
    assert saved_and_opened(state, tmp_path, model.engine) == state
    with pytest.raises(BadInput, match="no such special token") as caught:
        model.tokens("ab", bos="<|z|>")
    assert "<|bos|> <|x|> <|y|>" in caught.value.expected
    assert main(["tokens", folder, "--text", "ab", "--front", "<|y|>", "--json"]) == 0
    assert [row["id"] for row in json.loads(capsys.readouterr().out)["tokens"]] == [258, 65, 66]
    assert main(["tokens", folder, "--text", "ab", "--front", "<|y|>", "--bos"]) == 2
    assert main(["info", folder, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["tokenizer"]
    assert told["special"] == {"<|bos|>": 0, "<|x|>": 257, "<|y|>": 258}
    assert main(["info", folder]) == 0
    assert "<|bos|>, id 0" in (out := capsys.readouterr().out) and "<|bos|> <|x|> <|y|>" in out


def test_a_keystroke_costs_the_same_beside_thousands_of_special_tokens() -> None:
    spec = json.loads(byte_tokenizer().file_text())
    how, n = spec["added_tokens"][0], byte_tokenizer().n_tokens
    costs: list[int] = []
    for count in (10, 20_000):
        more = [how | {"id": n + i, "content": f"<special_{i}>"} for i in range(count)]
        ours = Tokenizer.from_bytes(json.dumps(spec | {"added_tokens": [how, *more]}).encode())
        ours.encode("", "<special_3>")  # the first one looks through all of them
        text = "a <special_5> and <spec <special_ " * 20
        assert ours.encode(text, "<special_3>", special=True).count(n + 5) == 20
        costs.append(
            lines_run(lambda ours=ours, text=text: (ours.quick(text, True), ours.encode(text + "b", "<special_3>", True)))
        )
    assert costs[1] < 3 * costs[0]


def test_what_stands_in_front_does_not_go_to_a_model_that_lacks_it(tmp_path: Path) -> None:
    one, other = with_special(directory(tmp_path / "a"), "<|x|>"), directory(tmp_path / "b")
    state = lab.open(str(one)).state("ab", bos="<|x|>")
    there = lab.open(str(other))
    moved = state_on(there.engine.store.open(there.ref), state, None)
    assert (moved.bos, moved.front, moved.tokens) == (True, "", (0, 65, 66))
    kept = state_for(there.engine.store.open(there.ref), replace(state, model=there.ref), None, state)
    assert (kept.bos, kept.front, kept.tokens) == (True, "", (0, 65, 66))
