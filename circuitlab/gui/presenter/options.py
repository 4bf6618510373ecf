"""How a talk is given: on which screen, from which step, on which ground, for how long. Remembered for the next one."""

from __future__ import annotations

from dataclasses import dataclass, replace

from circuitlab.gui.work.settings import settings_file

MOST_MINUTES = 600


@dataclass(frozen=True)
class TalkOptions:
    """`screen`: the name of the stage's, "" for one that is not the speaker's; `windowed`: not over all of it.

    `first`: the step to begin with, counted from 0; `dark`: on a black ground; `minutes`: of the talk, 0 without an end.
    """

    screen: str = ""
    windowed: bool = False
    first: int = 0
    dark: bool = False
    minutes: int = 20


def remembered(remember: bool = True) -> TalkOptions:
    """Those of the last talk, from its first step."""
    file = settings_file() if remember else None
    if file is None:
        return TalkOptions()
    minutes = str(file.value("presenter/minutes", TalkOptions.minutes))
    return TalkOptions(
        screen=str(file.value("presenter/screen", "")),
        windowed=str(file.value("presenter/windowed", "")) == "true",
        dark=str(file.value("presenter/dark", "")) == "true",
        minutes=min(int(minutes), MOST_MINUTES) if minutes.isdecimal() else TalkOptions.minutes,
    )


def remember(options: TalkOptions) -> None:
    """Keep them for the next talk, but for the step."""
    file, now = settings_file(), replace(options, first=0)
    for name in ("screen", "windowed", "dark", "minutes"):
        value = getattr(now, name)
        file.setValue(f"presenter/{name}", str(value).lower() if isinstance(value, bool) else value)
