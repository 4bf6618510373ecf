"""Small files that cost more than their size: bounded by size, or counted in steps; never timed."""

from __future__ import annotations

import json
import re
import struct
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from circuitlab.disk.toml_reading import DEEPEST, toml_of
from circuitlab.errors import BadInput, BadModel, UsageError
from circuitlab.lessons.lesson import parse
from circuitlab.model.files import archive
from circuitlab.model.files.whole_file import WholeFile
from circuitlab.model.importing.by_map import read_map
from circuitlab.model.loading import llama2c_tokenizer, tokenizer_files
from circuitlab.story import text, values
from circuitlab.sweep.spec import read_spec
from circuitlab.training.recipe_file import MOST_BASES, read_recipe


def calls(work: Callable[[], Any]) -> int:
    """How many functions it calls, Python's and libraries'."""
    count = 0

    def called(frame: Any, event: str, what: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def _refused(name: str, what: str, expected: str, got: object) -> BadInput:
    return BadInput(what, expected=expected, got=str(got))


def test_what_a_number_reads_is_short() -> None:
    for read in ("a" + " " * 10_000 + "!", "a" + "[0]" * 5_000, "mean(" + "a" * 10_000, "a[" + "1" * 5_000 + ":]"):
        with pytest.raises(BadInput, match="too long"):
            values.read_value("v", {"analysis": "token_loss", "read": read}, _refused)
    assert values.read_value("v", {"analysis": "token_loss", "read": " mean( loss[26:51].x[head] ) "}, _refused)


def test_patterns_over_texts_of_files_try_nothing_twice() -> None:
    """Every repeat in them is possessive, or bounded in a number of characters."""
    from circuitlab.disk import toml_reading
    from circuitlab.gui.lessons import session_part

    for pattern in (values.READ, text._LINK, session_part._LINK, toml_reading._TOO_DEEP):
        plain = re.sub(r"\[(?:\\.|[^\]\\])*\]|\\.", "c", pattern.pattern)  # classes and escapes
        loose = re.findall(r"[*+](?![+])(?<![*+}?]\+)", plain)
        assert not loose, (pattern.pattern, plain)


DEEP = ".".join("a" * (DEEPEST + 1))


@pytest.mark.parametrize(
    "toml",
    [f"{DEEP} = 1", f"[{DEEP}]", f"[[{DEEP}]]", f"x = {{{DEEP} = 1}}", f"x = {{b = 1, {DEEP} = 1}}", f'"q".{DEEP} = 1'],
)
def test_a_dotted_key_has_few_parts(toml: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="between dots"):
        toml_of(toml)
    (file := tmp_path / "a.toml").write_text(toml)
    for read, error in ((read_map, UsageError), (lambda one: read_recipe(str(one)), BadInput), (read_spec, BadInput)):
        with pytest.raises(error) as caught:
            read(file)
        assert "between dots" in caught.value.got
    with pytest.raises(BadInput) as caught:
        parse(f'+++\ntitle = "a"\n+++\n\n## a\n\n```circuitlab\n{toml}\n```\n', Path("a.md"))
    assert "between dots" in caught.value.got


def test_keys_and_texts_of_a_usual_length_are_read() -> None:
    dotted = ".".join("a" * DEEPEST)
    words = ".".join(["word"] * 200)
    result = toml_of(f'{dotted} = 1\nprompt = "{words}"\nlist = ["a", "{words}"]\nlong = """\n{words[:90]}\n"""')
    assert result["prompt"] == words and result["list"][1] == words


def test_a_recipe_is_small_and_builds_on_few(tmp_path: Path) -> None:
    (tmp_path / "big.toml").write_bytes(b"#" * 2**21)
    with pytest.raises(BadInput) as caught:
        read_recipe(str(tmp_path / "big.toml"))
    assert "MiB" in caught.value.got
    for i in range(200):
        (tmp_path / f"r{i}.toml").write_text(f'base = "r{i + 1}"\n')
    with pytest.raises(BadInput, match="too far") as caught:
        read_recipe(str(tmp_path / "r0.toml"))
    assert f"r{MOST_BASES}.toml" in caught.value.what


def _folder_with_added(tmp_path: Path, n: int) -> Path:
    folder = tmp_path / str(n)
    folder.mkdir()
    (folder / "vocab.json").write_text(json.dumps({"a": 0, "b": 1, "ab": 2}))
    (folder / "merges.txt").write_text("a b\n")
    (folder / "added_tokens.json").write_text(json.dumps({f"<{i}>": 3 + i for i in range(n)}))
    return folder


@pytest.mark.parametrize("n", [1, 300])
def test_added_tokens_are_added_at_once(tmp_path: Path, n: int) -> None:
    """The library builds its search for all of them anew whenever some are added."""
    added = 0

    def called(frame: Any, event: str, what: Any) -> None:
        nonlocal added
        added += event == "c_call" and what.__name__ in ("add_tokens", "add_special_tokens")

    sys.setprofile(called)
    try:
        tokenizer = tokenizer_files.find_tokenizer(_folder_with_added(tmp_path, n))
    finally:
        sys.setprofile(None)
    assert tokenizer is not None and tokenizer.id_of(f"<{n - 1}>") == 2 + n and added == 1


def test_added_tokens_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    folder = _folder_with_added(tmp_path, 3)
    (folder / "added_tokens.json").write_text(json.dumps({"<a>": 3, "<b>": 7}))
    with pytest.raises(BadModel, match="do not fit") as caught:
        tokenizer_files.find_tokenizer(folder)
    assert "7" in caught.value.expected


def _llama2c(path: Path, *pieces: bytes) -> Path:
    entries = (struct.pack("<fi", 0.0, len(one)) + one for one in (b"<unk>", b"\n<s>\n", b"\n</s>\n", *pieces))
    path.write_bytes(struct.pack("<i", 99) + b"".join(entries))
    return path


def test_a_piece_of_llama2c_is_short(tmp_path: Path) -> None:
    assert llama2c_tokenizer.read_tokenizer(_llama2c(tmp_path / "a.bin", b"a", b"b", b"ab", b"x" * 256)).n_tokens == 7
    with pytest.raises(BadModel, match="piece that is too long"):
        llama2c_tokenizer.read_tokenizer(_llama2c(tmp_path / "b.bin", b"x" * 257))
    with (tmp_path / "c.bin").open("wb") as file:
        file.truncate(2**23 + 1)
    with pytest.raises(BadModel, match="too large"):
        llama2c_tokenizer.read_tokenizer(tmp_path / "c.bin")


def test_checksums_are_taken_once_the_entries_are_known_to_lie_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of 300 entries that are all the same bytes: none of them is read."""
    torch.save({"a": torch.zeros(4)}, path := tmp_path / "a.pt")
    read: list[int] = []
    plain = archive.zlib.crc32
    monkeypatch.setattr(archive.zlib, "crc32", lambda data: read.append(len(data)) or plain(data))
    archive.entries(WholeFile(path))
    assert len(read) == 1 and not read.clear()
    with zipfile.ZipFile(tmp_path / "b.pt", "w") as made:
        made.writestr("x/data.pkl", b"0" * 1000)
        first = made.infolist()[0]
        for i in range(300):
            info = zipfile.ZipInfo(f"{i}/data.pkl")
            info.header_offset, info.CRC, info.file_size, info.compress_size = 0, first.CRC, first.file_size, first.compress_size
            made.filelist.append(info)
    with pytest.raises(BadModel) as caught:
        archive.entries(WholeFile(tmp_path / "b.pt"))
    assert caught.value.got.startswith("entries that overlap") and not read
    data = bytearray(path.read_bytes())
    at = data.index(b"data.pkl") + 60
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(BadModel) as caught:
        archive.entries(WholeFile(path))
    assert "checksum" in caught.value.got


def test_no_word_of_a_step_is_endless() -> None:
    word, short = "x" * 80_000, "y" * text.LONGEST_WORD
    for whole in (f"a {word} b {short} c", f"`{word}`", f"```\n{word}\n```"):
        filled = text.fill_text(whole, {}, {})
        assert max(map(len, filled.split())) <= text.LONGEST_WORD + 1 and "more characters" in filled
    assert text.fill_text(f"a {short} b", {}, {}) == f"a {short} b"


def test_the_line_of_a_step_in_a_list_is_short() -> None:
    from circuitlab.gui.lessons.session_part import first_line

    assert len(first_line("x" * 80_000)) <= 300
    assert first_line("[" * 60_000 + "a](b)").startswith("[[[")
    assert first_line("\n## See [the *panel*](panel:attention)\n") == "See the panel"
    assert text.links("[" * 60_000 + "a](panel:attention) [b](head:L0H1)") == (("panel", "attention"), ("head", "L0H1"))
