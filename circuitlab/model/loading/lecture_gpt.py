"""The GPT of Karpathy's lecture "Let's build GPT" (2023), whose heads are separate modules: `blocks.0.sa.heads.0.key.weight`.

Each head has three `Linear`s; the heads' results are concatenated and pass through `sa.proj`. Earlier steps of the lecture have
no `proj` (W_O is the identity then), no norms, or no MLP. The tensors do not show the score scale, and versions of the code
differ: by the width of a head, or of the stream.
"""

from __future__ import annotations

import math
import re
from typing import Literal

from circuitlab.counting import number_of
from circuitlab.errors import BadModel
from circuitlab.model.config import Activation, BiasName, ModelConfig
from circuitlab.model.files.tensors import TensorSource
from circuitlab.model.lazy_weights import LazyWeights, need_names
from circuitlab.model.loading.assumptions import Assumed
from circuitlab.model.loading.checkpoint import Checkpoint
from circuitlab.model.loading.family import Family, Keep, Opened, find_tokenizer
from circuitlab.model.loading.huggingface import scale_note
from circuitlab.model.loading.layout import Layout, Stored, identity, lay_out, linear, matrix, norm, stacked, stored

_FIRST, _TOKENS, _PLACES = "blocks.0.sa.heads.0.key.weight", "token_embedding_table.weight", "position_embedding_table.weight"
_PREFIXES = ("", "module.", "_orig_mod.", "model.")
_HEAD = re.compile(r"blocks\.(\d{1,9})\.sa\.heads\.(\d{1,9})\.(key|query|value)\.")
_INNER = re.compile(r"blocks\.0\.ffwd\.net\.(\d{1,9})\.weight$")
_HEADS: tuple[tuple[Literal["q", "k", "v"], str], ...] = (("q", "query"), ("k", "key"), ("v", "value"))
_MASKS = (".tril",)


class Names:
    """The names of a file without their prefix, and the sizes that its tensors show."""

    def __init__(self, source: TensorSource, prefix: str) -> None:
        self._source, self.prefix = source, prefix
        self.all = frozenset(n.removeprefix(prefix) for n in source.names() if n.startswith(prefix))
        places = [(int(m[1]), int(m[2])) for n in self.all if (m := _HEAD.match(n))]
        self.n_layers, self.n_heads = 1 + max(i for i, _ in places), 1 + max(h for _, h in places)
        what = f"{number_of(self.n_layers, 'block')} of {number_of(self.n_heads, 'head')}"
        need_names(self.n_layers * self.n_heads, source, what)

    def __contains__(self, name: str) -> bool:
        return name in self.all

    def matrix(self, name: str) -> tuple[int, int]:
        """The shape of a matrix. Raises `BadModel` if it is not one."""
        return matrix(self._source, self.prefix + name)

    def inner(self) -> tuple[str, ...]:
        """Names of the MLP's `Linear`s in a block, without `.weight`, in order; () without an MLP."""
        indices = sorted(int(m[1]) for n in self.all if (m := _INNER.match(n)))
        return tuple(f"blocks.{{i}}.ffwd.net.{k}" for k in indices)

    def biases(self) -> tuple[BiasName, ...]:
        """The biases that the file has."""
        inner = self.inner()
        places: dict[BiasName, str] = {kind: f"blocks.0.sa.heads.0.{name}.bias" for kind, name in _HEADS}
        places["o"] = "blocks.0.sa.proj.bias"
        places |= {"mlp": f"{inner[0]}.bias".replace("{i}", "0")} if inner else {}
        places["unembed"] = "lm_head.bias"
        return tuple(kind for kind, name in places.items() if name in self)


def names_of(source: TensorSource | None) -> Names | None:
    """The names if they are the lecture's, else None."""
    stored_names = source.names() if source is not None else frozenset[str]()
    prefix = next((p for p in _PREFIXES if {p + _FIRST, p + _TOKENS, f"{p}lm_head.weight"} <= stored_names), None)
    return None if prefix is None or source is None else Names(source, prefix)


def read_config(names: Names, ask: Assumed) -> ModelConfig:
    """Our configuration: sizes from the tensors, the rest assumed."""
    (d_vocab, d_model), (d_head, _), inner = names.matrix(_TOKENS), names.matrix(_FIRST), names.inner()
    if len(inner) not in (0, 2):
        raise BadModel("The MLP is of another kind.", expected="two Linears in ffwd.net, or none", got=f"{len(inner)} of them")
    if "blocks.0.sa.proj.weight" not in names and names.n_heads * d_head != d_model:
        raise BadModel(
            "The heads do not fit the stream.",
            expected=f"{number_of(d_model, 'column')}, as there is no projection",
            got=f"{number_of(names.n_heads, 'head')} of {d_head}",
        )
    normed, final = "blocks.0.ln1.weight" in names, "ln_f.weight" in names
    if final and not normed:
        raise BadModel("There is a final norm and none before.", expected="ln1 and ln2 in each block", got="ln_f alone")
    scale = ask.choice("score_scale", "1/√d_head", ("1/√d_head", "1/√d_model"), "the published code; a version had 1/√d_model")
    activations: tuple[Activation, ...] = ("relu", "gelu", "gelu_new", "silu")
    chosen = ask.choice("activation", "relu", activations, "the lecture's") if inner else "gelu"
    if _PLACES not in names:
        ask.choice("positions", "none", ("none",), "there is no table of positions")
    return ModelConfig(
        n_layers=names.n_layers,
        n_heads=names.n_heads,
        d_model=d_model,
        d_head=d_head,
        d_vocab=d_vocab,
        n_ctx=names.matrix(_PLACES)[0] if _PLACES in names else ask.size("n_ctx", 256, "no tensor shows how long prompts may be"),
        d_mlp=names.matrix(inner[0].replace("{i}", "0") + ".weight")[0] if inner else 0,
        positions="learned" if _PLACES in names else "none",
        norm="layer" if normed else "none",
        final_norm=final,
        norm_eps=ask.number("norm_eps", 1e-5, "torch's own") if normed else 1e-5,
        activation=next(a for a in (*activations, "gelu") if a == chosen),
        biases=names.biases(),
        score_scale=1 / math.sqrt(d_head if scale == "1/√d_head" else d_model),
        family="lecture_gpt",
    )


def layout(config: ModelConfig, names: Names) -> Layout:
    """Where the file keeps its tensors."""
    ends = {"embed.W_E": stored(_TOKENS), "unembed.W_U": linear("lm_head")}
    ends |= {"embed.W_pos": stored(_PLACES)} if config.stored_positions else {}
    ends |= {"unembed.b_U": stored("lm_head.bias")} if "unembed" in config.biases else {}
    ends |= norm("unembed.norm", "ln_f", "ln_f.bias" in names) if config.final_norm else {}
    block: dict[str, Stored] = {}
    for which, theirs in _HEADS:
        each = [f"blocks.{{i}}.sa.heads.{h}.{theirs}" for h in range(config.n_heads)]
        block[f"W_{which.upper()}"] = stacked([linear(n) for n in each])
        if which in config.biases:
            block[f"b_{which.upper()}"] = stacked([stored(f"{n}.bias") for n in each])
    projected = "blocks.0.sa.proj.weight" in names
    block["W_O"] = (linear("blocks.{i}.sa.proj") if projected else identity()).heads("o")
    block |= {"b_O": stored("blocks.{i}.sa.proj.bias")} if "o" in config.biases else {}
    for ours, theirs in zip(("in", "out"), names.inner(), strict=False):
        block[f"mlp.W_{ours}"] = linear(theirs)
        block |= {f"mlp.b_{ours}": stored(f"{theirs}.bias")} if "mlp" in config.biases else {}
    if config.norm == "layer":
        block |= norm("attn_norm", "blocks.{i}.ln1", "blocks.0.ln1.bias" in names)
        block |= norm("mlp_norm", "blocks.{i}.ln2", "blocks.0.ln2.bias" in names) if config.d_mlp else {}
    return Layout(ends, block, _MASKS, (names.prefix,) if names.prefix else ("",))


def _load(checkpoint: Checkpoint, keep: Keep) -> Opened:
    source, ask = checkpoint.needed(), Assumed(checkpoint.assume)
    names = names_of(source)
    assert names is not None  # it was claimed
    config = read_config(names, ask)
    parts, unused = lay_out(config, layout(config, names), source, keep == "resident")
    notes = ["sizes are those of the tensors; the architecture is the lecture's"]
    notes += [scale_note(config.score_scale, config.d_head, "assumed")]
    notes += ["no output projection: the heads' results are concatenated"] if "blocks.0.sa.proj.weight" not in names else []
    weights = LazyWeights(config, find_tokenizer(checkpoint.folder), parts)
    return Opened(weights, (*notes, *unused), checkpoint.files, "", "the GPT of Karpathy's lecture", tuple(ask.assumptions))


def _claims(checkpoint: Checkpoint) -> bool:
    return not checkpoint.model_type and "format" not in checkpoint.config and names_of(checkpoint.tensors) is not None


FAMILY = Family("lecture_gpt", "the GPT of Karpathy's lecture (one module per head)", _claims, _load)
