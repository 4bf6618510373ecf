"""Prompt sets: how a file is read, what cannot be read, and that every shipped set suits the shipped model; targets as text."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuitlab.disk.paths import model_dir, resource
from circuitlab.engine.codec import as_text, from_json, parse, to_json
from circuitlab.errors import BadInput, UsageError
from circuitlab.model.config import ModelConfig
from circuitlab.model.prompts import Prompt, lines_of, read_prompts
from circuitlab.model.subject import Target
from circuitlab.model.text.tokenizer import Tokenizer
from tests.models import TINY, byte_tokenizer

COPIES = "literal_copying literal_copying_two_tokens names_continued".split()
NAMES = "names_said_again"
KINDS = [*COPIES, NAMES, *"code few_shot_classification names_repeated pattern_matching random_tokens translation".split()]
FOLDER = resource("prompts")
FREE = st.text(st.characters(codec="utf-8", exclude_characters="\t\n\\\r"), min_size=1, max_size=9)


def read(text: str, config: ModelConfig = TINY, tokenizer: Tokenizer | None = None) -> tuple[Prompt, ...]:
    return read_prompts(text, "set.tsv", tokenizer or byte_tokenizer(), config)


def ids(text: str) -> tuple[int, ...]:
    return byte_tokenizer().encode(text)


# -- the parser ------------------------------------------------------------------------------------------------------------


def test_a_line_is_a_prompt_and_its_answers() -> None:
    pair, one, none = read("to be or not to\tb\tX\nto be\t o\nbe\n")
    assert pair == Prompt("to be or not to", (0, *ids("to be or not to")), Target((ids("b")[0], ids("X")[0])))
    assert one.target == Target((ids(" ")[0],))
    assert one.longer and not pair.longer
    assert none.target == Target()


def test_a_model_without_bos_gets_none() -> None:
    (prompt,) = read("ab", ModelConfig(1, 1, 4, 4, 260, 8))
    assert prompt.tokens == ids("ab")


def test_comments_and_empty_lines_are_skipped_and_spaces_count() -> None:
    text = "# a comment\n\n   \t \n # not a comment\t #\n  two spaces \n"
    assert lines_of(text) == [(4, (" # not a comment", " #")), (5, ("  two spaces ",))]


def test_escapes() -> None:
    assert lines_of(r"a\nb\tc\\n\x" + "\t" + r"\n") == [(1, ("a\nb\tc\\n\\x", "\n"))]


@given(st.lists(st.tuples(FREE, FREE, FREE), min_size=1, max_size=4))
def test_what_was_escaped_is_read_back(rows: list[tuple[str, str, str]]) -> None:
    rows = [("p" + a + "\n\\n\t", "\\" + b, c + "\\\\n") for a, b, c in rows]
    hidden = lambda s: s.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")
    text = "\n".join("\t".join(map(hidden, row)) for row in rows)
    assert lines_of(text) == list(enumerate(rows, 1))


@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_files_of_other_systems_read_the_same(start: str, end: str) -> None:
    text = start + "# comment" + end + "ab\tc" + end + end + "de" + end
    assert lines_of(text) == [(2, ("ab", "c")), (4, ("de",))]


def test_a_byte_order_mark_before_a_prompt_is_no_part_of_it() -> None:
    assert lines_of("\ufeffab") == [(1, ("ab",))]


@pytest.mark.parametrize("inside", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\r"])
def test_only_newlines_end_a_line(inside: str) -> None:
    assert lines_of(f"a{inside}b\nc") == [(1, (f"a{inside}b",)), (2, ("c",))]


def test_empty_answers_are_none_unless_another_one_follows() -> None:
    assert [p.target for p in read("a\t\nb\t\t\nc\td\t\n")] == [Target(), Target(), Target((ids("d")[0],))]
    with pytest.raises(BadInput, match="line 2"):
        read("a\nb\t\tc")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# one\na\tb\tc\td\ta\tf", "Line 2 .* too many fields"),
        ("a b\tc\t\t\td", "source in line 1 .* is not in its prompt"),
        ("a\n" + "x" * 48, "Line 2 .* does not fit"),  # 48 and BOM: one more than the context
        ("", "no prompt"),
        ("# nothing\n\n", "no prompt"),
        ("a\tbc\tbc", "answers in line 1 .* are the same"),
        ("a\tb\tbc", "answers in line 1 .* one is the beginning of the other"),
        ("x" * 47 + "\tbc\tbd", "Line 1 .* does not fit"),  # what both begin with counts
    ],
)
def test_what_cannot_be_read_is_said_with_its_line(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        read(text)


def test_a_prompt_may_fill_the_context() -> None:
    assert len(read("x" * 47)[0].tokens) == TINY.n_ctx


def test_what_both_answers_begin_with_is_part_of_the_prompt() -> None:
    (one,) = read("a:\t 10\t 12\tb:")
    assert one == Prompt("a: 1", (0, *ids("a: 1")), Target((ids("0")[0], ids("2")[0])), False, (0, *ids("b: 1")), 2)
    (longer,) = read("a\t 1\t 234")
    assert (longer.target.tokens, longer.longer, longer.moved) == ((ids("1")[0], ids("2")[0]), True, 1)
    (alone,) = read("a\t 1")
    assert (alone.text, alone.moved, alone.longer) == ("a", 0, True), "one answer has nothing in common with another"
    (accents,) = read("a\té\tè")  # two bytes each, of which the first is the same and no text
    assert accents.tokens == (0, *ids("a"), ids("é")[0]) and accents.target.tokens == (ids("é")[1], ids("è")[1])


def test_a_fifth_field_is_where_the_answer_comes_from(small: tuple[Tokenizer, ModelConfig]) -> None:
    (one,) = read("no no\t 10\t 12\t\tno")
    assert one.source == (4, 5) and one.moved == 2, "the last of two places, behind BOS"
    assert read("ab\tc")[0].source == ()
    (part,) = read_prompts("the mill\tx\t\t\tmi", "set", *small)
    words = [small[0].decode((token,)) for token in part.tokens]
    assert "".join(words[i] for i in part.source).strip().startswith("mi"), words
    for line, prompt in zip(lines_of(shipped("translation")), read_prompts(shipped("translation"), "set", *small), strict=True):
        said = small[0].decode(tuple(prompt.tokens[i] for i in prompt.source))
        assert said == line[1][4], "whole tokens"


def test_an_empty_prompt_needs_a_bos() -> None:
    assert read("\ta")[0].tokens == (0,)
    with pytest.raises(BadInput, match="does not fit"):
        read("\ta", ModelConfig(1, 1, 4, 4, 260, 8))


def test_a_model_that_reads_no_text() -> None:
    with pytest.raises(BadInput, match="no tokenizer"):
        read_prompts("a", "set.tsv", None, TINY)


# -- what is shipped -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small() -> tuple[Tokenizer, ModelConfig]:
    folder = model_dir("attn-only-2l")
    config = json.loads((folder / "config.json").read_text())
    config.pop("format")
    return Tokenizer.from_file(folder / "tokenizer.json"), ModelConfig.from_json(config)


def _gpt2() -> Path:
    return Path(__file__).parents[3] / "shared" / "tokenizers" / "gpt2" / "tokenizer.json"


def shipped(kind: str) -> str:
    return (FOLDER / f"{kind}.tsv").read_text(encoding="utf-8")


def test_every_kind_is_there() -> None:
    assert sorted(p.stem for p in FOLDER.iterdir() if p.suffix in (".tsv", ".txt")) == sorted(KINDS)


def _suits(kind: str, tokenizer: Tokenizer, whole: bool = True) -> None:
    """Answers begin with different tokens, and text and answer together have the tokens of both; `whole`: they are one token."""
    for number, (text, *rest) in lines_of(shipped(kind)):
        answers = rest[:2]
        before = tokenizer.encode(text)
        one = [tokenizer.encode(answer) for answer in answers]
        assert not whole or [len(o) for o in one] == [1, 1], (kind, number, answers)
        assert len({o[0] for o in one}) == 2, (kind, number, answers)
        assert all(tokenizer.encode(text + a) == (*before, *o) for a, o in zip(answers, one, strict=True)), (kind, number)


@pytest.mark.parametrize("kind", KINDS)
def test_shipped_sets_suit_the_shipped_model(kind: str, small: tuple[Tokenizer, ModelConfig]) -> None:
    result = read_prompts(shipped(kind), kind, *small)
    assert 12 <= len(result) <= 30
    assert all(
        len(p.target.tokens) == 2 and (kind in (*COPIES, NAMES) or not p.longer) for p in result
    )  # half of their words are split
    assert len({p.text for p in result}) == len(result)
    assert shipped(kind).startswith("# ")
    assert {p.tokens[0] for p in result} == {small[0].bos}
    _suits(kind, small[0], whole=kind not in (*COPIES, NAMES))


@pytest.mark.parametrize("kind", KINDS)
def test_shipped_sets_suit_gpt2(kind: str) -> None:
    path = _gpt2()
    if not path.is_file():
        pytest.skip("needs ../shared/tokenizers/gpt2")
    _suits(kind, Tokenizer.from_file(path), whole=kind != NAMES)


def test_names_are_repeated_as_the_header_says() -> None:
    first = 0
    for _, (text, receiver, giver, other) in lines_of(shipped("names_repeated")):
        assert (text.count(receiver[1:]), text.count(giver[1:])) == (1, 2)
        assert (other.count(receiver[1:]), other.count(giver[1:])) == (2, 1)
        first += text.index(receiver[1:]) < text.index(giver[1:])
    assert first == len(lines_of(shipped("names_repeated"))) / 2


@pytest.mark.parametrize("path", [model_dir("attn-only-2l") / "tokenizer.json", _gpt2()], ids=["shipped", "gpt2"])
@pytest.mark.parametrize("kind", COPIES)
def test_copies_are_decided_by_as_many_tokens_as_the_header_says(kind: str, path: Path) -> None:
    if not path.is_file():
        pytest.skip("needs ../shared/tokenizers/gpt2")
    tokenizer = Tokenizer.from_file(path)
    assert len(lines_of(shipped(kind))) == 24
    for number, (text, answer, _) in lines_of(shipped(kind)):
        tokens, first = tokenizer.encode(text), tokenizer.encode(answer)[0]
        before = [i for i, token in enumerate(tokens[:-1]) if token == tokens[-1]]
        followers = {tokens[i + 1] for i in before}
        assert first in followers, (kind, number)
        if kind == "literal_copying_two_tokens":
            assert len(followers) > 1, number
            longest = max(before, key=lambda i: _common(tokens, i))
            assert tokens[longest + 1] == first and _common(tokens, longest) >= 2, number
        else:
            assert len(before) == 1, (kind, number)


@pytest.mark.parametrize("path", [model_dir("attn-only-2l") / "tokenizer.json", _gpt2()], ids=["shipped", "gpt2"])
def test_names_said_again_have_several_tokens_and_follow_their_titles(path: Path) -> None:
    if not path.is_file():
        pytest.skip("needs ../shared/tokenizers/gpt2")
    tokenizer = Tokenizer.from_file(path)
    lines = lines_of(shipped(NAMES))
    assert len(lines) == 24 == len({answer for _, (_, answer, _) in lines})
    for number, (text, answer, other) in lines:
        spelled, title = tokenizer.encode(answer), text.split(" ")[-1]
        assert len(spelled) > 1 and len(tokenizer.encode(other)) > 1, number
        assert text.count(f" {title}{answer}") == text.count(answer[1:]) == 1 and other[1:] not in text, number
        tokens, said = tokenizer.encode(text), (*tokenizer.encode(f" {title}"), *spelled)
        assert any(tokens[i : i + len(said)] == said for i in range(len(tokens))), (number, "as it will come again")


def _common(tokens: tuple[int, ...], end: int) -> int:
    """How many tokens up to `end` are those at the end of the text."""
    same = 0
    while same <= end and tokens[end - same] == tokens[-1 - same]:
        same += 1
    return same


def test_copied_and_pattern_answers_follow_from_the_prompt() -> None:
    for kind in COPIES:
        for _, (text, answer, _) in lines_of(shipped(kind)):
            assert text.split(" ")[-1].lower() + answer.lower() in text.lower(), text
    for _, (text, answer, other) in lines_of(shipped("pattern_matching")):
        *shown, asked = text.split("\n")
        assert answer != other
        assert sorted(line[-1] for line in shown) == sorted("00112233")
        for line in (*shown, asked + answer):
            first, second, number = line.replace(":", "").split()
            assert int(number) == 2 * (first not in _MONTHS) + (second in _FRUITS), line


_MONTHS = "January February March April May June July August September October November December".split()
_FRUITS = "apple pear plum cherry fig grape lemon peach".split()


def test_random_words_are_those_of_the_seed() -> None:
    text = shipped("random_tokens")
    words = [w for line in text.splitlines() if line.startswith("# words: ") for w in line.removeprefix("# words: ").split()]
    rng = np.random.default_rng(0)
    for _, fields in lines_of(text):
        block = [str(w) for w in rng.choice(words, 20, replace=False)]
        answer = block[int(rng.integers(5, 19))]
        other = str(rng.choice([w for w in block if w != answer]))
        twice = " " + " ".join(block + block[: block.index(answer)])
        assert fields == (twice, f" {answer}", f" {other}")


def test_samples_have_one_of_every_kind_and_fit_the_shipped_model(small: tuple[Tokenizer, ModelConfig]) -> None:
    data = tomllib.loads((FOLDER / "samples.toml").read_text(encoding="utf-8"))["samples"]
    texts = [s["text"] for s in data]
    assert len({s["title"] for s in data}) == len(data) == len(set(texts))
    assert all(0 < len(small[0].encode(t)) < small[1].n_ctx for t in texts)
    for kind in set(KINDS) - {"pattern_matching"}:
        assert {text for _, (text, *_) in lines_of(shipped(kind))} & set(texts), kind
    assert any("pear: 1" in t for t in texts)


# -- targets as text -------------------------------------------------------------------------------------------------------

numbers = st.floats(allow_nan=False, allow_infinity=False)
targets = st.builds(Target, st.lists(st.integers(0, 10**6), max_size=2).map(tuple)) | st.builds(
    lambda d: Target(direction=tuple(d)), st.lists(numbers, min_size=1, max_size=4)
)


@given(targets)
def test_a_target_is_read_back(target: Target) -> None:
    assert Target.parse(str(target)) == target
    assert parse(Target, as_text(target), "target") == target
    assert from_json(Target, json.loads(json.dumps(to_json(target), allow_nan=False))) == target


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("next", Target()),
        ("", Target()),
        (" 12 ", Target((12,))),
        ("12-34", Target((12, 34))),
        ("direction:1", Target((), (1.0,))),
    ],
)
def test_targets_as_a_person_types_them(text: str, target: Target) -> None:
    assert Target.parse(text) == target


@pytest.mark.parametrize("text", ["x", "1-2-3", "-5", "1-", "1.5", "direction:", "direction:nan", "direction:1;inf", "12 34"])
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(UsageError, match="target"):
        Target.parse(text)


@pytest.mark.parametrize("data", [3, "next", {"tokens": ["a"]}, {"token": [1]}, {"direction": [float("inf")]}])
def test_what_is_no_target_in_json(data: Any) -> None:
    with pytest.raises(UsageError):
        from_json(Target, data)


def test_a_fourth_field_is_the_prompt_that_is_patched_from(small: tuple[Tokenizer, ModelConfig]) -> None:
    assert lines_of("a\tb\tc\td e") == [(1, ("a", "b", "c", "d e"))]
    (one,) = read("ab\tc\td\tab b")
    assert one.other == (*one.tokens, *ids(" b"))
    tokenizer, config = small
    result = read_prompts(shipped("names_repeated"), "names", tokenizer, config)
    assert all(p.other and p.other != p.tokens for p in result)
