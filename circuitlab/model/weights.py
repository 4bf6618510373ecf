"""One interface to weights, read layer by layer, whether resident, memory-mapped or being trained.

Canonical axes, row-vector convention (`q = x W_Q`): W_E [d_vocab, d_model]; W_pos [n_ctx, d_model]; W_Q [head, d_model,
d_head]; W_K, W_V [kv_head, d_model, d_head]; W_O [head, d_head, d_model]; W_in, W_gate [d_model, d_mlp]; W_out [d_mlp, d_model];
W_U [d_model, d_vocab_out]. Per-head tensors are views of one flat projection wherever the file allows, so that the forward
pass multiplies once for all heads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from torch import Tensor

from circuitlab.errors import Refused
from circuitlab.model.config import ModelConfig

if TYPE_CHECKING:
    from circuitlab.model.text.tokenizer import Tokenizer

Part = TypeVar("Part")


@dataclass(frozen=True)
class Norm:
    """Gain and bias of one norm, [d_model] each (of q/k norms [d_head] or [head, d_head]); None: folded away or absent."""

    gain: Tensor | None = None
    bias: Tensor | None = None

    def of_head(self, head: int) -> Norm:
        """The part of a q/k norm that applies to one head, [d_head]; the whole norm if all heads share it."""
        own = lambda x: x if x is None or x.dim() == 1 else x[head]
        return Norm(own(self.gain), own(self.bias))


@dataclass(frozen=True)
class Mlp:
    """`act(x W_in + b_in) W_out + b_out`, gated: `(act(x W_gate + b_gate) * (x W_in + b_in)) W_out + b_out`.

    `norm` [d_mlp]: of the neurons, after the activation "solu_ln".
    """

    W_in: Tensor
    W_out: Tensor
    W_gate: Tensor | None = None
    b_in: Tensor | None = None
    b_gate: Tensor | None = None
    b_out: Tensor | None = None
    norm: Norm = Norm()


class Unread(Sequence[Mlp]):
    """Experts, each created by `make(number)` on access; `keep`: and then cached."""

    def __init__(self, n: int, make: Callable[[int], Mlp], keep: bool = False) -> None:
        self._n, self._make, self._keep = n, make, keep
        self._cache: dict[int, Mlp] = {}

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, e: Any) -> Any:
        if not 0 <= e < self._n:
            raise IndexError(e)
        expert = self._cache.get(e) or self._make(e)
        if self._keep:
            self._cache[e] = expert
        return expert


@dataclass(frozen=True)
class Mixture:
    """Experts in place of one MLP (`config.Experts`): usable as a whole; reading single neurons is refused.

    router [d_model, expert]; `experts` as they are stored, read and converted when a token is sent to one; `shared`, and its gate
    [d_model, 1]: of the expert that sees every token.
    """

    router: Tensor
    experts: Sequence[Mlp]
    shared: Mlp | None = None
    shared_gate: Tensor | None = None

    @property
    def W_in(self) -> Tensor:
        """Not one matrix. Raises `Refused`."""
        raise Refused(NO_NEURONS)

    W_out = W_gate = b_in = b_gate = b_out = W_in


NO_NEURONS = (
    "the MLPs of this model are mixtures of experts: a router chooses weights for each token, so they are read as a whole."
)


@dataclass(frozen=True)
class Layer:
    """One block. Biases are [head, d_head] (kv_head for k and v) and [d_model]; `smear` [kv_head] is α, before the sigmoid."""

    W_Q: Tensor
    W_K: Tensor
    W_V: Tensor
    W_O: Tensor
    b_Q: Tensor | None = None
    b_K: Tensor | None = None
    b_V: Tensor | None = None
    b_O: Tensor | None = None
    smear: Tensor | None = None
    mlp: Mlp | Mixture | None = None
    attn_norm: Norm = Norm()
    mlp_norm: Norm = Norm()
    attn_post_norm: Norm = Norm()
    mlp_post_norm: Norm = Norm()
    q_norm: Norm = Norm()
    k_norm: Norm = Norm()


@dataclass(frozen=True)
class Embed:
    """Token and position embeddings; `W_pos` is the table of learned and shortformer positions.

    `centred`: what writes to the stream is without its mean over d_model, positions that are computed and not stored, too.
    """

    W_E: Tensor
    W_pos: Tensor | None = None
    centred: bool = False


@dataclass(frozen=True)
class Unembed:
    """The final norm, `W_U` [d_model, d_vocab_out] and `b_U` [d_vocab_out]."""

    W_U: Tensor
    b_U: Tensor | None = None
    norm: Norm = Norm()


def mapped(part: Part, change: Callable[[Tensor], Tensor], experts: Callable[[Unread], Unread] | None = None) -> Part:
    """A part of a model (a dataclass of tensors, of such parts, and of None) with every tensor changed.

    `experts`: what becomes of the unread experts of a mixture; None: they stay as they are.
    """
    if isinstance(part, Tensor):
        return cast(Part, change(part))
    if isinstance(part, Unread):
        return cast(Part, part if experts is None else experts(part))
    if not is_dataclass(part) or isinstance(part, type):
        return part
    values: dict[str, object] = {f.name: mapped(getattr(part, f.name), change, experts) for f in fields(part)}
    return replace(part, **values)


def parameters_of(weights: Weights) -> int:
    """The number of parameters that the file holds for this model, shared ones once; by the shapes where no file says."""
    counted = getattr(weights, "n_parameters", None)
    return weights.config.n_parameters() if counted is None else counted


class Weights(Protocol):
    """The interface to weights. No reader keeps what `layer(i)` returned past layer i.

    `layer(i, mlp=False)` leaves the MLP unread, for readers of attention alone. `resident`: whether all weights are in memory
    anyway, so that tensors derived from them may be cached.
    """

    @property
    def config(self) -> ModelConfig: ...
    @property
    def tokenizer(self) -> Tokenizer | None: ...
    @property
    def resident(self) -> bool: ...
    def embed(self) -> Embed: ...
    def layer(self, i: int, mlp: bool = True) -> Layer: ...
    def unembed(self) -> Unembed: ...


def bos_of(weights: Weights) -> int | None:
    """The id of the token that begins every prompt of this model; None without one."""
    return weights.tokenizer.bos if weights.tokenizer is not None and weights.config.prepend_bos else None
