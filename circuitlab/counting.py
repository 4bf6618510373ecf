"""Numbers in words: every count, sign and probability that a person reads is formatted here, so that none is "1 tokens"."""

from __future__ import annotations

from decimal import Decimal
from math import isfinite

_ZERO = set("+-0.,%")
FURTHER_DIGITS = 3  # that two numbers and their change may have beyond those asked for, until they agree


def number_of(n: int, one: str, many: str = "") -> str:
    """ "1 token", "2 tokens", "4,096 tokens". `many`: the plural where it is irregular, with whatever else changes with it."""
    return f"{n:,} {one if n == 1 else many or f'{one}s'}"


def ranked(rank: int, equal: int = 1, among: int = 0) -> str:
    """ "rank 3", of equals "rank 7, 5 equal"; with how many there are "rank 3 of 144", "rank 7 of 144, 5 equal".

    `rank` from 1; "no rank" for one below. `equal`: how many have this value, itself included; below 1: nobody counted.
    """
    if rank < 1:
        return "no rank"
    return f"rank {rank:,}{f' of {among:,}' * bool(among)}{f', {equal:,} equal' * bool(equal > 1)}"


def number(value: object, spec: str = ".2f") -> str:
    """A number as it is read, with a typographic minus, also in an exponent; one that is rounded to zero has no sign.

    `value`: Python's or numpy's. `spec`: Python's format; a change has "+" in it.
    """
    text = f"{value:{spec}}"
    return (text.lstrip("+-") if set(text) <= _ZERO else text).replace("-", "−")


def before_and_after(before: float, after: float, digits: int = 3) -> tuple[str, str, str]:
    """Two numbers and the change from one to the other, each rounded right, so that the three shown agree to the last digit.

    Where 3.6676 and 3.8124 would read 3.668, 3.812 and +0.145, all three have one digit more; likewise where a change would read
    as none. After `FURTHER_DIGITS` more the change is that of the shown numbers, and one too small for these digits has two
    significant figures: +2.1e−08.
    """
    change = after - before
    if not isfinite(change):
        return number(before, f".{digits}f"), number(after, f".{digits}f"), number(change, f".{digits}f")
    n, shown = digits, _rounded((before, after, change), digits)
    while n < digits + FURTHER_DIGITS and (shown[1] - shown[0] != shown[2] or (change and not shown[2])):
        n += 1
        shown = _rounded((before, after, change), n)
    shown_change = shown[1] - shown[0]
    words = number(shown_change, f"+.{n}f") if shown_change or not change else number(change, "+.2g")
    return number(before, f".{n}f"), number(after, f".{n}f"), words


def _rounded(values: tuple[float, ...], digits: int) -> tuple[Decimal, ...]:
    return tuple(Decimal(f"{value:.{digits}f}") for value in values)


def probability(value: float, digits: int = 4) -> str:
    """A probability or a share: a small one has two significant figures, 3.1e−05, and is never written as zeros."""
    return "0" if value == 0 else number(value, ".2g" if 0 < value < 0.5 * 10.0**-digits else f".{digits}f")


def below_whole(value: float, digits: int = 2) -> str:
    """A number that is not ±1 but would round to it with more digits, so that 0.997 is not read as 1.00; another as usual."""
    while abs(value) < 1 and float(f"{abs(value):.{digits}f}") == 1 and digits < 9:
        digits += 1
    return number(value, f".{digits}f")
