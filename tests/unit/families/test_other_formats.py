"""Files of kinds that are not opened say what they are and what to do; an unknown family shows its own names."""

from __future__ import annotations

import gzip
import json
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from circuitlab.cli.parser import main
from circuitlab.errors import BadModel, UnknownFamily
from circuitlab.model.files.tensors import open_safetensors
from circuitlab.model.loading import open_model
from tests.fuzz.corpus import CORPUS

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 548105171\n"


def _zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("model/config.json", "{}")


def _npz_named(path: Path) -> None:
    np.savez(path.with_suffix(".npz"), a=np.zeros(3))
    path.with_suffix(".npz").rename(path)


FILES: dict[str, tuple[str, str, Callable[[Path], object]]] = {
    "older than gguf": ("model.bin", "older than GGUF", lambda p: p.write_bytes(b"tjgg" + struct.pack("<IQQ", 3, 0, 0))),
    "hdf5": ("model.h5", "HDF5", lambda p: p.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))),
    "npz": ("weights.npz", "NPZ", lambda p: np.savez(p, a=np.zeros(3))),
    "packed npz": ("weights.npz", "NPZ", lambda p: np.savez_compressed(p, a=np.zeros(3))),
    "npz as pt": ("weights.pt", "NPZ", _npz_named),
    "npy": ("weights.npy", "NumPy array", lambda p: np.save(p, np.zeros(3))),
    "onnx": ("model.onnx", "ONNX", lambda p: p.write_bytes(b"\x08\x08\x12\x07pytorch")),
    "flax": ("flax_model.msgpack", "Flax", lambda p: p.write_bytes(b"\x81\xa1a")),
    "pointer": ("model.safetensors", "pointer of Git LFS", lambda p: p.write_bytes(POINTER)),
    "pickled pointer": ("pytorch_model.bin", "pointer of Git LFS", lambda p: p.write_bytes(POINTER)),
    "page": ("model.safetensors", "web page", lambda p: p.write_bytes(b"<!doctype html><html><body>Sign in</body></html>")),
    "pointer as gguf": ("model.gguf", "pointer of Git LFS", lambda p: p.write_bytes(POINTER)),
    "page as gguf": ("model.gguf", "web page", lambda p: p.write_bytes(b"<!DOCTYPE html><title>Not here</title>")),
    "zip as gguf": ("model.gguf", "packed archive", _zip),
    "packed": ("model.pt", "packed archive", lambda p: p.write_bytes(gzip.compress(b"x" * 100))),
    "zip": ("model.zip", "packed archive", _zip),
}


WEIGHTS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "safetensors": (".safetensors", lambda p: save_file({"a": torch.zeros(3)}, p)),
    "torch": (".pt", lambda p: torch.save({"a": torch.zeros(3)}, p)),
    "torch before zip": (".pt", lambda p: torch.save({"a": torch.zeros(3)}, p, _use_new_zipfile_serialization=False)),
    "GGUF": (".gguf", lambda p: p.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))),
}


@pytest.mark.parametrize("kind", WEIGHTS)
def test_weights_under_the_name_of_another_kind_are_said_to_be_what_they_are(tmp_path: Path, kind: str) -> None:
    """A GGUF file is read under any name, as llama.cpp does; among shards it is none."""
    own, write = WEIGHTS[kind]
    named = {".safetensors": "a safetensors file", ".pt": "a checkpoint of torch", ".gguf": "a GGUF file"}[own]
    for ending in {".safetensors", ".bin", ".pt", ".gguf"} - {own, ".bin" if own == ".pt" else own}:
        path = CORPUS["gpt2-sharded"](tmp_path / ending)
        alone, shard = tmp_path / f"weights{ending}", next(path.glob("*-of-*.safetensors"))
        for file in (alone,) * (kind != "GGUF") + (shard,) * (own != ".safetensors"):
            write(file)
            with pytest.raises(BadModel, match=f"is {named}") as refused:
                open_model(path if file == shard else file)
            assert refused.value.what.startswith(file.name) and own.replace(".pt", ".bin") in refused.value.remedy


@pytest.mark.parametrize("length", [0x0280, 0x0380, 0x0480, 0x0580])
def test_a_header_whose_length_begins_like_a_pickle_is_a_header(tmp_path: Path, length: int) -> None:
    header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).ljust(length)
    file = tmp_path / "model.safetensors"
    file.write_bytes(struct.pack("<Q", length) + header.encode() + struct.pack("<f", 3.0))
    assert torch.equal(open_safetensors(file).tensor("a"), load_file(file)["a"])


@pytest.mark.parametrize("kind", FILES)
def test_files_of_other_kinds_are_named(tmp_path: Path, kind: str) -> None:
    name, what, write = FILES[kind]
    write(tmp_path / name)
    with pytest.raises(BadModel, match=what) as refused:
        open_model(tmp_path / name)
    assert len(refused.value.remedy.split()) > 5
    if not name.endswith((".zip", ".npy")):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
        with pytest.raises(BadModel, match=what):
            open_model(tmp_path)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "weights", "notes.md"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "a JSON file"),
        ('\n {"n_layers": 2' + " " * 300, "a JSON file"),
        ("# A model\n\nIt is at …", "a text file"),
        ("ä" * 500, "a text file"),
        ("x" + "ä" * 500, "a text file"),
        ("", "empty"),
    ],
)
def test_text_that_is_given_for_weights_is_said_to_be_text(tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(BadModel) as caught:
        open_model(tmp_path / name)
    assert said in caught.value.what and caught.value.what.startswith(name) and caught.value.remedy
    assert "damaged" not in str(caught.value) and "header" not in str(caught.value)


def test_a_pointer_among_shards_is_named(tmp_path: Path) -> None:
    path = CORPUS["gpt2-sharded"](tmp_path / "m")
    next(path.glob("*-of-*.safetensors")).write_bytes(POINTER)
    with pytest.raises(BadModel, match="pointer of Git LFS"):
        open_model(path)


def test_a_pointer_in_place_of_the_tokenizer_is_named(tmp_path: Path) -> None:
    path = CORPUS["gpt2"](tmp_path / "m")
    (path / "tokenizer.json").write_bytes(POINTER)
    with pytest.raises(BadModel, match=r"tokenizer\.json is a pointer of Git LFS"):
        open_model(path)


def test_adapters_are_named_with_the_model_that_they_change(tmp_path: Path) -> None:
    names = {"base_model.model.h.0.attn.c_attn.lora_A.weight": torch.ones(2, 8)}
    for name in ("adapter_model.safetensors", "other.safetensors"):
        folder = tmp_path / name.partition(".")[0]
        folder.mkdir()
        save_file(names, folder / name)
        if name.startswith("adapter"):
            (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "base_model_name_or_path": "gpt2-xl"}))
        for place in (folder, folder / name):
            with pytest.raises(BadModel, match="adapter") as refused:
                open_model(place)
            assert "merge_and_unload" in refused.value.remedy
            assert ("gpt2-xl" in refused.value.got) is name.startswith("adapter")
    shutil.rmtree(tmp_path / "adapter_model")
    path = CORPUS["gpt2"](tmp_path / "m")
    (path / "adapter_config.json").write_text("{}")
    assert any("not added to the weights" in note for note in open_model(path).notes)


def test_an_unknown_family_shows_its_own_names_and_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tensors = {f"net.h.{i}.heads.{h}.key": torch.ones(3, 2) for i in range(3) for h in range(4)} | {"net.tok": torch.ones(7, 3)}
    folder = tmp_path / "with space"
    folder.mkdir()
    torch.save(tensors, folder / "model.pt")
    with pytest.raises(UnknownFamily) as refused:
        open_model(folder / "model.pt")
    error = refused.value
    assert error.n_tensors == 13
    assert error.tensors == ("net.h.{i}.heads.{h}.key [3, 2] float32, 12 of them", "net.tok [7, 3] float32")
    assert error.command == f"circuitlab import '{folder / 'model.pt'}' --map map.toml --check"
    assert main(["info", str(folder / "model.pt")]) == 3
    said = capsys.readouterr().err
    assert all(line in said for line in (*error.tensors, error.command))


def test_the_names_that_are_shown_are_bounded(tmp_path: Path) -> None:
    torch.save({f"part_{chr(97 + i % 26)}{i}x" + "y" * 300: torch.ones(1) for i in range(500)}, tmp_path / "model.pt")
    with pytest.raises(UnknownFamily) as refused:
        open_model(tmp_path / "model.pt")
    assert len(refused.value.tensors) == 41 and refused.value.tensors[-1] == "and 460 more kinds"
    assert len(str(refused.value)) < 10_000
