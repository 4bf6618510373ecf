"""Tensors of a file that no part of the model uses: attention among them is refused.

A head in the file but not in the model would silently make every figure of the model false. So an unused tensor whose name speaks
of attention is an error if it could act at all: masks, tables of rotary angles, integers and biases that are zero everywhere
cannot.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from circuitlab.errors import BadModel
from circuitlab.model.files.tensors import WEIGHT_KINDS, TensorSource

# parts of a name that speak of attention: `attn_blocks`, `self_attn`, `sa`, `q_proj`, `W_K`, `key.weight`, `c_attn`, `to_q`
_ATTENTION = re.compile(
    r"attn|attention|(?:^|[._])(?:mha|sa|qkv|wqkv|query_key_value|in_proj|[qkvo]_?proj|to_[qkv]|_?[wb]_?[qkvo]|lin_[qkv])(?:[._]|$)"
    r"|(?:^|[._])(?:query|key|value|queries|keys|values)(?:[._](?:weight|bias))?$",
    re.IGNORECASE,
)
_TABLE = re.compile(r"mask|tril|triu|inv_freq|rotary|rope|freqs|(?:^|[._])(?:sin|cos|ignore)(?:[._]|cached|$)", re.IGNORECASE)
_LARGEST_ZERO = 2**20  # numbers of the largest bias that is read to see whether all are zero


def attention_among(source: TensorSource, names: Iterable[str]) -> tuple[str, ...]:
    """Those of `names` that are weights of attention, sorted."""
    return tuple(sorted(n for n in names if _ATTENTION.search(n) and not _TABLE.search(n) and _acts(source, n)))


def refuse_attention(source: TensorSource, unused: Iterable[str], no_layers: bool = False) -> None:
    """Raise `BadModel` where weights of attention are among the tensors that no part of the model uses.

    `no_layers`: in a model without layers any unused matrix may have belonged to a layer.
    """
    names = tuple(unused)
    left = attention_among(source, names)
    if no_layers and not left:
        left = tuple(sorted(n for n in names if len(source.shape(n)) > 1 and not _TABLE.search(n) and _acts(source, n)))
    if left:
        raise BadModel(
            "The file holds layers that are not part of the model it was read as."
            if no_layers
            else "The file holds attention that is not part of the model it was read as.",
            expected="a model without layers, and nothing else" if no_layers else "every weight of attention in its place",
            got=f"{len(left)} left over: {', '.join(left[:8])}{' …' if left[8:] else ''}",
            remedy="Import it with a map that says where they belong (or, under `ignore`, that they do not): "
            "circuitlab import FILE --map map.toml.",
        )


def _acts(source: TensorSource, name: str) -> bool:
    """Whether a tensor could change what a model computes."""
    shape = source.shape(name)
    if source.kind(name) not in WEIGHT_KINDS or not shape or 0 in shape:
        return False
    if len(shape) == 4 and shape[:2] == (1, 1) and shape[2] == shape[3]:  # a causal mask, as GPT-2's files have it
        return False
    is_bias = len(shape) == 1 or "b_" in name or "bias" in name
    return not (is_bias and math.prod(shape) <= _LARGEST_ZERO and not bool(source.tensor(name).any()))
