"""The names of the files of one GGUF model, which may lie in several: `NAME-00001-of-00003.gguf`."""

from __future__ import annotations

import re
from pathlib import Path

_PART, _MOST_PARTS = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL), 999


def parts_of(path: Path) -> tuple[Path, ...]:
    """All parts of a model of which `path` is one by its name (`NAME-00001-of-00003.gguf`), in order; else `path` alone."""
    match = _PART.fullmatch(path.name)
    if match is None or not 1 < int(match[3]) <= _MOST_PARTS:
        return (path,)
    return tuple(path.with_name(f"{match[1]}-{i + 1:05d}-of-{match[3]}.gguf") for i in range(int(match[3])))
