"""Readers of model files against files that lie: each says what is wrong, before it takes memory, and runs nothing."""

from __future__ import annotations

import json
import os
import shutil
import struct
import warnings
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadModel, Cancelled
from circuitlab.model.config import ModelConfig, Rotary
from circuitlab.model.files.described import Inert, key_of
from circuitlab.model.files.pickled import read_pickle
from circuitlab.model.files.tensors import MappedTensors, check_finite, copied, open_safetensors
from circuitlab.model.files.whole_file import WholeFile
from circuitlab.model.forward import forward
from circuitlab.model.loading import Keep, open_model
from circuitlab.model.loading.checkpoint import weight_files
from circuitlab.model.loading.layout import matrix
from circuitlab.model.subject import ModelRef
from tests.fuzz.corpus import CORPUS
from tests.models import CONFIGS, directory
from tests.patience import SECONDS


def _tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    wide = torch.randn(6, 5, generator=generator)
    return {
        "wide": wide,
        "tied": wide,
        "part": wide[2:4, 1:],
        "turned": wide.T,
        "half": wide.half(),
        "brain": wide.bfloat16(),
        "double": wide.double(),
        "none": torch.zeros(0, 3),
        "scalar": torch.tensor(2.5),
        "parameter": torch.nn.Parameter(wide[0].clone()),
    }


def _opened(path: Path) -> MappedTensors:
    contents = read_pickle(path)
    assert contents is not None
    return contents.tensors


FORMATS = [{}, {"_use_new_zipfile_serialization": False}, {"pickle_protocol": 4}, {"pickle_protocol": 5}]


@pytest.mark.parametrize("how", FORMATS)
def test_pickles_give_the_tensors_that_torch_gives(tmp_path: Path, how: dict) -> None:
    path = tmp_path / "a.pt"
    torch.save({"model": OrderedDict(_tensors()), "model_args": {"n_layer": 2, "bias": False}, "step": 7}, path, **how)
    contents = read_pickle(path)
    assert contents is not None
    source, said = contents.tensors, contents.metadata
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch about newer protocols
        wanted = _tensors() if "pickle_protocol" in how else torch.load(path, weights_only=True)["model"]
    assert source.names() == set(wanted)
    assert not source.resident
    for name, value in wanted.items():
        for got in (source.tensor(name), source.copy(name)):
            assert torch.equal(got, value), name
            assert (got.dtype, got.stride()) == (value.dtype, value.stride()), name
    assert said == {"model_args": {"n_layer": 2, "bias": False}, "step": 7}


def test_tied_tensors_are_read_once(tmp_path: Path) -> None:
    torch.save(_tensors(), tmp_path / "a.pt")
    made = copied(_opened(tmp_path / "a.pt"))
    assert made.tensor("wide").data_ptr() == made.tensor("tied").data_ptr() != made.tensor("part").data_ptr()
    assert made.tensor("brain").dtype == torch.float32


class _Runs:
    def __init__(self, *call: object) -> None:
        self.call = call

    def __reduce__(self) -> tuple:
        return self.call[0], self.call[1:]


@pytest.mark.parametrize("how", FORMATS)
@pytest.mark.parametrize("where", ["value", "whole", "nested"])
def test_code_in_a_pickle_is_not_run(tmp_path: Path, how: dict, where: str) -> None:
    trick = _Runs(os.mkdir, str(tmp_path / "ran"))
    held = {"value": {"a": torch.zeros(2), "b": trick}, "whole": trick, "nested": {"model": {"a": [[trick]]}}}[where]
    torch.save(held, tmp_path / "a.pt", **how)
    with pytest.raises(BadModel, match=r"mkdir; it was not run"):
        read_pickle(tmp_path / "a.pt")
    assert not (tmp_path / "ran").exists()
    torch.load(tmp_path / "a.pt", weights_only=False)  # and it would have run
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("how", FORMATS[:2])
def test_a_small_file_cannot_claim_a_large_tensor(tmp_path: Path, how: dict) -> None:
    torch.save({"a": torch.zeros(1).expand(10**13)}, tmp_path / "a.pt", **how)
    with pytest.raises(BadModel, match="repeats its numbers"):
        read_pickle(tmp_path / "a.pt")


def test_many_overlapping_views_are_not_copied_one_by_one(tmp_path: Path) -> None:
    whole = torch.zeros(2**20)
    torch.save({str(i): whole[i:] for i in range(300)}, tmp_path / "a.pt")
    with pytest.raises(BadModel, match="overlap"):
        read_pickle(tmp_path / "a.pt")


@pytest.mark.parametrize(
    "value",
    [torch.eye(3).to_sparse(), torch.empty(10**12, device="meta"), torch.ones(3, dtype=torch.int64), torch.ones(3) > 0],
    ids=["sparse", "meta", "integers", "bool"],
)
def test_what_is_no_weight_is_an_error_only_where_it_is_needed(tmp_path: Path, value: torch.Tensor) -> None:
    torch.save({"a": torch.ones(3), "mask": value}, tmp_path / "a.pt")
    source = _opened(tmp_path / "a.pt")
    assert torch.equal(source.copy("a"), torch.ones(3))
    with pytest.raises(BadModel, match=r"as a weight|weights do not have"):
        source.tensor("mask")


_ODD_KEYS: dict[str, tuple[Any, Any]] = {  # beside the weights {"a": …}, and what is said of it
    "tuple": ({(0, "w"): torch.ones(2)}, "(0, 'w') (a tensor whose key is not a name)"),
    "twice": ({7: torch.ones(2), "7": torch.zeros(3)}, "7 (a tensor whose key is not a name)"),
    "dtype": ({"x": {torch.float32: 1}}, "x.torch.float32 (int)"),
    "path": ({"x": {Path("p"): 1}}, "PosixPath (int)" if os.name == "posix" else "WindowsPath (int)"),
    "nested": ({"x": {((1, (2, (3, 4))), b"k"): 1}}, "((1, a list of objects), b'k') (int)"),
    "escape": ({("\x1b[2J",): torch.ones(2)}, "(a tensor whose key is not a name)"),
    "counter": ({"x": Counter({("a", "b"): 2})}, "x (collections.Counter)"),
}


@pytest.mark.parametrize("how", FORMATS[:2])
@pytest.mark.parametrize("kind", _ODD_KEYS)
def test_keys_that_are_no_names_are_passed_over_and_named(tmp_path: Path, how: dict, kind: str) -> None:
    more, said = _ODD_KEYS[kind]
    torch.save({"a": torch.ones(3), **more}, tmp_path / "a.pt", **how)
    contents = read_pickle(tmp_path / "a.pt")
    assert contents is not None and torch.equal(contents.tensors.copy("a"), torch.ones(3))
    assert len(contents.skipped) == 1 and said in contents.skipped[0] and contents.skipped[0].isprintable()
    assert contents.tensors.names() == {"a"} | {k for k in more if isinstance(k, str) and isinstance(more[k], torch.Tensor)}


def test_a_key_is_printed_without_what_a_terminal_would_obey() -> None:
    """Also the name of a class, which a pickle may call as it likes; and one that has no end, or no digits that can be had."""
    nested: Any = ()
    for _ in range(100_000):
        nested = (nested,)
    for key in (Inert("a\x1b[2J"), (Inert("\u202e"),), nested, (10**5000,), (float("nan"), None, True)):
        assert str(key_of(key)).isprintable() and len(str(key_of(key))) < 300
    while nested:
        (nested,) = nested


@pytest.mark.parametrize("how", FORMATS[:2])
def test_numbers_are_names_and_tuples_alone_are_said_to_be_none(tmp_path: Path, how: dict) -> None:
    torch.save({0: torch.zeros(2), 1: torch.ones(2)}, tmp_path / "a.pt", **how)
    assert _opened(tmp_path / "a.pt").names() == {"0", "1"}
    torch.save({"model": {(0, "w"): torch.ones(2)}}, tmp_path / "a.pt", **how)
    with pytest.raises(BadModel, match="not names") as caught:
        read_pickle(tmp_path / "a.pt")
    assert caught.value.got == "(0, 'w')" and "torch.save" in caught.value.remedy and "damaged" not in str(caught.value)


_UNUSUAL = {
    "sparse": (lambda: torch.eye(4).to_sparse(), "to_dense"),
    "csr": (lambda: torch.eye(4).to_sparse_csr(), "to_dense"),
    "quantised": (lambda: torch.quantize_per_tensor(torch.eye(4), 0.1, 0, torch.qint8), "dequantize"),
    "by channel": (
        lambda: torch.quantize_per_channel(torch.eye(4), torch.ones(4), torch.zeros(4, dtype=torch.int64), 0, torch.qint8),
        "dequantize",
    ),
    "meta": (lambda: torch.eye(4, device="meta"), "no numbers"),
}


@pytest.mark.filterwarnings("ignore:.*")
@pytest.mark.parametrize("how", FORMATS[:2])
@pytest.mark.parametrize("kind", _UNUSUAL)
def test_tensors_of_other_kinds_say_what_they_are_and_what_to_do(tmp_path: Path, how: dict, kind: str) -> None:
    """Beside the weights they are in nobody's way; in the place of a weight the error is about them, not about a shape."""
    make, remedy = _UNUSUAL[kind]
    torch.save({"a": torch.ones(3), "odd": make()}, tmp_path / "a.pt", **how)
    source = _opened(tmp_path / "a.pt")
    assert torch.equal(source.copy("a"), torch.ones(3))
    for ask in (lambda: source.tensor("odd"), lambda: matrix(source, "odd")):
        with pytest.raises(BadModel, match="as a weight") as caught:
            ask()
        assert remedy in caught.value.remedy and "damaged" not in str(caught.value)


def test_compressed_archives_are_refused(tmp_path: Path) -> None:
    import zipfile

    torch.save({"a": torch.zeros(2**20)}, tmp_path / "a.pt")
    with zipfile.ZipFile(tmp_path / "a.pt") as old, zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with pytest.raises(BadModel, match="stored as they are"):
        read_pickle(tmp_path / "b.pt")


def _header(path: Path, header: str, body: bytes = bytes(16)) -> Path:
    path.write_bytes(struct.pack("<Q", len(header)) + header.encode() + body)
    return path


HEADERS = {
    "twice": (
        '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}',
        "twice",
    ),
    "overlap": (
        '{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},"b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}',
        "overlaps",
    ),
    "gap": (
        '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}}',
        "gap",
    ),
    "short": ('{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}', "bytes by its header"),
    "shape": ('{"a":{"dtype":"F32","shape":[5],"data_offsets":[0,16]}}', "20 bytes of a"),
    "huge shape": ('{"a":{"dtype":"F32","shape":[0, 1e30],"data_offsets":[0,0]}}', "impossible shape"),
    "deep": ('{"a":' + "[" * 50_000, "nesting without end"),
    "name": ('{"\\u001b[2J":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}', "without a usable name"),
}


@pytest.mark.parametrize("kind", HEADERS)
def test_headers_that_lie_are_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(BadModel, match=HEADERS[kind][1]):
        open_safetensors(_header(tmp_path / "a.safetensors", HEADERS[kind][0]))


def test_safetensors_are_what_the_library_reads(tmp_path: Path) -> None:
    tensors = {n: t.detach().contiguous().clone() for n, t in _tensors().items()} | {"ids": torch.arange(3)}
    save_file(tensors, tmp_path / "a.safetensors", metadata={"format": "pt"})
    source = open_safetensors(tmp_path / "a.safetensors")
    for name, value in load_file(tmp_path / "a.safetensors").items():
        if name != "ids":
            assert torch.equal(source.tensor(name), value)
            assert torch.equal(source.copy(name), value)
    assert source.kind("ids") == "I64"


@pytest.mark.parametrize("kind", ["pipe", "folder", "circle", "device", "nowhere"])
@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_only_regular_files_are_opened(tmp_path: Path, kind: str, name: str) -> None:
    path = directory(tmp_path / "m")
    file = path / name
    file.unlink()
    makers = {
        "pipe": lambda: os.mkfifo(file),
        "folder": file.mkdir,
        "circle": lambda: file.symlink_to(name),
        "device": lambda: file.symlink_to("/dev/zero"),
        "nowhere": lambda: file.symlink_to("nobody"),
    }
    makers[kind]()
    with pytest.raises(BadModel, match=name):
        ModelStore().open(ModelRef(f"file:{path}"))


@pytest.mark.parametrize("corpus", ["gpt2", "gpt2-sharded", "gpt2-bin", "gpt2-bin-older", "gpt2-bin-sharded"])
def test_a_file_cut_while_it_is_mapped_is_an_error_not_a_signal(tmp_path: Path, corpus: str) -> None:
    path = CORPUS[corpus](tmp_path / "m")
    weights = open_model(path, "mapped").weights
    assert forward(weights, (1, 2, 3)).logits().shape == (3, 11)
    for file in weight_files(path):
        os.truncate(file, file.stat().st_size // 3)
    with pytest.raises(BadModel, match=r"ends too early|has been changed since it was opened"):
        forward(weights, (1, 2, 3))


@pytest.mark.parametrize("keep", ["lazy", "mapped"])
def test_no_number_is_of_two_contents_of_a_file(tmp_path: Path, keep: Keep) -> None:
    """Written into, an open file is refused; replaced by another of its name, the one that was opened is read on."""
    path = CORPUS["gpt2"](tmp_path / "m")
    (file,) = weight_files(path)
    before = forward(open_model(path).weights, (1, 2, 3)).logits()
    replaced = open_model(path, keep).weights
    other = tmp_path / "other"
    other.write_bytes(bytes(file.stat().st_size))
    kept = shutil.copy(file, tmp_path / "kept")
    os.replace(other, file)
    torch.testing.assert_close(forward(replaced, (1, 2, 3)).logits(), before)
    os.replace(kept, file)
    written_into = open_model(path, keep).weights
    with file.open("r+b") as stream:
        stream.seek(-64, os.SEEK_END)
        stream.write(bytes(64))
    os.utime(file, ns=(0, file.stat().st_mtime_ns + 10**6))  # however coarse the clock of the disk
    with pytest.raises(BadModel, match="has been changed since it was opened"):
        forward(written_into, (1, 2, 3))


def test_a_file_cut_while_it_is_copied_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(10_000))
    file = WholeFile(path)
    assert torch.equal(file.copy(0, 6000), torch.zeros(6000, dtype=torch.uint8))
    os.truncate(path, 6000)
    with pytest.raises(BadModel, match="6,000 bytes instead of 10,000"):  # another content, though these bytes are there
        file.copy(0, 6000)
    for read in (file.copy, file.read, file.view):
        with pytest.raises(BadModel, match="10000 when it was opened" if read != file.copy else "ends too early"):
            read(0, 10_000)


@pytest.mark.parametrize(
    "changes",
    [
        {"n_layers": 10**9},
        {"d_vocab": 10**12},
        {"n_ctx": 10**18},
        {"d_head": 10**9},
        {"norm_eps": float("nan")},
        {"norm_eps": "1e-5"},
        {"embed_scale": float("inf")},
        {"gated": "yes"},
        {"windows": [1.5, 2]},
        {"biases": [["q"]]},
        {"family": ["x"]},
    ],
)
def test_configurations_beyond_any_model_are_refused_at_once(tmp_path: Path, changes: dict) -> None:
    path = directory(tmp_path / "m")
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(BadModel):
        open_model(path)


@pytest.mark.parametrize(
    "changes", [{"base": 0.0}, {"base": -2.0}, {"base": "x"}, {"dims": 10**12}, {"dims": -2}, {"theta": ("a",)}]
)
def test_rotations_that_cannot_be_are_refused(changes: dict) -> None:
    with pytest.raises(BadModel):
        Rotary(**changes)


def test_a_layer_count_is_refused_before_layers_are_counted() -> None:
    with pytest.raises(BadModel, match="beyond any model"):
        ModelConfig(n_layers=10**9, n_heads=1, d_model=2, d_head=2, d_vocab=3, n_ctx=4)


@pytest.mark.parametrize(
    "name", ["../model.safetensors", "/etc/passwd", "a/b.safetensors", "C:\\a.safetensors", "", "a\0.safetensors"]
)
def test_an_index_names_files_of_its_own_folder_alone(tmp_path: Path, name: str) -> None:
    path = CORPUS["gpt2-sharded"](tmp_path / "m")
    index = path / "model.safetensors.index.json"
    data = json.loads(index.read_text())
    data["weight_map"]["wte.weight"] = name
    index.write_text(json.dumps(data))
    with pytest.raises(BadModel, match="outside its folder"):
        open_model(path)


def test_two_shards_may_not_have_the_same_tensor(tmp_path: Path) -> None:
    path = CORPUS["gpt2-sharded"](tmp_path / "m")
    first, second = weight_files(path)
    save_file(load_file(second) | {"wte.weight": load_file(first).get("wte.weight", torch.zeros(11, 8))}, second)
    save_file(load_file(first) | {"wte.weight": torch.zeros(11, 8)}, first)
    with pytest.raises(BadModel, match="same name"):
        open_model(path)


def test_a_link_out_of_the_folder_is_followed_as_the_cache_of_the_hub_needs(tmp_path: Path) -> None:
    path = CORPUS["gpt2"](tmp_path / "m")
    (tmp_path / "blobs").mkdir()
    (path / "model.safetensors").rename(tmp_path / "blobs" / "1")
    (path / "model.safetensors").symlink_to(tmp_path / "blobs" / "1")
    assert open_model(path).weights.config.n_layers == 2


def test_the_same_key_twice_is_refused(tmp_path: Path) -> None:
    path = CORPUS["gpt2"](tmp_path / "m")
    config = (path / "config.json").read_text()
    (path / "config.json").write_text(config.replace("{", '{"n_layer": 1, ', 1))
    with pytest.raises(BadModel, match="'n_layer' occurs twice"):
        open_model(path)


# -- the store -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("corpus", ["gpt2", "gpt2-sharded", "gpt2-bin", "gpt2-bin-sharded", "llama-pt-f16"])
def test_weights_of_every_kind_of_file_count_towards_what_is_copied(tmp_path: Path, corpus: str) -> None:
    path = CORPUS[corpus](tmp_path / "m")
    size = sum(f.stat().st_size for f in weight_files(path))
    ref = ModelRef(f"file:{path}")
    assert ModelStore(largest_copy=size).open(ref).opened.weights.resident
    mapped = ModelStore(largest_copy=size - 1).open(ref)
    assert not mapped.opened.weights.resident
    assert "read from the file" in " ".join(mapped.opened.notes)
    tokens = (1, 2, 3)
    wanted = forward(ModelStore(largest_copy=size).open(ref).opened.weights, tokens).logits()
    torch.testing.assert_close(forward(mapped.opened.weights, tokens).logits(), wanted, rtol=1e-5, atol=1e-5)


def test_half_precision_counts_as_the_float32_that_a_copy_of_it_is(tmp_path: Path) -> None:
    path = directory(tmp_path / "m", CONFIGS["llama"], d_vocab=3000, d_vocab_out=3000)
    tensors = load_file(path / "model.safetensors")
    save_file({name: value.half() for name, value in tensors.items()}, path / "model.safetensors")
    size, whole = (path / "model.safetensors").stat().st_size, sum(4 * t.numel() for t in tensors.values())
    assert whole > 1.9 * size
    ref = ModelRef(f"file:{path}")
    assert ModelStore(largest_copy=whole).open(ref).opened.weights.resident
    assert not ModelStore(largest_copy=whole - 1).open(ref).opened.weights.resident


def test_a_single_file_is_measured_and_watched(tmp_path: Path) -> None:
    path = CORPUS["llama-pt-f16"](tmp_path / "m")
    ref = ModelRef(f"file:{path / 'weights.pt'}")
    assert not ModelStore(largest_copy=10).open(ref).opened.weights.resident

    def meddling(place: Path, keep: str, *more: object) -> object:
        opened = open_model(place, keep)  # type: ignore[arg-type]
        os.utime(place, ns=(1, 1))
        return opened

    with pytest.raises(BadModel, match="changed while"):
        ModelStore(opener=meddling).open(ref)  # type: ignore[arg-type]


def test_a_failed_open_leaves_what_was_open(tmp_path: Path) -> None:
    good, bad = ModelRef(f"file:{CORPUS['gpt2'](tmp_path / 'a')}"), ModelRef(f"file:{CORPUS['gpt2-bin'](tmp_path / 'b')}")
    store = ModelStore(most=1)
    kept = store.open(good)
    (tmp_path / "b" / "pytorch_model.bin").write_bytes(b"PK\x03\x04 and nothing else")
    with pytest.raises(BadModel):
        store.open(bad)
    assert store.peek(good) is kept
    assert store.peek(bad) is None
    os.truncate(tmp_path / "a" / "model.safetensors", 100)
    with pytest.raises(BadModel):
        store.reload(good)
    assert store.peek(good) is kept
    assert forward(kept.opened.weights, (1, 2)).logits().shape == (2, 11)
    assert kept.changed_on_disk


def test_opening_twice_at_once_opens_once_and_others_go_on(tmp_path: Path) -> None:
    import threading

    slow_path, other_path = CORPUS["gpt2"](tmp_path / "slow"), CORPUS["llama-bf16"](tmp_path / "other")
    began, go_on, count = threading.Event(), threading.Event(), []

    def opener(path: Path, keep: str, *more: object) -> object:
        if path == slow_path:
            count.append(path)
            began.set()
            assert go_on.wait(SECONDS)
        return open_model(path, keep)  # type: ignore[arg-type]

    store = ModelStore(opener=opener)  # type: ignore[arg-type]
    slow, other = ModelRef(f"file:{slow_path}"), ModelRef(f"file:{other_path}")
    running = store.open(other)
    got: list[object] = []
    threads = [threading.Thread(target=lambda: got.append(store.open(slow))) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert began.wait(SECONDS)
    assert store.open(other) is running  # while the other one is being opened
    assert forward(running.opened.weights, (1, 2)).logits().shape == (2, 11)
    assert store.peek(slow) is None
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert len(count) == 1
    assert got[0] is got[1] is store.peek(slow)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_every_number_is_looked_at(dtype: torch.dtype) -> None:
    for bad in (float("nan"), float("inf"), -float("inf")):
        for at in (0, 1, 31, 32, 500, 1022, 1023):
            value = torch.full((1024,), torch.finfo(dtype).max, dtype=dtype)
            check_finite("x", value)
            value[at] = bad
            for shaped in (value, value.view(32, 32).T):
                with pytest.raises(BadModel, match="1 NaN or infinite"):
                    check_finite("x", shaped)


@pytest.mark.parametrize("keep", ["resident", "mapped"])
@pytest.mark.parametrize("corpus", ["gpt2", "gpt2-bin"])
def test_weights_that_are_not_finite_are_found_when_they_are_read(tmp_path: Path, keep: str, corpus: str) -> None:
    path = CORPUS[corpus](tmp_path / "m")
    (file,) = weight_files(path)
    tensors = load_file(file) if corpus == "gpt2" else torch.load(file, weights_only=True)
    tensors["h.1.mlp.c_proj.weight"][3, 4] = torch.nan
    save_file(tensors, file) if corpus == "gpt2" else torch.save(tensors, file)
    with pytest.raises(BadModel, match=r"h\.1\.mlp\.c_proj\.weight has weights that are not numbers"):
        forward(open_model(path, keep).weights, (1, 2))  # type: ignore[arg-type]


def test_a_changed_configuration_is_another_model(tmp_path: Path) -> None:
    path = CORPUS["gpt2"](tmp_path / "m")
    ref, store = ModelRef(f"file:{path}"), ModelStore()
    first = store.open(ref)
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "layer_norm_epsilon": 0.5}))
    second = store.reload(ref)
    assert second.opened.weights.config.norm_eps == 0.5
    assert second.identity == first.identity
    assert second.key != first.key


def test_a_large_file_is_read_as_it_is_used_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from circuitlab.engine import store as module

    monkeypatch.setattr(module, "SMALL", 0)
    ref = ModelRef(f"file:{directory(tmp_path / 'm', CONFIGS['gpt2'])}")
    asked: list[str] = []
    copy = MappedTensors.copy
    monkeypatch.setattr(MappedTensors, "copy", lambda self, name: (asked.append(name), copy(self, name))[1])
    store = ModelStore()
    weights = store.open(ref).opened.weights
    assert weights.resident
    assert not asked, "opening reads the header alone"
    first = weights.layer(1)
    assert asked
    assert all(name.startswith("layers.1.") for name in asked)
    assert weights.layer(1).W_Q.data_ptr() == first.W_Q.data_ptr()
    store.read_whole(ref)
    assert sorted(asked) == sorted(set(asked)), "each tensor once"
    asked.clear()
    store.read_whole(ref)
    assert not asked


def test_damage_in_a_large_file_is_found_when_it_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from circuitlab.engine import store as module

    monkeypatch.setattr(module, "SMALL", 0)
    path = directory(tmp_path / "m")
    tensors = load_file(path / "model.safetensors")
    tensors["layers.1.W_O"][0, 0, 0] = torch.nan
    save_file(tensors, path / "model.safetensors")
    store, ref = ModelStore(), ModelRef(f"file:{path}")
    store.open(ref)
    with pytest.raises(BadModel, match=r"layers\.1\.W_O"):
        store.read_whole(ref)
    with pytest.raises(Cancelled):
        store.read_whole(ref, lambda: True)
