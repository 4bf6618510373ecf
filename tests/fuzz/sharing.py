"""Pickles that name one value again and again: small files, and as many values as somebody walks, prints or copies them."""

from __future__ import annotations

import pickle
import struct
import zipfile
from pathlib import Path

TENSOR = b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\n%bX\x03\0\0\0cpuK\x04tQ%b\x89}tR"
STORAGE = b"X\x01\0\0\x000"
WHOLE = b"K\x00K\x04\x85K\x01\x85"  # an offset, sizes, strides
HEAD = b"\x80\x02"


def doubled(times: int = 60) -> bytes:
    """A tuple of 2^times values; the memo's entry 0 is used up."""
    return b"]q\0" + b"".join(b"h\0h\0\x86q\0" for _ in range(times))


def many(items: int, kind: bytes = b"list") -> bytes:
    """A list, dictionary, tuple or text of so many values, which is the memo's entry 1 and not on the stack."""
    if kind == b"dict":
        made = b"}(" + b"".join(b"X" + struct.pack("<I", 5) + b"%05dK\x01" % i for i in range(items)) + b"u"
    elif kind == b"tuple":
        made = b"(" + b"K\x01" * items + b"t"
    elif kind == b"text":
        made = b"X" + struct.pack("<I", items) + b"a" * items
    elif kind == b"pairs":
        made = b"](" + b"".join(b"X" + struct.pack("<I", 5) + b"%05dK\x01\x86" % i for i in range(items)) + b"e"
    else:
        made = b"](" + b"K\x01" * items + b"e"
    return made + b"q\x010"


def _again(each: bytes, times: int) -> bytes:
    """A list of what this makes, so many times."""
    return b"](" + each * times + b"e"


def _held(value: bytes) -> bytes:
    """A state dict with this beside a tensor."""
    return b"}(X\x01\0\0\0a" + TENSOR % (STORAGE, WHOLE) + b"X\x04\0\0\0more" + value + b"u."


_BUILT = b"cmine\nThing\n)\x81h\x01b"
PROGRAMS: dict[str, bytes] = {
    "a key of doubled tuples": HEAD + _held(b"}" + doubled() + b"K\x01s"),
    "doubled tuples as a value": HEAD + _held(doubled()),
    "a storage called by doubled tuples": HEAD + b"}X\x01\0\0\0a" + TENSOR % (doubled(), WHOLE) + b"s.",
    "sizes of doubled tuples": HEAD + b"}X\x01\0\0\0a" + TENSOR % (STORAGE, b"K\x00" + doubled() + b"\x85K\x01\x85") + b"s.",
    "strides of doubled tuples": HEAD + b"}X\x01\0\0\0a" + TENSOR % (STORAGE, b"K\x00K\x04\x85" + doubled() + b"\x85") + b"s.",
    "an offset of doubled tuples": HEAD + b"}X\x01\0\0\0a" + TENSOR % (STORAGE, doubled() + b"K\x04\x85K\x01\x85") + b"s.",
    "sizes again and again": HEAD + many(20_000) + _held(_again(b"ctorch\nSize\nh\x01\x85R", 3_000)),
    "dictionaries by calls": HEAD + many(5_000, b"pairs") + _held(_again(b"ccollections\nOrderedDict\nh\x01\x85R", 2_000)),
    "attributes again and again": HEAD + many(5_000, b"dict") + _held(_again(_BUILT, 2_000)),
    "attributes in pairs": HEAD + many(5_000, b"dict") + _held(_again(b"cmine\nThing\n)\x81h\x01h\x01\x86b", 2_000)),
    "bytes of one text": HEAD + many(200_000, b"text") + _held(_again(b"c_codecs\nencode\nh\x01\x85R", 5_000)),
    "arguments again and again": HEAD + many(20_000, b"tuple") + _held(_again(b"cbuiltins\nset\nh\x01R", 5_000)),
    "a long reference": HEAD + many(20_000, b"tuple") + _held(_again(b"h\x01Q", 5_000)),
    "a call within a call": HEAD
    + _held(b"ctorch._tensor\n_rebuild_from_type_v2\nq\x02" + b"h\x02N" * 5_000 + b"h\x02N)\x87" + b"\x87" * 5_000 + b"R"),
    "long names of classes": b"\x80\x04" + many(200_000, b"text") + _held(_again(b"h\x01h\x01\x93", 5_000)),
    "a long text again and again": HEAD + many(200_000, b"text") + _held(_again(b"h\x01", 5_000)),
    "one dictionary under many keys": HEAD
    + many(20_000, b"dict")
    + b"}(X\x01\0\0\0a"
    + TENSOR % (STORAGE, WHOLE)
    + b"".join(b"X\x05\0\0\0k%04dh\x01" % i for i in range(1_900))
    + b"u.",
    "long keys within long keys": HEAD
    + many(300_000, b"text")
    + b"}q\x02(X\x01\0\0\0a"
    + TENSOR % (STORAGE, WHOLE)
    + b"h\x01h\x02u."
    + b"",
}


def archive(file: Path, program: bytes) -> None:
    """As torch writes it, with a storage of four numbers."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as members:
        members.writestr("archive/data.pkl", program)
        members.writestr("archive/data/0", bytes(16))
        members.writestr("archive/version", b"3\n")


def older(file: Path, program: bytes, version: bytes = b"", machine: bytes = b"", keys: bytes = b"") -> None:
    """As torch wrote it before 1.6; with other pickles in its places."""
    head = pickle.dumps(0x1950A86A20F9469CFC6C, 2) + (version or pickle.dumps(1001, 2))
    head += machine or pickle.dumps({"little_endian": True}, 2)
    file.write_bytes(head + program + (keys or pickle.dumps(["0"], 2)) + struct.pack("<Q", 4) + bytes(16))


def written(folder: Path) -> dict[str, Path]:
    """All of them as files, in both formats."""
    folder.mkdir(parents=True, exist_ok=True)
    made: dict[str, Path] = {}
    for i, (name, program) in enumerate(PROGRAMS.items()):
        made[name] = folder / f"{i}.pt"
        archive(made[name], program)
        made[f"{name}, older"] = folder / f"{i}-older.pt"
        older(made[f"{name}, older"], program)
    whole = HEAD + b"}X\x01\0\0\0a" + TENSOR % (STORAGE, WHOLE) + b"s."
    for name, place in {
        "a version of doubled tuples": {"version": HEAD + doubled() + b"."},
        "a machine of doubled tuples": {"machine": HEAD + doubled() + b"."},
        "a list of doubled tuples": {"keys": HEAD + b"]" + doubled() + b"a."},
    }.items():
        made[name] = folder / f"{len(made)}-older.pt"
        older(made[name], whole, **place)
    return made
