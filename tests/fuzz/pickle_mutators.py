"""What a hostile hand puts into a checkpoint of torch: code, shapes and storages that lie, bombs."""

from __future__ import annotations

import os
import pickle
import random
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.fuzz.sharing import PROGRAMS

CANARY = "the-code-ran"  # a folder beside the model that exists only if something in a file was run


class _Runs:
    """Pickles as a call of `function` with `args`."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.call = function, args

    def __reduce__(self) -> Any:
        return self.call


def _held(file: Path) -> Any:
    return torch.load(file, weights_only=True)


def _save(file: Path, held: Any, rng: random.Random) -> None:
    torch.save(held, file, _use_new_zipfile_serialization=rng.random() < 0.6)


def _weights(held: Any) -> dict[str, Any]:
    return held["model"] if isinstance(held.get("model"), dict) else held


def code(file: Path, rng: random.Random) -> str:
    held, canary = _held(file), str(file.parent / CANARY)
    tricks = [
        _Runs(os.mkdir, canary),
        _Runs(os.system, f"mkdir '{canary}'"),
        _Runs(eval, f"__import__('os').mkdir({canary!r})"),
        _Runs(exec, f"import os; os.mkdir({canary!r})"),
        _Runs(getattr, canary, "upper"),
        torch.nn.Linear(2, 2),
    ]
    where = rng.choice(["value", "key", "whole", "name of a tensor"])
    trick = rng.choice(tricks)
    if where == "whole":
        held = trick
    elif where == "value":
        held["extra"] = trick
    elif where == "key":
        held = OrderedDict(held) | {(1, trick): 1} if not isinstance(trick, torch.nn.Module) else {"m": trick}
    else:
        weights = _weights(held)
        weights[rng.choice(sorted(weights))] = trick
    _save(file, held, rng)
    return f"code as {where} in {file.name}"


def lying_tensor(file: Path, rng: random.Random) -> str:
    """A tensor that is not what its place needs."""
    held = _held(file)
    weights = _weights(held)
    name = rng.choice(sorted(weights))
    value = weights[name]
    makers: dict[str, Callable[[], Any]] = {
        "expanded": lambda: torch.zeros(1).expand(10**12),
        "expanded to the shape": lambda: torch.zeros((1,) * value.dim()).expand(value.shape),
        "overlapping": lambda: torch.zeros(100).as_strided((90, 11), (1, 1)),
        "sparse": lambda: torch.eye(4).to_sparse(),
        "meta": lambda: torch.empty(10**12, device="meta"),
        "integers": lambda: value.to(torch.int64),
        "complex": lambda: value.to(torch.complex64),
        "bool": lambda: value > 0,
        "8 bit": lambda: value.to(torch.float8_e4m3fn),
        "double": lambda: value.double(),
        "not contiguous": lambda: value.T.contiguous().T if value.dim() == 2 else torch.stack([value, value], -1)[..., 0],
        "a part": lambda: torch.cat([value.flatten(), value.flatten()])[value.numel() :].view(value.shape),
        "NaN": lambda: value * float("nan"),
        "another shape": lambda: value[..., :-1].clone(),
        "no tensor": lambda: [1, 2],
        "a parameter": lambda: torch.nn.Parameter(value.float()),
        "tied": lambda: weights[rng.choice(sorted(weights))],
    }
    kind = rng.choice(sorted(makers))
    weights[name] = makers[kind]()
    _save(file, held, rng)
    return f"{name} {kind} in {file.name}"


def _repack(
    file: Path, change: Callable[[str, bytes], bytes], compress: bool = False, more: dict[str, bytes] | None = None
) -> None:
    with zipfile.ZipFile(file) as archive:
        entries = [(info.filename, archive.read(info)) for info in archive.infolist()]
    root = entries[0][0].partition("/")[0]
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED) as archive:
        for name, data in [*entries, *((f"{root}/{n}", d) for n, d in (more or {}).items())]:
            archive.writestr(name, change(name, data))


def _as_archive(file: Path) -> None:
    if not zipfile.is_zipfile(file):
        torch.save(_held(file), file)


def archive_entries(file: Path, rng: random.Random) -> str:
    _as_archive(file)
    kind = rng.choice(
        ["compressed", "bomb", "big-endian", "TorchScript", "no pickle", "short storage", "long storage", "CUDA", "many"]
    )
    same = lambda name, data: data
    if kind == "compressed":
        _repack(file, same, compress=True)
    elif kind == "bomb":
        _repack(file, lambda name, data: bytes(80_000_000) if name.endswith("data/0") else data, compress=True)
    elif kind == "big-endian":
        _repack(file, lambda name, data: b"big" if name.endswith("byteorder") else data)
    elif kind == "TorchScript":
        _repack(file, same, more={"constants.pkl": b"\x80\x02).", "code/a.py": b"import os"})
    elif kind == "no pickle":
        _repack(file, lambda name, data: b"" if name.endswith("data.pkl") else data)
    elif kind == "short storage":
        _repack(file, lambda name, data: data[:-4] if "/data/" in name else data)
    elif kind == "long storage":
        _repack(file, lambda name, data: data + bytes(4) if "/data/" in name else data)
    elif kind == "CUDA":
        _repack(file, lambda name, data: data.replace(b"X\x03\0\0\0cpu", b"X\x06\0\0\0cuda:0") if name.endswith(".pkl") else data)
    else:
        _repack(file, same, more={f"x/{i}": b"" for i in range(3000)})
    return f"{kind} in {file.name}"


def archive_directory(file: Path, rng: random.Random) -> str:
    """Sizes, offsets and methods in the zip's own directory that lie."""
    _as_archive(file)
    data = bytearray(file.read_bytes())
    end = data.rfind(b"PK\x05\x06")
    entries = [i for i in range(len(data) - 46) if data[i : i + 4] == b"PK\x01\x02"]
    fields = {
        "method": (10, "<H"),
        "packed": (20, "<I"),
        "size": (24, "<I"),
        "name": (28, "<H"),
        "extra": (30, "<H"),
        "offset": (42, "<I"),
    }
    kind = rng.choice([*fields, "end", "end64", "same place"])
    value = rng.choice([0, 1, 8, 99, 0xFFFF, 0xFFFFFFFF, 2**31, len(data)])
    if kind == "same place":
        first, second = rng.sample(entries, 2)
        data[first + 42 : first + 46] = data[second + 42 : second + 46]
    elif kind == "end":
        struct.pack_into("<I", data, end + rng.choice([12, 16]), value)
    elif kind == "end64":
        struct.pack_into("<Q", data, max(0, end - 76) + rng.choice([24, 32, 40, 48]), value)
    else:
        place, form = fields[kind]
        struct.pack_into(form, data, rng.choice(entries) + place, value & (0xFFFF if form == "<H" else 0xFFFFFFFF))
    file.write_bytes(data)
    return f"{kind} = {value} in the directory of {file.name}"


def _program(rng: random.Random) -> tuple[str, bytes]:
    """A pickle written by hand."""
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x04tQ"
    views = {
        "10 TB": b"K\x00\x8a\x06\0\0\0\0\0\x04\x85K\x01\x85",
        "10 TB of stride 0": b"K\x00\x8a\x06\0\0\0\0\0\x04\x85K\x00\x85",
        "before its storage": b"J\xff\xff\xff\xffK\x01\x85K\x01\x85",
        "behind its storage": b"K\x09K\x01\x85K\x01\x85",
        "negative strides": b"K\x00K\x04\x85J\xff\xff\xff\xff\x85",
        "too few strides": b"K\x00K\x02K\x02\x86K\x01\x85",
        "a size that is text": b"K\x00X\x01\0\0\0a\x85K\x01\x85",
    }
    programs = {f"a tensor of {k}": b"\x80\x02}X\x01\0\0\0a" + tensor + v + b"\x89}tRs." for k, v in views.items()}
    programs |= {
        "deep tuples": b"\x80\x02}X\x01\0\0\0a)" + b"\x85" * 500_000 + b"s.",
        "deep tuples as a key": b"\x80\x02})" + b"\x85" * 500_000 + b"K\x01s.",
        "deep marks": b"\x80\x02" + b"(" * 500_000 + b".",
        "many containers": b"\x80\x02(" + b"}" * 1_000_000 + b"t.",
        "doubling": b"\x80\x02}X\x01\0\0\0a]q\0" + b"".join(b"h\0h\0\x86q\0" for _ in range(60)) + b"s.",
        "a memo far away": b"\x80\x02}r\xff\xff\xff\x7f.",
        "text without end": b"\x80\x02X\xff\xff\xff\xff.",
        "bytes without end": b"\x80\x05\x8e\xff\xff\xff\xff\xff\xff\xff\x7f.",
        "an array without end": b"\x80\x05\x96\xff\xff\xff\xff\xff\0\0\0.",
        "an array by call": b"\x80\x02cbuiltins\nbytearray\n\x8a\x06\0\0\0\0\0\x04\x85R.",
        "a tensor by call": b"\x80\x02ctorch\nTensor\n\x8a\x06\0\0\0\0\0\x04\x85R.",
        "a frame without end": b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.",
        "persistent nonsense": b"\x80\x02}Q.",
        "no stop": b"\x80\x02}",
        "nothing on the stack": b"\x80\x02.",
        "itself": b"\x80\x02}q\0X\x01\0\0\0ah\0s.",
    }
    programs |= PROGRAMS
    kind = rng.choice(sorted(programs))
    return kind, programs[kind]


def program(file: Path, rng: random.Random) -> str:
    kind, data = _program(rng)
    if rng.random() < 0.7:
        _as_archive(file)
        _repack(file, lambda name, old: data if name.endswith("/data.pkl") else old)
    else:
        head = pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2) + pickle.dumps({"little_endian": True}, 2)
        keys = pickle.dumps(["0"], 2) + struct.pack("<Q", rng.choice([4, 2**60, 0])) + bytes(16)
        file.write_bytes(head + data + keys)
    return f"{kind} in {file.name}"


PICKLES = (code, lying_tensor, lying_tensor, archive_entries, archive_directory, program, program)
