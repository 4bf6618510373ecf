"""Whether the unembedding is the embedding. Where a file holds a table for each, their numbers decide, as in `transformers`:
training may have parted what a configuration still calls tied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from circuitlab.disk.json_types import JsonObject
from circuitlab.model.files.tensors import WEIGHT_KINDS, TensorSource
from circuitlab.model.loading.layout import UNEMBEDDINGS

_EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight", "tokens_embed.weight")
_TIED = "tie_word_embeddings"


def untied_by_tensors(config: JsonObject, source: TensorSource) -> tuple[JsonObject, tuple[str, ...]]:
    """The configuration, untied where the tensors are two tables of different numbers, and a note on that."""
    inner = config.get("text_config")
    inner = inner if isinstance(inner, Mapping) else {}
    if {**config, **inner}.get(_TIED) is False:
        return config, ()
    names = source.names()
    table = _only(n for n in names if any(n == end or n.endswith(f".{end}") for end in _EMBEDDINGS))
    head = _only(n for n in UNEMBEDDINGS if n in names)
    if not table or not head or _same(source, table, head):
        return config, ()
    untied = {**config, _TIED: False} | ({"text_config": {**inner, _TIED: False}} if inner else {})
    return untied, (f"the unembedding is {head}, whose numbers are not the embedding's: the two are not tied",)


def _only(names: Iterable[str]) -> str:
    """The one name, "" where there is none or there are several."""
    several = list(names)
    return several[0] if len(several) == 1 else ""


def _same(source: TensorSource, table: str, head: str) -> bool:
    """Whether two names stand for the same numbers, or cannot: what does not fit is said where the model is laid out."""
    plain = source.kind(table) in WEIGHT_KINDS and source.kind(head) in WEIGHT_KINDS
    if not plain or source.shape(table) != source.shape(head) or source.alias(table) == source.alias(head):
        return True
    return torch.equal(source.copy(table), source.copy(head))
