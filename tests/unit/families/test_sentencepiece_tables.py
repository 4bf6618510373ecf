"""Tables of characters that are no tables, and what a vocabulary says of its unknown token."""

from __future__ import annotations

import struct

import pytest

from circuitlab.model.text.sentencepiece_normaliser import LongestKeys, Normaliser, Rules


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
