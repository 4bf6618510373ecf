"""How a training series was measured (`SeriesMeasures.protocol`), as numbers and as words for captions.

`training/measured_texts.py` writes it. A series may leave entries out: then nothing is claimed about them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from circuitlab.analysis.behaviour.in_context import windows
from circuitlab.caption_parts import About, Part, Sense
from circuitlab.model.records.series_measures import SeriesMeasures

_KINDS = ("float16", "bfloat16", "float32", "float64")
_RANDOM, _BRIEF = "{samples} × {block} random tokens × 2, seed {seed}", "{samples} × {block} × 2"
WIDTH = 10  # indices averaged at either end of a text if the series does not state them


def indices_of(m: SeriesMeasures) -> tuple[int, int, int, int]:
    """(first, last) early and (first, last) late positions that the series states, else those that `in_context` would use."""
    last = m["loss_by_index"].shape[1]
    ends = [v for name in ("early", "late") for v in _list(m.protocol.get(name))]
    if len(ends) == 4 and all(type(v) is int and 1 <= v <= last for v in ends) and ends == sorted(ends):
        return ends[0], ends[1], ends[2], ends[3]
    early, late = windows(last + 1, 0, 0, WIDTH)
    return *early, *late


def texts_of(m: SeriesMeasures) -> tuple[int, str]:
    """(number of texts with a recorded per-token loss, their sha256, "" if the series does not state it)."""
    hashes = m.protocol.get("sha256")
    return m["token_loss"].shape[1], str(hashes.get("tokens", "")) if isinstance(hashes, dict) else ""


def words_on_sequences(m: SeriesMeasures) -> list[str]:
    """The data on which losses by index, in-context scores and head scores were measured."""
    say = _formatter(m)
    return [
        *say("{texts} held-out texts of {context} tokens"),
        *(Part(words, Sense(About.SAMPLE, brief=brief)) for words in say(_RANDOM) for brief in say(_BRIEF)),
        *say("repeated text: pieces of {half} tokens × 2"),
        *([f"measured in {kind}"] if (kind := m.protocol.get("dtype")) in _KINDS else []),
    ]


def words_on_tokens(m: SeriesMeasures) -> list[str]:
    """The data on which the per-token losses were measured."""
    return _formatter(m)(
        "the token at position {tokens_position} of each of {tokens:,} held-out texts, drawn by seed {tokens_seed}"
    )


def _formatter(m: SeriesMeasures) -> Callable[[str], list[str]]:
    numbers = {k: v for k, v in m.protocol.items() if isinstance(v, int) and not isinstance(v, bool)}

    def say(words: str) -> list[str]:
        try:
            return [words.format(**numbers)]
        except KeyError:
            return []

    return say


def _list(value: object) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []
