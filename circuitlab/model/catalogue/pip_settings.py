"""Which package indexes this Python's pip asks, as its configuration and its environment variables say."""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from circuitlab.child_process import finished, python

PUBLIC = "https://pypi.org/simple"
_WITHIN = 20.0  # s for pip to say what it is configured to
_SECTIONS = ("global", "download", ":env:")  # a later one comes before an earlier one
_LINE = re.compile(r"(global|download|:env:)\.([a-z-]+)=(.*)")


@dataclass(frozen=True)
class PipSettings:
    """`indexes`: addresses on the web that can be asked without a password; `folders`: places of files on this machine.

    `others`: whether pip knows more than these, such as an index with a password, which it alone can ask.
    """

    indexes: tuple[str, ...] = (PUBLIC,)
    folders: tuple[Path, ...] = ()
    others: bool = False


def pip_settings() -> PipSettings:
    """What pip is configured to; where there is no pip, what the environment variables say."""
    return _settings(tuple(sorted((key, value) for key, value in os.environ.items() if key.startswith("PIP_"))))


@lru_cache(maxsize=4)
def _settings(environ: tuple[tuple[str, str], ...]) -> PipSettings:
    try:
        status, out, _ = finished(python("-m", "pip", "config", "list", "--disable-pip-version-check"), _WITHIN)
    except (OSError, subprocess.TimeoutExpired):
        status, out = 1, ""
    if status != 0:
        out = "\n".join(f":env:.{key.removeprefix('PIP_').lower().replace('_', '-')}={value!r}" for key, value in environ)
    return settings_of(out)


def settings_of(listing: str) -> PipSettings:
    """The settings in what `pip config list` prints."""
    values = _values(listing)
    public = (
        []
        if _is_on(values.get("no-index", ""))
        else [values.get("index-url", PUBLIC), *values.get("extra-index-url", "").split()]
    )
    web: list[str] = []
    folders: list[Path] = []
    others = False
    for index in public:
        scheme, netloc, path = urlsplit(index)[:3]
        if scheme in ("http", "https") and "@" not in netloc:
            web.append(index.rstrip("/"))
        elif scheme == "file":
            folders.append(Path(unquote(path)))
        else:
            others = True
    for place in values.get("find-links", "").split():
        if "://" not in place or place.startswith("file://"):
            folders.append(Path(unquote(urlsplit(place).path)))
        else:
            others = True
    return PipSettings(tuple(dict.fromkeys(web)), tuple(folders), others)


def _values(listing: str) -> Mapping[str, str]:
    """Each setting, as the section that counts most says it."""
    result: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for line in listing.splitlines():
        if (match := _LINE.fullmatch(line.strip())) is not None:
            try:
                value = ast.literal_eval(match[3])
            except (ValueError, SyntaxError, MemoryError, RecursionError):
                continue
            result[match[1]][match[2]] = str(value)
    return {key: value for section in _SECTIONS for key, value in result[section].items()}


def _is_on(text: str) -> bool:
    return text.strip().lower() in ("1", "y", "yes", "t", "true", "on")
