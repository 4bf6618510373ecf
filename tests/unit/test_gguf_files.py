"""GGUF files themselves: kinds of packed numbers against the package `gguf`, headers, and files that are not what they say."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from circuitlab.errors import BadModel
from circuitlab.model.files.gguf.header import read_header
from circuitlab.model.files.gguf.kinds import KINDS, dequantised
from circuitlab.model.files.gguf.tensors import GgufTensors, dequantised_from
from circuitlab.model.files.whole_file import WholeFile
from circuitlab.model.forward import logits
from circuitlab.model.loading import open_model
from circuitlab.model.text import sentencepiece_bpe
from tests.gguf_files import Kind, byte_tokenizer, converted, plain, random_blocks, split
from tests.unit.families.agreement import saved

gguf = pytest.importorskip("gguf")
PACKED = [kind for kind in KINDS.values() if kind.packed]


def test_every_kind_of_the_format_is_known_with_its_sizes() -> None:
    sizes = {kind.value: size for kind, size in gguf.GGML_QUANT_SIZES.items()}
    assert {kind.id: (kind.block, kind.nbytes) for kind in KINDS.values()} == {i: sizes[i] for i in KINDS}
    assert {gguf.GGMLQuantizationType(kind.id).name for kind in KINDS.values()} == {kind.name for kind in KINDS.values()}
    can = {kind.value for kind in gguf.quants._type_traits}
    assert can <= {kind.id for kind in PACKED} | {kind.id for kind in KINDS.values() if kind.name in ("F16", "BF16", "F32")}


@pytest.mark.parametrize("kind", PACKED, ids=lambda kind: kind.name)
def test_packed_kinds_are_read_as_the_package_reads_them(tmp_path: Path, kind: Any) -> None:
    theirs = gguf.GGMLQuantizationType(kind.id)
    blocks = random_blocks(kind, (40, 1024))
    expected = gguf.quants.dequantize(blocks, theirs)
    assert np.array_equal(dequantised(kind, torch.from_numpy(blocks.ravel()), "x").view(40, 1024).numpy(), expected)
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    writer.add_tensor("first", np.ones((3, 5), np.float32))
    writer.add_tensor("x", blocks.reshape(4, 10, -1), raw_dtype=theirs)
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        write()
    file = WholeFile(tmp_path / "x.gguf")
    tensors = GgufTensors(read_header(file), file)
    assert tensors.shape("x") == (4, 10, 1024) and tensors.kind("x") == "float32"
    assert np.array_equal(tensors.tensor("x").numpy(), expected.reshape(4, 10, 1024))
    assert np.array_equal(tensors.tensor("x", 2).numpy(), expected.reshape(4, 10, 1024)[2])
    assert torch.equal(tensors.tensor("first"), torch.ones(3, 5))
    assert dequantised_from(tensors.header).startswith(f"{kind.name} (")


@pytest.mark.parametrize("kind", [kind for kind in PACKED if kind.block == 256], ids=lambda kind: kind.name)
def test_a_model_of_random_blocks_computes_as_the_folder_of_its_numbers(tmp_path: Path, kind: Any) -> None:
    transformers, theirs = pytest.importorskip("transformers"), gguf.GGMLQuantizationType(kind.id)
    sizes = {"vocab_size": 17, "hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1, "num_attention_heads": 4}
    saved(tmp_path / "m", transformers.LlamaConfig(**sizes, num_key_value_heads=2, max_position_embeddings=64))
    converted(tmp_path / "m", tmp_path / "m.gguf", lambda name, x: (random_blocks(kind, x.shape), theirs))
    reference = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "m").eval()
    ids = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    with torch.no_grad():
        expected = reference(ids).logits
    opened = open_model(tmp_path / "m.gguf")
    assert torch.allclose(logits(opened.weights, ids), expected, atol=1e-4 * float(expected.abs().max()), rtol=0)
    assert opened.weights.config.dequantised == f"{kind.name} ({kind.bits:.1f} bits a weight)"


def _string(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def _file(tensors: int = 0, keys: int = 0, rest: bytes = b"", version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys) + rest


def _array(kind: int, n: int, rest: bytes = b"") -> bytes:
    return _string(b"a") + struct.pack("<IIQ", 9, kind, n) + rest


def _tensor(name: bytes, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    return _string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "the magic alone": b"GGUF",
    "version 1": _file(version=1),
    "most significant byte first": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "2^60 tensors": _file(2**60),
    "2^60 keys": _file(0, 2**60),
    "an array of 2^40 bytes": _file(0, 1, _array(0, 2**40) + bytes(400)),
    "an array of 2^60 texts": _file(0, 1, _array(8, 2**60) + bytes(400)),
    "an array of arrays": _file(0, 1, _array(9, 3000) * 3000),
    "a text longer than the file": _file(0, 1, _string(b"a") + struct.pack("<IQ", 8, 2**63)),
    "a key twice": _file(0, 2, 2 * (_string(b"a") + struct.pack("<II", 4, 7))),
    "a key that is no UTF-8": _file(0, 1, _string(b"\xff\xfe") + struct.pack("<II", 4, 7)),
    "a value of an unknown type": _file(0, 1, _string(b"a") + struct.pack("<II", 77, 7)),
    "an alignment of 3": _file(0, 1, _string(b"general.alignment") + struct.pack("<II", 4, 3)),
    "an alignment of 0": _file(0, 1, _string(b"general.alignment") + struct.pack("<II", 4, 0)),
    "a tensor of an unknown kind": _file(1, 0, _tensor(b"x", (32,), 4, 0) + bytes(400)),
    "an offset of 2^64 - 96": _file(1, 0, _tensor(b"x", (4,), 0, 2**64 - 96) + bytes(400)),
    "an offset that overlaps": _file(2, 0, _tensor(b"x", (16,), 0, 0) + _tensor(b"y", (16,), 0, 32) + bytes(400)),
    "no axis of length 0": _file(1, 0, _tensor(b"x", (0, 4), 0, 0) + bytes(400)),
    "sizes that overflow": _file(1, 0, _tensor(b"x", (2**32, 2**32), 0, 0) + bytes(400)),
    "70,000 axes": _file(1, 0, _string(b"x") + struct.pack("<I", 70_000) + bytes(400)),
    "half a block": _file(1, 0, _tensor(b"x", (48,), 2, 0) + bytes(400)),
    "a tensor twice": _file(2, 0, _tensor(b"x", (8,), 0, 0) + _tensor(b"x", (8,), 0, 32) + bytes(400)),
    "data that is cut off": _file(1, 0, _tensor(b"x", (4000,), 0, 0) + bytes(400)),
    "no architecture": _file(),
    "an unknown architecture": _file(0, 1, _string(b"general.architecture") + struct.pack("<I", 8) + _string(b"mamba")),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_is_not_what_it_says_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "x.gguf").write_bytes(HOSTILE[name])
    with pytest.raises(BadModel) as refused:
        open_model(tmp_path / "x.gguf")
    assert refused.value.remedy
    if "architecture" in name:
        assert "architecture" in refused.value.what and ("mamba" in refused.value.got) is name.startswith("an unknown")


def _with(folder: Path, change: Callable[[Any], None], **more_sizes: int) -> Path:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 17, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    saved(folder / "m", transformers.LlamaConfig(**sizes | more_sizes, max_position_embeddings=64))
    more: dict[str, Any] = {}
    change(more)
    converted(folder / "m", folder / "m.gguf", more=more)
    return folder / "m.gguf"


def test_a_tensor_without_a_place_is_refused(tmp_path: Path) -> None:
    file = _with(tmp_path, lambda more: None)
    data = file.read_bytes()
    file.write_bytes(data.replace(b"blk.0.ffn_up.weight", b"blk.0.ffn_ux.weight"))
    with pytest.raises(BadModel, match=r"blk\.0\.ffn_ux\.weight has no place"):
        open_model(file)


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    file = _with(tmp_path, lambda more: None)
    data = bytearray(file.read_bytes())
    data[-64:-60] = struct.pack("<f", float("nan"))
    file.write_bytes(data)
    with pytest.raises(BadModel, match="not numbers"):
        open_model(file)


@pytest.mark.parametrize("kind", ["adapter", "mmproj"])
def test_a_file_that_goes_beside_a_model_is_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(BadModel, match="not a model"):
        open_model(_with(tmp_path, lambda more: more.update({"general.type": kind})))


def test_a_file_opens_whatever_it_is_called_and_whatever_lies_beside_it(tmp_path: Path) -> None:
    file = _with(tmp_path, lambda more: None)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    for name in ("model.gguf", "sha256-0123", "model.bin"):
        file = file.rename(tmp_path / name)
        assert open_model(file).weights.config.family == "llama"
    assert open_model(file.rename(tmp_path / "m" / "x.gguf").parent).weights.config.n_layers == 1  # the folder's own weights


def test_a_packed_model_beyond_the_budget_is_read_as_it_is_used(tmp_path: Path) -> None:
    from circuitlab.engine.store import ModelStore, reference

    _with(tmp_path, lambda more: None)
    file = tmp_path / "q.gguf"
    converted(tmp_path / "m", file, plain(Kind.Q4_0))
    in_memory, mapped = ModelStore(), ModelStore(largest_copy=3 * file.stat().st_size)  # its copy takes seven times the file
    a, b = in_memory.open(reference(str(file))).opened.weights, mapped.open(reference(str(file))).opened.weights
    assert a.resident and not b.resident
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    assert torch.equal(logits(a, ids), logits(b, ids))
    assert any("over the budget" in note for note in mapped.open(reference(str(file))).opened.notes)


def test_without_the_package_plain_files_open_and_packed_ones_say_what_is_lacking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from circuitlab.errors import BadMachine

    file = _with(tmp_path, lambda more: None)
    converted(tmp_path / "m", tmp_path / "q.gguf", plain(Kind.Q8_0))
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert open_model(file).weights.config.n_layers == 1
    with pytest.raises(BadMachine, match="package gguf") as refused:
        open_model(tmp_path / "q.gguf")
    assert "circuitlab[gguf]" in refused.value.remedy


@pytest.mark.parametrize(
    ("pre", "flag", "adds"),
    [("gpt-2", None, False), ("gpt-2", True, True), ("llama-bpe", None, True), ("llama-bpe", False, False)],
)
def test_bos_is_prepended_as_the_file_says(tmp_path: Path, pre: str, flag: bool | None, adds: bool) -> None:
    said = byte_tokenizer(pre=pre, **({} if flag is None else {"add_bos_token": flag}))
    weights = open_model(_with(tmp_path, lambda more: more.update(said), vocab_size=260)).weights
    tokenizer = weights.tokenizer
    assert tokenizer is not None and tokenizer.bos == 258 and tokenizer.adds_bos is adds and weights.config.prepend_bos is adds
    assert [tokenizer.raw(i) for i in tokenizer.encode("the<|user|>")] == ["the", "<|user|>"]
    assert tokenizer.is_special(258) and not tokenizer.is_special(259)
    assert tokenizer.decode(tokenizer.encode("été\n  x")) == "été\n  x"


def test_a_tokenizer_that_is_not_known_can_be_left_out(tmp_path: Path) -> None:
    file = _with(tmp_path, lambda more: more.update(byte_tokenizer(pre="of tomorrow")), vocab_size=260)
    with pytest.raises(BadModel, match="splits a text") as refused:
        open_model(file)
    assert "of tomorrow" in refused.value.got and "tokenizer=none" in refused.value.remedy
    assert open_model(file, assume={"tokenizer": "none"}).weights.tokenizer is None


@pytest.mark.parametrize(
    "damage",
    [{"tokens": ["a", "a"]}, {"merges": ["t h", "no such"]}, {"token_type": [1, 2]}, {"tokens": 5}, {"model": "rwkv"}],
    ids=lambda damage: next(iter(damage)),
)
def test_a_damaged_tokenizer_is_refused(tmp_path: Path, damage: dict[str, Any]) -> None:
    with pytest.raises(BadModel) as refused:
        open_model(_with(tmp_path, lambda more: more.update(byte_tokenizer(**damage)), vocab_size=260))
    assert refused.value.remedy


def test_sentencepiece_takes_the_best_piece_and_falls_back_to_bytes(tmp_path: Path) -> None:
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{i:02X}>" for i in range(256)), "▁", "a", "b", "ab", "▁ab", "▁a"]
    scores = [0.0] * 259 + [-9.0, -8.0, -7.0, -2.0, -1.0, -3.0]
    said = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": [2, 3, 3, *[6] * 256, *[1] * 6],
    }
    tokenizer = open_model(_with(tmp_path, lambda more: more.update(said), vocab_size=265)).weights.tokenizer
    assert tokenizer is not None and tokenizer.bos == 1 and tokenizer.adds_bos
    shown = lambda text: [tokenizer.raw(i) for i in tokenizer.encode(text)]
    assert shown("ab") == ["▁ab"] and shown("aab") == ["▁a", "ab"] and shown("é") == ["▁", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(tokenizer.encode("ab éa")) == "ab éa"


def test_tokens_of_more_merges_than_any_model_has_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """64,000 tokens in 4.8 MB can make millions of merges."""
    monkeypatch.setattr(sentencepiece_bpe, "_MOST_MERGES", 100)
    tokens = ["<unk>", "<s>", "</s>", *("a" * i + "b" * k for i in range(8) for k in range(8) if i + k)]
    said = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [-float(i) for i in range(len(tokens))],
        "tokenizer.ggml.token_type": [2, 3, 3, *[1] * (len(tokens) - 3)],
    }
    with pytest.raises(BadModel) as refused:
        open_model(_with(tmp_path, lambda more: more.update(said), vocab_size=len(tokens)))
    assert "100 merges" in refused.value.got and refused.value.remedy


@pytest.mark.parametrize(
    "said",
    [{"llama.attention.layer_norm_rms_epsilon": -1.0}, {"llama.rope.scaling.factor": -1.0}, {"llama.rope.scaling.factor": 1e30}],
    ids=str,
)
def test_numbers_that_no_model_can_have_are_refused(tmp_path: Path, said: dict[str, float]) -> None:
    with pytest.raises(BadModel) as refused:
        open_model(_with(tmp_path, lambda more: more.update(said)))
    assert refused.value.expected and refused.value.got


def test_what_a_packed_file_takes_in_memory_is_said_before_it_is_opened(tmp_path: Path) -> None:
    from circuitlab.engine.memory_report import opening_cost
    from circuitlab.engine.store import reference

    file = _with(tmp_path, lambda more: None)
    assert opening_cost(reference(str(file)), 2**30) == ""
    converted(tmp_path / "m", tmp_path / "q.gguf", plain(Kind.Q4_0))
    ref, weights = reference(str(tmp_path / "q.gguf")), open_model(tmp_path / "q.gguf").weights
    assert opening_cost(ref, 2**30).endswith(f"{4 * weights.config.n_parameters() / 2**20:,.1f} MiB in memory as float32")
    assert "Q4_0 (4.5 bits a weight), read as it is used" in opening_cost(ref, 1000)


def test_a_model_in_parts_opens_by_any_of_them(tmp_path: Path) -> None:
    whole = open_model(_with(tmp_path, lambda more: None)).weights
    paths = [tmp_path / "parts" / f"m-{i + 1:05d}-of-00002.gguf" for i in range(2)]
    paths[0].parent.mkdir()
    split(tmp_path / "m.gguf", paths)
    ids = torch.tensor([[3, 1, 4, 1, 5]])
    for path in (*paths, paths[0].parent):
        opened = open_model(path)
        assert torch.equal(logits(opened.weights, ids), logits(whole, ids)) and opened.files == tuple(paths)
    alone = paths[0].rename(tmp_path / "alone.gguf")
    with pytest.raises(BadModel, match="one part of a model"):
        open_model(alone)
    with pytest.raises(BadModel, match="does not exist"):
        open_model(paths[1])


def test_a_layer_that_the_file_does_not_speak_of_is_refused(tmp_path: Path) -> None:
    file = _with(tmp_path, lambda more: None, num_hidden_layers=2)
    at = file.read_bytes().index(b"llama.block_count") + len(b"llama.block_count") + 4
    data = bytearray(file.read_bytes())
    struct.pack_into("<I", data, at, 1)
    file.write_bytes(data)
    with pytest.raises(BadModel, match="a layer that the model does not have"):
        open_model(file)
