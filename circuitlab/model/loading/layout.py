"""Where a checkpoint stores each canonical tensor: one declaration per family, from which reading, checks and reports follow.

    Layout(ends={"embed.W_E": stored("wte.weight")}, block={"W_Q": linear("self_attn.q_proj").heads("q"), …})

A `Stored` names one tensor of the file (`{i}` stands for the layer) and the views that turn it into the canonical one. Views are
not copied where the storage allows it. Shapes are checked from the header alone, by applying the same steps to tensors without
data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from circuitlab.counting import number_of
from circuitlab.errors import BadModel
from circuitlab.model.config import ModelConfig
from circuitlab.model.files.tensors import TensorSource, check_kind, copied
from circuitlab.model.lazy_weights import Named, expected_shapes, need_names
from circuitlab.model.loading.leftovers import refuse_attention

UNEMBEDDINGS = ("lm_head.weight", "embed_out.weight", "language_model.lm_head.weight")  # whole names

Step = Callable[[ModelConfig, Tensor], Tensor]
Which = Literal["q", "k", "v", "o"]


class Misfit(ValueError):
    """A step that does not apply to a tensor of this shape: what it needs, and the shape."""


def _check_axes(x: Tensor, n: int, what: str) -> None:
    if x.dim() < n:
        raise Misfit(f"{what} would need {number_of(n, 'axis', 'axes')}, and {tuple(x.shape)} has {x.dim()}")


def _split_axis(x: Tensor, axis: int, sizes: tuple[int, ...], what: str) -> Tensor:
    """`x` with one axis split into axes of these sizes."""
    needed, shape = math.prod(sizes), tuple(x.shape)
    if shape[axis] != needed:
        raise Misfit(f"{what} would need {needed} along axis {axis % x.dim()}, and {shape} has {shape[axis]}")
    return x.unflatten(axis, sizes)


@dataclass(frozen=True)
class Stored:
    """One tensor of a checkpoint and the steps from its layout to ours. Immutable: every method returns one with a further step.

    `others` are further stored tensors, each with steps of its own, that `join` combines with this one. Without a `name` nothing
    is stored, and the first step creates the tensor.
    """

    name: str
    steps: tuple[Step, ...] = ()
    others: tuple[Stored, ...] = ()
    join: Callable[..., Tensor] | None = None

    def then(self, step: Step) -> Stored:
        """One more step, (config, tensor) -> tensor."""
        return replace(self, steps=(*self.steps, step))

    def joined(self, others: Iterable[Stored], join: Callable[..., Tensor]) -> Stored:
        """`join(self, *others)` of several stored tensors (a product, a stack), after the steps of each."""
        return replace(self, others=tuple(others), join=join)

    @property
    def T(self) -> Stored:
        """[out, in] -> [in, out]: torch's `Linear` stores the transpose of our row-vector form."""

        def transposed(c: ModelConfig, x: Tensor) -> Tensor:
            _check_axes(x, 2, "a transpose")  # for a vector `.T` would only warn
            return x.transpose(0, 1)

        return self.then(transposed)

    def heads(self, which: Which) -> Stored:
        """Split by head: q, k, v [d_model, head · d_head] -> [head, d_model, d_head]; o [head · d_head, d_model] ->
        [head, d_head, d_model]; a vector [head · d_head] -> [head, d_head]."""

        def split(c: ModelConfig, x: Tensor) -> Tensor:
            n = c.n_kv_heads if which in "kv" else c.n_heads
            heads = f"{number_of(n, 'head')} of {c.d_head}"
            _check_axes(x, 1, heads)
            if x.dim() == 1 or which == "o":
                return _split_axis(x, 0, (n, c.d_head), heads)
            return _split_axis(x, 1, (n, c.d_head), heads).movedim(1, 0)

        return self.then(split)

    def beside(self, which: Which) -> Stored:
        """The q, k or v columns of [..., q | k | v], stored side by side, each as wide as its heads."""

        def columns(c: ModelConfig, x: Tensor) -> Tensor:
            q, kv = c.n_heads * c.d_head, c.n_kv_heads * c.d_head
            if x.shape[-1] != q + 2 * kv:  # a slice would silently take fewer columns
                raise Misfit(f"{number_of(q + 2 * kv, 'column')} for q, k and v, not {x.shape[-1]}")
            start = {"q": 0, "k": q, "v": q + kv}[which]
            return x[..., start : start + (q if which == "q" else kv)]

        return self.then(columns)

    def within_heads(self, which: Which) -> Stored:
        """The q, k or v part of [..., kv_head · (its queries | k | v) · d_head], stored head by head."""

        def part(c: ModelConfig, x: Tensor) -> Tensor:
            what = f"queries, key and value of {number_of(c.n_kv_heads, 'head')}"
            by_head = _split_axis(x, -1, (c.n_kv_heads, c.group + 2, c.d_head), what)
            columns = by_head[..., :-2, :] if which == "q" else by_head[..., -2 if which == "k" else -1, :][..., None, :]
            return columns.flatten(-3)

        return self.then(part)

    def half(self, k: int) -> Stored:
        """The k-th of two equal halves of the last axis (gate and up side by side)."""

        def chunk(c: ModelConfig, x: Tensor) -> Tensor:
            if x.shape[-1] % 2:
                raise Misfit(f"an even last axis, not {x.shape[-1]}")
            return x.chunk(2, dim=-1)[k]

        return self.then(chunk)

    def plus_one(self) -> Stored:
        """A gain stored as gain − 1 (Gemma's norms)."""
        return self.then(lambda c, x: 1 + x.float())

    def normed(self, gain: str, bias: str, eps: float) -> Stored:
        """Each row through a LayerNorm whose gain and bias are stored under these names."""

        def layer_norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
            return F.layer_norm(x.float(), x.shape[-1:], gain.float(), bias.float(), eps)

        return self.joined([stored(gain), stored(bias)], layer_norm)

    def scaled(self, factor: float) -> Stored:
        """Multiplied by a number of the configuration, in float32 at least: half precision would round the product."""
        at_least_float32 = lambda x: x.to(torch.promote_types(x.dtype, torch.float32))
        return self if factor == 1 else self.then(lambda c, x: at_least_float32(x) * factor)

    def names(self, layer: int = 0) -> tuple[str, ...]:
        """The stored names in one layer, its own first."""
        own = (self.name.replace("{i}", str(layer)),) if self.name else ()
        return (*own, *(name for other in self.others for name in other.names(layer)))

    def take(self, config: ModelConfig, get: Callable[[str], Tensor], layer: int = 0) -> Tensor:
        """The canonical tensor of one layer; `get(name)` gives the stored ones."""
        x = get(self.names(layer)[0]) if self.name else torch.empty(0)
        for step in self.steps:
            x = step(config, x)
        return x if self.join is None else self.join(x, *(other.take(config, get, layer) for other in self.others))


def stored(name: str) -> Stored:
    """A stored tensor without further steps."""
    return Stored(name)


def identity() -> Stored:
    """[d_model, d_model]: the identity over the stream, which no file stores."""
    return Stored("", (lambda c, x: torch.eye(c.d_model),))


def stacked(each: Sequence[Stored]) -> Stored:
    """Tensors of one shape, for instance one per head, along a new first axis."""
    return each[0].joined(each[1:], lambda *parts: torch.stack(parts))


def matrix(source: TensorSource, name: str) -> tuple[int, int]:
    """The shape of a matrix in a file, from which a family reads sizes. Raises `BadModel` for a tensor that is not a matrix."""
    check_kind(source, name)
    shape = source.shape(name)
    if len(shape) != 2:
        raise BadModel(f"The tensor {name} has the wrong shape.", expected="a matrix", got=str(shape))
    return shape


def linear(name: str) -> Stored:
    """The weight of a torch `Linear`, as [in, out]."""
    return Stored(f"{name}.weight").T


def norm(ours: str, theirs: str, bias: bool, offset: bool = False) -> dict[str, Stored]:
    """Gain (and bias) of a norm; `offset`: stored as gain − 1."""
    gain = stored(f"{theirs}.weight")
    norm_tensors = {f"{ours}.gain": gain.plus_one() if offset else gain}
    return norm_tensors | ({f"{ours}.bias": stored(f"{theirs}.bias")} if bias else {})


@dataclass(frozen=True)
class Layout:
    """Canonical name -> stored tensor, of the ends and of every block. `buffers` are endings of names that are not weights.

    A canonical tensor may be left out only where `Norm` allows it (a norm without gain or bias). `own`: by layer, the tensors
    stored differently there; `renamed`: the name under which other files store a tensor; `elsewhere`: beginnings of the names
    of other models in the file (an image encoder), whose attention is not part of this one.
    """

    ends: Mapping[str, Stored]
    block: Mapping[str, Stored]
    buffers: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ("",)
    own: Mapping[int, Mapping[str, Stored]] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)
    elsewhere: tuple[str, ...] = ()

    def layer(self, i: int) -> Mapping[str, Stored]:
        """Block i."""
        return {**self.block, **self.own.get(i, {})}

    def each(self, config: ModelConfig) -> Iterator[tuple[str, Stored, int]]:
        """(canonical name, stored tensor, layer; 0 at the ends) of every tensor of a model."""
        for name, where in self.ends.items():
            yield name, where, 0
        for i in range(config.n_layers):
            for name, where in self.layer(i).items():
                yield f"layers.{i}.{name}", where, i


@dataclass(eq=False)
class LaidOut:
    """`Parts` of a source whose tensors are stored as `layout` says; `prefix` begins the names of files that have one.

    `used`: names in the file of the tensors that the model uses.
    """

    config: ModelConfig
    layout: Layout
    source: TensorSource
    prefix: str = ""
    used: frozenset[str] = frozenset()
    resident: bool = field(init=False)
    _names: frozenset[str] = field(init=False)
    _joined: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.resident, self._names = self.source.resident, self.source.names()

    @property
    def n_parameters(self) -> int:
        """Numbers in the tensors that the model uses, a shared tensor counted once."""
        return sum(math.prod(self.source.shape(name)) for name in self.used)

    def full(self, name: str) -> str:
        """The name in the file."""
        candidates = (self.prefix + name, name, self.layout.renamed.get(name, name))
        return next((n for n in candidates if n in self._names), name)

    def ends(self) -> Mapping[str, Tensor]:
        """Embeddings, final norm, unembedding; products of stored tensors are computed once and cached."""
        return Named(self.layout.ends, lambda name: self._end(name, self.layout.ends[name]))

    def layer(self, i: int) -> Mapping[str, Tensor]:
        """Block i."""
        block = self.layout.layer(i)
        return Named(block, lambda name: block[name].take(self.config, self._get, i))

    def kinds(self, name: str, i: int) -> frozenset[str]:
        """The dtypes in the file of what a tensor of block i is made of."""
        return frozenset(self.source.kind(self.full(stored_as)) for stored_as in self.layout.layer(i)[name].names(i))

    def _end(self, name: str, where: Stored) -> Tensor:
        if where.join is None:
            return where.take(self.config, self._get)
        if name not in self._joined:
            self._joined[name] = where.take(self.config, self._get)
        return self._joined[name]

    def _get(self, name: str) -> Tensor:
        return self.source.tensor(self.full(name))


def least_names(layout: Layout, n_layers: int) -> int:
    """How many stored names the blocks of a model need at least, without listing them."""
    of_each = lambda block: (
        {n for where in block.values() for n in where.names(0)} - {n for where in block.values() for n in where.names(1)}
    )
    own = [i for i in layout.own if i < n_layers]
    return (n_layers - len(own)) * len(of_each(layout.block)) + sum(len(of_each(layout.layer(i))) for i in own)


def lay_out(config: ModelConfig, layout: Layout, source: TensorSource, resident: bool) -> tuple[LaidOut, tuple[str, ...]]:
    """The parts of a model, checked, and notes on tensors left unused. `resident`: copied into memory as float32.

    Raises `BadModel` where a tensor is missing, has another shape than the configuration says, or (resident) is not finite, and
    where weights of attention would be left over.
    """
    need_names(least_names(layout, config.n_layers), source, config.sizes)
    layout, under_head = _tied_to_head(layout, source.names())
    prefix = next((p for p in layout.prefixes if p and any(n.startswith(p) for n in source.names())), "")
    parts = LaidOut(config, layout, source, prefix)
    used = _checked(parts)
    unused = sorted(n for n in source.names() - used if not n.endswith(layout.buffers or ("\0",)))
    refuse_attention(source, (n for n in unused if not n.startswith(layout.elsewhere or ("\0",))), config.n_layers == 0)
    notes = (f"unused tensors ({len(unused)}): {', '.join(unused[:12])}{' …' if len(unused) > 12 else ''}",) if unused else ()
    if under_head in used:
        notes += (f"the embedding is stored as {under_head} alone, to which it is tied",)
    tensors = copied(source, names=used) if resident else source
    return LaidOut(config, layout, tensors, prefix, frozenset(used)), notes


def _tied_to_head(layout: Layout, names: frozenset[str]) -> tuple[Layout, str]:
    """The layout in which a tied embedding may be stored under the unembedding's name alone, and that name, "" for none."""
    table, out = layout.ends["embed.W_E"].name, layout.ends.get("unembed.W_U")
    head = next((n for n in UNEMBEDDINGS if n in names), "") if out is None or out.name == table else ""
    return (replace(layout, renamed={table: head, **layout.renamed}) if head else layout), head


def _checked(parts: LaidOut) -> set[str]:
    """The names in the file that the model uses."""
    shapes, stored_names = expected_shapes(parts.config), parts.source.names()
    used_by: dict[str, tuple[str, ...]] = {}
    for name, where, i in parts.layout.each(parts.config):
        used_by[name] = tuple(map(parts.full, where.names(i)))
        if stored_names.issuperset(used_by[name]):
            for stored_as in used_by[name]:
                check_kind(parts.source, stored_as)
            _check_shape(name, where, i, parts, shapes)
    used = {stored_as for names in used_by.values() for stored_as in names}
    if missing := sorted(used - stored_names):
        _refuse_headless(missing, used_by, stored_names - used)
        more = f" and {len(missing) - 6} more" if len(missing) > 6 else ""
        raise BadModel("The weights lack tensors.", expected=", ".join(missing[:6]) + more, got=f"{len(missing)} missing")
    if left := sorted(n for n in set(shapes) - set(used_by) if not n.endswith(("norm.gain", "norm.bias"))):
        raise BadModel("The layout names no tensor for a part of the model.", expected=", ".join(left[:6]), got="nothing")
    return used


_CLASSES = (
    "score.weight",
    "classifier.weight",
    "classifier.bias",
    "classifier.dense.weight",
    "qa_outputs.weight",
    "summary.weight",
)


def _refuse_headless(missing: Sequence[str], used_by: Mapping[str, tuple[str, ...]], left: Iterable[str]) -> None:
    """Raise `BadModel` where all that is missing is the unembedding: a classifier, or the body of a model alone."""
    if not set(missing) <= {n for ours, theirs in used_by.items() if ours in ("unembed.W_U", "unembed.b_U") for n in theirs}:
        return
    heads = sorted(n for n in left if n.endswith(_CLASSES))
    raise BadModel(
        "This is a classifier: it scores classes, not the next token."
        if heads
        else "This is the body of a model without its unembedding: it does not score the next token.",
        expected=f"an unembedding, {missing[0]}",
        got=f"{heads[0][:80]}, and no unembedding" if heads else "no unembedding",
        remedy="Open the language model that it was made from.",
    )


def _check_shape(name: str, where: Stored, i: int, parts: LaidOut, by_config: Mapping[str, tuple[int, ...]]) -> None:
    names, expected = tuple(map(parts.full, where.names(i))), by_config.get(name)
    stored_as = " with ".join(names[:2])
    if expected is None:
        raise BadModel(f"The tensor {stored_as} has no place in this model.", expected="a tensor of its configuration", got=name)
    without_data = lambda stored_name: torch.empty(parts.source.shape(parts.full(stored_name)), device="meta")
    try:
        shape = tuple(where.take(parts.config, without_data, i).shape)
    except Misfit as error:
        shape, reason = None, str(error)
    except (RuntimeError, IndexError, ValueError):  # of tensors that are joined, in a library's words
        shape, reason = None, "which cannot become that"
    else:
        reason = f"as {name} {shape}"
    same_norm = name.endswith(("q_norm.gain", "k_norm.gain", "q_norm.bias", "k_norm.bias"))  # [d_head] or [head, d_head]
    if shape != expected and not (same_norm and shape is not None and shape[-1:] == expected[-1:]):
        shapes = ", ".join(str(parts.source.shape(n)) for n in names[:2])
        raise BadModel(
            f"The tensor {stored_as} has the wrong shape.",
            expected=f"{name} {expected} by the configuration",
            got=f"{shapes}, {reason}",
        )
