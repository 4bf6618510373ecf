"""The sizes of a TransformerLens-like model, from the shapes of its tensors; a stated size that contradicts them is an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from circuitlab.disk.json_types import JsonObject
from circuitlab.errors import BadModel, quoted
from circuitlab.model.loading.assumptions import Assumed
from circuitlab.model.loading.hooked_axes import STREAM_AXIS, Axes, short
from circuitlab.model.loading.hooked_names import Names
from circuitlab.model.loading.huggingface import size


@dataclass(frozen=True)
class Sizes:
    """The sizes that the tensors' shapes show, under the names of `ModelConfig`."""

    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_model: int
    d_head: int
    d_vocab: int
    d_vocab_out: int
    d_mlp: int


def sizes_of(names: Names, file_axes: Axes, config: Mapping[str, object], ask: Assumed) -> Sizes:
    """The sizes of the model in a file. Raises `BadModel` where tensors of attention are missing or heads do not divide."""
    other = lambda name: _other_axis(names.shape(name), short(name), file_axes)
    n_heads, d_head = size(config, "n_heads", 1), size(config, "d_head", 1)  # for a model without layers
    n_kv = n_heads
    if names.n_layers:
        for part in ("W_Q", "W_K", "W_V", "W_O"):
            if names.attention(part) not in names:
                raise BadModel("The weights lack tensors.", expected=names.attention(part), got="blocks without it")
        n_heads, d_head = _heads(names, "Q", other, config, ask)
        keys = names.attention("W_K")
        n_kv = names.shape(keys)[0] if len(names.shape(keys)) == 3 else other(keys) // d_head
    W_in = "blocks.0.mlp.W_in"
    return Sizes(
        names.n_layers, n_heads, n_kv, file_axes.d_model, d_head, other("embed.W_E"), other("unembed.W_U"),
        other(W_in) if W_in in names else 0,
    )  # fmt: skip


def _other_axis(shape: tuple[int, ...], which: str, file_axes: Axes) -> int:
    """The length of the one of a weight's last two axes that is not the stream's."""
    axis = STREAM_AXIS[which] ^ (which in file_axes.transposed)
    return shape[-2:][1 - axis]


def _heads(names: Names, part: str, other: Callable[[str], int], config: JsonObject, ask: Assumed) -> tuple[int, int]:
    """(heads, columns of each): from an axis of heads, a bias, the configuration, or the person's assumption."""
    weight, bias = names.attention(f"W_{part}"), names.attention(f"b_{part}")
    if len(names.shape(weight)) == 3:
        return names.shape(weight)[0], other(weight)
    width = other(weight)
    if bias in names and len(names.shape(bias)) == 2:
        n = names.shape(bias)[0]
    elif isinstance(config.get("n_heads"), int):
        n = config["n_heads"]
    else:
        n = ask.size("n_heads", None, f"heads in an axis of their own; {weight} is {names.shape(weight)}")
    if n < 1 or width % n:
        raise BadModel("The heads do not divide their columns.", expected=f"a divisor of {width}", got=str(n))
    return n, width // n


def check_stated(config: Mapping[str, object], sizes: Sizes) -> None:
    """Raise `BadModel` where a stated size is not the tensors'."""
    for name in Sizes.__dataclass_fields__:
        stated, shown = config.get(name), getattr(sizes, name)
        if (name == "d_mlp" and not shown) or stated in (None, -1) or name == "n_kv_heads":
            continue
        if stated != shown:
            raise BadModel(f"The configuration's {name} contradicts the tensors.", expected=quoted(stated, 40), got=str(shown))
