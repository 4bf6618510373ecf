"""Tokenizer files that take for ever, need all memory, or make the library panic: a typed error in bounded time."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Inner

from circuitlab.cli.parser import main
from circuitlab.disk.paths import shipped, shipped_models
from circuitlab.errors import BadInput, BadModel
from circuitlab.model.text import tokenizer_process
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.model.text.tokenizer_process import TokenizerProcess
from circuitlab.model.text.tokenizer_rules import unbounded
from tests.models import byte_tokenizer, directory


def cut(expression: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}


def doubling(times: int) -> dict[str, Any]:
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    return {"type": "Sequence", "normalizers": [step] * times}


# what is changed in a good file; a text that it cannot take (None: it is refused when it is opened)
HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "a catastrophic regex": ({"pre_tokenizer": cut("(a+)+$")}, "a" * 60 + "!"),
    "many catastrophic matches": ({"pre_tokenizer": cut("(?:(a+)+b)|c")}, "a" * 4000 + "!"),
    "another catastrophic regex": ({"pre_tokenizer": cut("(x+x+)+y")}, "x" * 60),
    "doubling thirty times": ({"normalizer": doubling(30)}, "a"),
    "doubling twenty times": ({"normalizer": doubling(20)}, "a"),
    "a replacement of nothing": ({"normalizer": {"type": "Replace", "pattern": {"Regex": ""}, "content": "xx"}}, "a"),
    "a template of ten thousand texts": (
        {
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [{"Sequence": {"id": "A", "type_id": 0}}] * 10_000,
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {},
            }
        },
        "some text",
    ),
}


TAKES_NOTHING = ("a replacement of nothing", "a template of ten thousand texts")


def written(folder: Path, **changes: Any) -> Path:
    spec = json.loads(byte_tokenizer().file_text())
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tokenizer.json"
    path.write_text(json.dumps({**spec, **changes}), encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_process, "SECONDS", 0.4)


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_is_a_typed_error_and_the_next_text_is_taken(tmp_path: Path, kind: str) -> None:
    changes, text = HOSTILE[kind]
    tokenizer = Tokenizer.from_file(written(tmp_path, **changes))
    for _ in range(2):
        with pytest.raises(BadInput) as caught:
            tokenizer.encode(text)
        assert caught.value.remedy
    if kind not in TAKES_NOTHING:
        assert tokenizer.encode("z", bos=True) == (0, *byte_tokenizer().encode("z"))
    assert tokenizer.display(0) == "<|bos|>"


def test_doubling_of_an_added_token_is_stopped_when_it_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_process, "LOADING", 1.0)
    token = {"id": 257, "content": "a", "normalized": True, "special": False}
    added = {"single_word": False, "lstrip": False, "rstrip": False}
    path = written(tmp_path, normalizer=doubling(34), added_tokens=[{**token, **added}])
    with pytest.raises(BadModel, match="cannot be read"):
        Tokenizer.from_file(path)


def test_a_step_named_twice_is_not_guessed_at(tmp_path: Path) -> None:
    path = written(tmp_path)
    text = path.read_text(encoding="utf-8")
    path.write_text(text[:-1] + ', "normalizer": ' + json.dumps(doubling(30)) + "}", encoding="utf-8")
    with pytest.raises(BadModel, match="twice"):
        Tokenizer.from_file(path)


@pytest.mark.parametrize("name", shipped_models())
def test_the_shipped_tokenizers_are_known_to_be_bounded(name: str) -> None:
    spec = json.loads((shipped("models") / name / "tokenizer.json").read_text(encoding="utf-8"))
    assert unbounded(spec) == ""


def test_an_id_of_a_billion_is_refused_when_it_is_opened() -> None:
    """The library opens it in no time, and takes 4 GB to write it or to tell it from another."""
    spec = json.loads(byte_tokenizer().file_text())
    spec["model"]["vocab"]["a"] = 10**9
    with pytest.raises(BadModel) as refused:
        Tokenizer.from_bytes(json.dumps(spec).encode())
    assert str(10**9) in refused.value.got


def test_a_lone_surrogate_is_a_typed_error(tmp_path: Path) -> None:
    for tokenizer in (byte_tokenizer(), Tokenizer.from_file(written(tmp_path, pre_tokenizer=cut("[aeiou]")))):
        with pytest.raises(BadInput):
            tokenizer.encode("\ud800")


def test_a_process_says_what_the_library_says(tmp_path: Path) -> None:
    """An expression that is not on the list, and harmless: the same ids as the library's own, and the same text back."""
    path = written(tmp_path, pre_tokenizer={"type": "Sequence", "pretokenizers": [cut("[aeiou]+"), BYTES]})
    ours, theirs = Tokenizer.from_file(path), Inner.from_file(str(path))
    for text in ("", "a", "hello · wörld\n", "<|bos|>", "x" * 5000):
        theirs.encode_special_tokens = True
        assert ours.encode(text) == tuple(theirs.encode(text, add_special_tokens=False).ids)
        assert ours.decode(ours.encode(text)) == text
    assert ours.display(ours.encode(" ")[0]) == "·"
    assert ours.find("e") == ours.encode("e")[0]
    ours.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def test_the_process_ends_with_its_tokenizer(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(written(tmp_path, pre_tokenizer=cut("[aeiou]")))
    assert isinstance(tokenizer._own, TokenizerProcess)
    child = tokenizer._own._running[0]
    assert child.poll() is None
    del tokenizer
    gc.collect()
    assert child.poll() is not None


def test_a_process_that_was_killed_is_started_again(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(written(tmp_path, pre_tokenizer=cut("[aeiou]")))
    before = tokenizer.encode("one")
    assert isinstance(tokenizer._own, TokenizerProcess)
    tokenizer._own._running[0].kill()
    tokenizer._own._running[0].wait()
    assert tokenizer.encode("two") and tokenizer.encode("one") == before


def test_the_command_line_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = directory(tmp_path / "model")
    written(folder, pre_tokenizer=cut("(a+)+$"))
    assert main(["compute", "token_loss", str(folder), "--text", "a" * 60 + "!"]) == 3
    words = capsys.readouterr().err
    assert "Traceback" not in words and "tokenizer" in words
    written(folder, normalizer=doubling(30))
    assert main(["compute", "token_loss", str(folder), "--text", "b"]) == 3
    assert "tokenizer" in capsys.readouterr().err


def test_a_special_token_is_shown_with_every_character_visible(tmp_path: Path) -> None:
    token = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    known = json.loads(byte_tokenizer().file_text())["added_tokens"]
    texts = ("<\x1b[2J\u202ex>", "<two words>", "<|plain|>")
    free = byte_tokenizer().n_tokens
    more = [{**token, "id": free + i, "content": text} for i, text in enumerate(texts)]
    tokenizer = Tokenizer.from_file(written(tmp_path, added_tokens=[*known, *more]))
    assert all(tokenizer.is_special(free + i) for i in range(3))
    shown = [tokenizer.display(free + i) for i in range(3)]
    assert shown == ["<⟨1b⟩[2J⟨202e⟩x>", "<two·words>", "<|plain|>"] and all(map(str.isprintable, shown))
    assert [tokenizer.shown_as(text) for text in shown] == [free, free + 1, free + 2]
