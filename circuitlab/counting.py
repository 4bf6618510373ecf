"""Counts in words: every count that a person reads is formatted here, so that none of them is "1 tokens"."""

from __future__ import annotations


def number_of(n: int, one: str, many: str = "") -> str:
    """ "1 token", "2 tokens", "4,096 tokens". `many`: the plural where it is irregular, with whatever else changes with it."""
    return f"{n:,} {one if n == 1 else many or f'{one}s'}"
