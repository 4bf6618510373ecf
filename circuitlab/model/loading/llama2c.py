"""Checkpoints of llama2.c (Karpathy 2023): one `.bin` of sizes and float32 numbers in a fixed order, without names.

Version 0 begins with seven int32 (dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len; a negative vocab_size
means that the unembedding is stored), version 1 with a magic number and a header of 256 bytes. The file is recognised by its
length, which these sizes determine. Matrices are [out, in]; rotary pairs are interleaved.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from circuitlab.counting import number_of
from circuitlab.errors import BadModel
from circuitlab.model.config import ModelConfig, Rotary
from circuitlab.model.files.places import Place
from circuitlab.model.files.tensors import MappedTensors
from circuitlab.model.files.whole_file import WholeFile
from circuitlab.model.lazy_weights import LazyWeights
from circuitlab.model.loading.assumptions import Assumed
from circuitlab.model.loading.checkpoint import Checkpoint
from circuitlab.model.loading.family import Family, Keep, Opened
from circuitlab.model.loading.huggingface import scale_note
from circuitlab.model.loading.layout import Layout, Stored, lay_out, stored
from circuitlab.model.loading.llama2c_tokenizer import beside

_MAGIC = 0x616B3432
_SIZES = struct.Struct("<7i")
_LARGEST = 2**31 - 1


@dataclass(frozen=True)
class Header:
    """The sizes of a file. `start` is where its numbers begin."""

    version: int
    dim: int
    hidden: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_vocab: int
    n_ctx: int
    shared: bool
    start: int

    @property
    def d_head(self) -> int:
        """Columns of a head."""
        return self.dim // self.n_heads


def header(file: WholeFile) -> Header | None:
    """The header of a llama2.c file, None if the first bytes are not one."""
    if file.size < 256:
        return None
    data = file.read(0, 40)
    magic, version = struct.unpack_from("<Ii", data)
    at = 8 if magic == _MAGIC else 0
    dim, hidden, layers, heads, kv, vocab, length = _SIZES.unpack_from(data, at)
    if not all(0 < n <= _LARGEST for n in (dim, hidden, layers, heads, kv, abs(vocab), length)):
        return None
    if dim % heads or heads % kv or (dim // heads) % 2:
        return None
    shared = bool(data[36]) if at else vocab > 0
    return Header(version if at else 0, dim, hidden, layers, heads, kv, abs(vocab), length, shared, 256 if at else 28)


def _stacks(h: Header) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(name, shape) of the tensors after the header, in order; `{i}` in a name: one per layer."""
    kv = h.n_kv_heads * h.d_head
    norms = {"attention_norm.{i}": (h.dim,), "ffn_norm.{i}": (h.dim,)}
    first, second = norms.items()
    attention = [("wq.{i}", (h.dim, h.dim)), ("wk.{i}", (kv, h.dim)), ("wv.{i}", (kv, h.dim)), ("wo.{i}", (h.dim, h.dim))]
    mlp = [("w1.{i}", (h.hidden, h.dim)), ("w2.{i}", (h.dim, h.hidden)), ("w3.{i}", (h.hidden, h.dim))]
    table, last = ("tok_embeddings", (h.d_vocab, h.dim)), ("norm", (h.dim,))
    frequencies = [(f"freq_cis_{part}", (h.n_ctx, h.d_head // 2)) for part in ("real", "imag")]
    yield from (
        [table, first, *attention, second, *mlp, last, *frequencies]
        if h.version == 0
        else [first, second, last, table, *attention, *mlp]
    )
    if not h.shared:
        yield "output", (h.d_vocab, h.dim)


def places(h: Header) -> tuple[dict[str, Place], int]:
    """The place of every tensor, and the length that the file must have."""
    by_name, at = {}, h.start
    for name, shape in _stacks(h):
        for i in range(h.n_layers if "{i}" in name else 1):
            stride = tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))
            by_name[name.replace("{i}", str(i))] = Place(at, "float32", torch.float32, shape, stride)
            at += 4 * math.prod(shape)
    return by_name, at


def _length(h: Header) -> int:
    """Bytes of a file of these sizes, without listing its tensors: in a file of another kind the sizes may be absurd."""
    each = (math.prod(shape) * (h.n_layers if "{i}" in name else 1) for name, shape in _stacks(h))
    return h.start + 4 * sum(each)


def read_config(h: Header, ask: Assumed) -> ModelConfig:
    """Our configuration for a header."""
    return ModelConfig(
        n_layers=h.n_layers,
        n_heads=h.n_heads,
        n_kv_heads=h.n_kv_heads,
        d_model=h.dim,
        d_head=h.d_head,
        d_vocab=h.d_vocab,
        n_ctx=h.n_ctx,
        d_mlp=h.hidden,
        positions="rotary",
        rotary=Rotary(ask.number("rotary_base", 10000.0, "llama2.c's own"), "interleaved"),
        norm="rms",
        norm_eps=ask.number("norm_eps", 1e-5, "llama2.c's own"),
        activation="silu",
        gated=True,
        tied=h.shared,
        prepend_bos=True,
        family="llama2c",
    )


def layout(config: ModelConfig) -> Layout:
    """Where the file keeps each tensor, by the names of `_stacks`."""
    ends = {"embed.W_E": stored("tok_embeddings"), "unembed.norm.gain": stored("norm")}
    ends |= {} if config.tied else {"unembed.W_U": stored("output").T}
    block: dict[str, Stored] = {"attn_norm.gain": stored("attention_norm.{i}"), "mlp_norm.gain": stored("ffn_norm.{i}")}
    for which in ("q", "k", "v", "o"):
        block[f"W_{which.upper()}"] = stored(f"w{which}.{{i}}").T.heads(which)
    for ours, theirs in (("gate", "w1"), ("out", "w2"), ("in", "w3")):
        block[f"mlp.W_{ours}"] = stored(f"{theirs}.{{i}}").T
    return Layout(ends, block, ("freq_cis_real", "freq_cis_imag"))


def _load(checkpoint: Checkpoint, keep: Keep) -> Opened:
    path, ask = checkpoint.files[0], Assumed(checkpoint.assume)
    file = WholeFile(path)
    h = header(file)
    if h is None:
        raise BadModel(f"{file.name} is not a file of llama2.c.", expected="its header", got="other bytes")
    config = read_config(h, ask)
    where, stop = places(h)
    if stop != file.size:
        raise BadModel(f"{file.name} has changed.", expected=number_of(stop, "byte"), got=f"{file.size}", remedy="Open it again.")
    parts, unused = lay_out(config, layout(config), MappedTensors(file, where), keep == "resident")
    notes = (scale_note(config.score_scale, config.d_head, "llama2.c's own"), *unused)
    notes += ("unembedding tied to the embedding",) if h.shared else ()
    return Opened(
        LazyWeights(config, beside(path, h.d_vocab), parts), notes, checkpoint.files, "", "llama2.c", tuple(ask.assumptions)
    )


def _claims(checkpoint: Checkpoint) -> bool:
    if checkpoint.tensors is not None or len(checkpoint.files) != 1:
        return False
    return of_llama2c(checkpoint.files[0])


def of_llama2c(path: Path) -> bool:
    """Whether a file is a llama2.c checkpoint, by its header and length."""
    try:
        file = WholeFile(path)
        h = header(file)
    except BadModel:
        return False
    return h is not None and h.version in (0, 1) and _length(h) == file.size


FAMILY = Family("llama2c", "a llama2.c file", _claims, _load, first=True)
