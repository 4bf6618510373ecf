"""The order of the axes of the weights in a TransformerLens-like file, inferred from their shapes.

Today's order is ours: W_E [d_vocab, d_model], W_pos [n_ctx, d_model], W_U [d_model, d_vocab_out], W_Q, W_K, W_V [head, d_model,
d_head], W_O [head, d_head, d_model], W_in, W_gate [d_model, d_mlp], W_out [d_mlp, d_model]. Older code (2021, 2022) stored some
of them as [out, in], and heads flat in one axis. A tensor's order is determined if only one of its axes has the stream's width.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from circuitlab.errors import BadModel
from circuitlab.model.loading.assumptions import Assumed

# Which of a weight's last two axes is d_model today.
STREAM_AXIS = {"W_E": 1, "W_pos": 1, "W_U": 0, "W_Q": 0, "W_K": 0, "W_V": 0, "W_O": 1, "W_in": 0, "W_gate": 0, "W_out": 1}
_ORDERS = ("today's", "transposed")
_MAP = "Import it with a map of its parameter names: circuitlab import FILE --map map.toml."


@dataclass(frozen=True)
class Axes:
    """The stream's width, and which weights (`W_E` …) are stored with their last two axes exchanged."""

    d_model: int
    transposed: frozenset[str]


def short(name: str) -> str:
    """`blocks.0.attn._W_K` -> `W_K`."""
    return name.rpartition(".")[2].lstrip("_")


def _candidates(shapes: Mapping[str, tuple[int, ...]], vectors: Iterable[tuple[int, ...]], stated: int | None) -> list[int]:
    """Widths that the stream may have: that of every weight, and of the configuration or a vector over the stream, if any."""
    widths = {v[0] for v in vectors if len(v) == 1} | ({stated} if stated else set())
    common = set.intersection(*(set(shape[-2:]) for shape in shapes.values()))
    candidates = sorted(common & widths if widths else common)
    if not candidates:
        got = ", ".join(f"{n} {s}" for n, s in list(shapes.items())[:4])
        raise BadModel("The weights have no width in common.", expected="d_model in each of them", got=got, remedy=_MAP)
    return candidates


def axes(shapes: Mapping[str, tuple[int, ...]], vectors: Iterable[tuple[int, ...]], stated: int | None, ask: Assumed) -> Axes:
    """The order of the axes of the weights in `shapes` (name -> shape; of one layer and of the ends).

    `vectors`: shapes of biases and gains over the stream; `stated`: the width that a configuration states. Raises `BadModel`
    where neither shapes nor the person decide the order.
    """
    widths = _candidates(shapes, vectors, stated)
    today = [d for d in widths if all(_fits(name, shape, d) for name, shape in shapes.items())]
    if len(today) == 1 or (today and len(widths) == 1):
        return _as_today(shapes, today[0], stated, ask)
    if len(widths) > 1:
        raise BadModel(
            "The width of the stream cannot be inferred from the shapes.", expected="one of " + ", ".join(map(str, widths)),
            got="weights that fit each of them", remedy=f"Put a configuration beside the file. {_MAP}",
        )  # fmt: skip
    d = widths[0]
    old = {short(name) for name, shape in shapes.items() if not _fits(name, shape, d)}
    square = {short(name) for name, shape in shapes.items() if shape[-1] == shape[-2] == d}
    if not square:
        return Axes(d, frozenset(old))
    difference = f"{', '.join(sorted(old))} transposed; {', '.join(sorted(square))} square"
    if not ask.chosen("axes"):
        raise BadModel(
            "Some weights are stored transposed; whether square ones are, their shape does not say.",
            expected="an order that shapes decide",
            got=difference,
            remedy=f"State it for the square ones: --assume axes=transposed, or axes=today's. {_MAP}",
            asks={"axes": _ORDERS},
        )
    chosen = ask.choice("axes", "transposed", _ORDERS, difference)
    return Axes(d, frozenset(old | square if chosen == "transposed" else old))


def _fits(name: str, shape: tuple[int, ...], d: int) -> bool:
    return shape[-2:][STREAM_AXIS[short(name)]] == d


def _as_today(shapes: Mapping[str, tuple[int, ...]], d: int, stated: int | None, ask: Assumed) -> Axes:
    """Axes in today's order, which fits every weight; an assumption if the weights that could show another are square."""
    square = sorted({short(name) for name, shape in shapes.items() if shape[-1] == shape[-2]})
    attention = {"W_Q", "W_K", "W_V", "W_O"} & set(square)
    if stated or not attention:  # files with a configuration use today's order; weights of attention decide for square tables
        return Axes(d, frozenset())
    why = f"{', '.join(square)} have equal axes; read in today's order"
    chosen = ask.choice("axes", "today's", _ORDERS, why)
    return Axes(d, frozenset(square if chosen == "transposed" else ()))
