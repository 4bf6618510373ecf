"""Times for people: as the system writes them, and how long ago."""

from __future__ import annotations

import time

from PySide6.QtCore import QDateTime, QLocale

from circuitlab.counting import number_of


def moment(seconds: float) -> str:
    """A time as the person's system writes it; of today without the day."""
    when, locale = QDateTime.fromSecsSinceEpoch(round(seconds)), QLocale()
    short = QLocale.FormatType.ShortFormat
    clock = locale.toString(when.time(), short)
    return clock if when.date() == QDateTime.currentDateTime().date() else f"{locale.toString(when.date(), short)} {clock}"


def ago(seconds: float) -> str:
    """How long ago, in the largest unit that fits."""
    passed = max(0.0, time.time() - seconds)
    for unit, size in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if passed >= size:
            return f"{number_of(int(passed // size), unit)} ago"
    return "just now" if passed < 10 else f"{number_of(int(passed), 'second')} ago"
