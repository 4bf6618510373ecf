"""Numbers in words: every count, sign and probability that a person reads is formatted here, so that none is "1 tokens"."""

from __future__ import annotations

_ZERO = set("+-0.,%")


def number_of(n: int, one: str, many: str = "") -> str:
    """ "1 token", "2 tokens", "4,096 tokens". `many`: the plural where it is irregular, with whatever else changes with it."""
    return f"{n:,} {one if n == 1 else many or f'{one}s'}"


def ranked(rank: int, equal: int = 1, among: int = 0) -> str:
    """ "rank 3", of equals "rank 1 of 5 equal"; with how many there are "rank 3 of 144", "rank 1 of 5 equal, among 144".

    `rank` from 1; "no rank" for one below. `equal`: how many have this value, itself included; below 1: nobody counted.
    """
    if rank < 1:
        return "no rank"
    tied = f" of {equal:,} equal" if equal > 1 else ""
    return f"rank {rank:,}{tied}" + (f"{',' * bool(tied)} {'among' if tied else 'of'} {among:,}" if among else "")


def number(value: object, spec: str = ".2f") -> str:
    """A number as it is read, with a typographic minus, also in an exponent; one that is rounded to zero has no sign.

    `value`: Python's or numpy's. `spec`: Python's format; a change has "+" in it.
    """
    text = f"{value:{spec}}"
    return (text.lstrip("+-") if set(text) <= _ZERO else text).replace("-", "−")


def probability(value: float, digits: int = 4) -> str:
    """A probability or a share: a small one has two significant figures, 3.1e−05, and is never written as zeros."""
    return "0" if value == 0 else number(value, ".2g" if 0 < value < 0.5 * 10.0**-digits else f".{digits}f")


def below_whole(value: float, digits: int = 2) -> str:
    """A number that is not ±1 but would round to it with more digits, so that 0.997 is not read as 1.00; another as usual."""
    while abs(value) < 1 and float(f"{abs(value):.{digits}f}") == 1 and digits < 9:
        digits += 1
    return number(value, f".{digits}f")
