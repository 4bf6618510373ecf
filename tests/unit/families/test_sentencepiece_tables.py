"""Tables of characters that are no tables, and what a vocabulary says of its unknown token."""

from __future__ import annotations

import random
import struct

import pytest

from circuitlab.model.text.sentencepiece_normaliser import LongestKeys, Normaliser, Rules
from tests.lines_run import lines_run


def test_a_table_that_leads_back_to_itself_is_refused() -> None:
    """Each of its 256 units is the child of every unit, so that every text would be a beginning of a key."""
    units = [(n << 10) | n | (0x100 if n > 127 else 0) for n in range(256)]
    table = struct.pack("<I", 4 * len(units)) + struct.pack(f"<{len(units)}I", *units) + b"a\0"
    with pytest.raises(ValueError, match="leads back to itself"):
        Normaliser(Rules(table))


@pytest.mark.parametrize("text", ["", "<", "a<pad>", "<pa<unk>d>", "no letter of it"])
def test_spellings_are_found_where_a_search_for_each_finds_one(text: str) -> None:
    keys = ("<pad>", "<unk>", "<padding>")
    assert any(True for _ in LongestKeys(keys).found(text)) == any(key in text for key in keys)


@pytest.mark.parametrize("alphabet", ["a", "ab", "ab<é🙂"])
def test_at_each_place_the_longest_key_is_found(alphabet: str) -> None:
    draw = random.Random(alphabet)
    word = lambda most: "".join(draw.choices(alphabet, k=draw.randint(1, most)))
    for _ in range(200):
        keys = {word(9) for _ in range(draw.randint(1, 50))} | {alphabet[0] * n for n in range(1, draw.choice((1, 30)))}
        look, text = LongestKeys(keys), word(60) + "x" + word(60)
        for at in range(len(text)):
            longest = max((len(key) for key in keys if text.startswith(key, at)), default=0)
            assert look.at(text, at) == longest, (sorted(keys), text[at:])


@pytest.mark.parametrize("end", ["", "b"])
def test_a_place_costs_no_more_where_thousands_of_keys_begin_alike(end: str) -> None:
    """As `<`, `<<`, `<<<` and so on; a text of them that none fits cost minutes."""
    text = ("<" * 5 + "a") * 100 + "<" * 500
    few, many = (LongestKeys("<" * n + end for n in range(1, most)) for most in (16, 4000))
    cost = lines_run(lambda: list(few.found(text)))
    assert lines_run(lambda: list(many.found(text))) < 12 * cost
