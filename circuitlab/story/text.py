"""A step's Markdown with its numbers filled in, and its links into the window."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from circuitlab.counting import number_of

LINK = Literal["panel", "head", "checkpoint", "lesson", "value"]
PLACE = re.compile(r"\{([a-z][a-z0-9_]*)\}")
_LINK = re.compile(r"\[[^\[\]]*+\]\((\w++):([^)\s]{0,500}+)\)")  # passes few characters twice, whatever follows
_CODE = re.compile(r"(```.*?```|`[^`\n]+`)", re.DOTALL)
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+\-.!|~&])")
LONGEST_WORD = 1000  # characters: what lays text out takes minutes for a word of 80,000
_LONG = re.compile(rf"(?<!\S)(\S{{{LONGEST_WORD}}})(\S++)")
PENDING = "…"


def escaped(text: str) -> str:
    """Text escaped for Markdown: a token may contain any character."""
    return _SPECIAL.sub(r"\\\1", text.replace("\n", "↵"))


def links(text: str) -> tuple[tuple[str, str], ...]:
    """(kind, where) of every link of a text."""
    return tuple((kind, where) for kind, where in _LINK.findall(text))


def with_short_words(text: str) -> str:
    """The text with what is left out of each endless word said in its place."""
    return _LONG.sub(lambda match: f"{match[1]}… ({number_of(len(match[2]), 'more character')})", text)


def fill_text(text: str, words: Mapping[str, str], values: Mapping[str, str]) -> str:
    """Markdown with each `{name}` replaced: `words` as they are, `values` as links `value:name`, which show tooltips.

    Inside code nothing is escaped, and nothing becomes a link. What a word has beyond `LONGEST_WORD` is counted, not shown.
    """

    def prose(match: re.Match[str]) -> str:
        name = match[1]
        if name in values:
            return f"[{escaped(values[name])}](value:{name})"
        return escaped(words[name]) if name in words else match[0]

    def code(match: re.Match[str]) -> str:
        return values.get(match[1], words.get(match[1], match[0])).replace("`", "ˋ")

    parts = _CODE.split(with_short_words(text))
    return "".join(PLACE.sub(code if i % 2 else prose, part) for i, part in enumerate(parts))
