"""The tensors of a file in a few lines: one line for all layers, with shape and number."""

from __future__ import annotations

import re

from circuitlab.model.files.tensors import TensorSource

_MOST = 40
_NUMBER = re.compile(r"(?<![A-Za-z0-9_])\d+(?![A-Za-z0-9_])")


def listed(source: TensorSource, most: int = _MOST) -> tuple[tuple[str, ...], int]:
    """Lines such as `h.{i}.attn.weight [64, 64] float32, 12 of them`, at most `most`; and the number of tensors.

    A second number within a name is `{h}`, as in a map of `circuitlab import`; different shapes get separate lines.
    """
    groups: dict[tuple[str, tuple[int, ...], str], int] = {}
    names = sorted(source.names(), key=lambda n: [int(p) if p.isdecimal() else p for p in re.split(r"(\d{1,9})", n)])
    for name in names:
        letters = iter("ih")
        pattern = _NUMBER.sub(lambda m, left=letters: "{" + c + "}" if (c := next(left, "")) else m[0], name)
        key = (pattern, source.shape(name), source.kind(name))
        groups[key] = groups.get(key, 0) + 1
    lines = [_line(pattern, shape, kind, n) for (pattern, shape, kind), n in groups.items()]
    more = (f"and {len(lines) - most} more kinds",) if len(lines) > most else ()
    return (*lines[:most], *more), len(names)


def _line(pattern: str, shape: tuple[int, ...], kind: str, n: int) -> str:
    sizes = f"[{', '.join(map(str, shape))}]"
    return f"{pattern[:120]} {sizes} {kind}" + (f", {n} of them" if n > 1 else "")
