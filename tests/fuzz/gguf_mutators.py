"""What a hostile hand writes into a GGUF file: counts, lengths, types and offsets of its header, scales of its blocks."""

from __future__ import annotations

import random
import struct
from pathlib import Path

_EVIL = (0, 1, 2, 3, 7, 9, 31, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**60, 2**63, 2**64 - 1)


def _header_end(data: bytes) -> int:
    """About where the data begin: behind the last name of a tensor."""
    return max(data.rfind(b".weight"), data.rfind(b".bias"), 64) + 40


def header_number(file: Path, rng: random.Random) -> str:
    """A small number of eight bytes in the header, a length or a count most often, becomes another one."""
    data = bytearray(file.read_bytes())
    end = min(_header_end(data), len(data) - 8)
    places = [at for at in range(8, max(9, end)) if data[at + 2 : at + 8] == bytes(6) and any(data[at : at + 2])]
    at = rng.choice(places or [8])
    value = struct.unpack_from("<Q", data, at)[0]
    struct.pack_into("<Q", data, at, rng.choice([*_EVIL, value + 1, max(0, value - 1), value * 32]) % 2**64)
    file.write_bytes(data)
    return f"the number {value} at {at} of {file.name}"


def key_value(file: Path, rng: random.Random) -> str:
    """The value of a key: another number, or another type of it."""
    data = bytearray(file.read_bytes())
    keys = b"head_count block_count _length epsilon freq_base _token_id dimension_count _token pre".split()
    key = rng.choice(keys)
    at = data.find(key)
    if at >= 0:
        struct.pack_into("<I", data, at + len(key) + (0 if rng.random() < 0.3 else 4), rng.choice(_EVIL) % 2**32)
    file.write_bytes(data)
    return f"the value of {key.decode()} in {file.name}"


def renamed(file: Path, rng: random.Random) -> str:
    """A key or a tensor under a name of the same length."""
    data = file.read_bytes()
    names = b"attn_q ffn_up blk.1. token_embd merges tokens scores head_count general.arch llama".split()
    name = rng.choice(names)
    file.write_bytes(data.replace(name, name[:-1] + bytes([rng.choice(b"abzZ0.\xff")]), rng.choice([1, 1, 100])))
    return f"{name.decode()} renamed in {file.name}"


def scales(file: Path, rng: random.Random) -> str:
    """Bytes of the data that make NaN, infinite and huge scales."""
    data = bytearray(file.read_bytes())
    start = min(_header_end(data), len(data) - 2)
    for _ in range(rng.choice([1, 20])):
        at = rng.randrange(max(1, start), max(2, len(data) - 1))
        data[at : at + 2] = rng.choice([b"\x00\x7c", b"\x00\xfc", b"\xff\xff", b"\xff\x7b"])
    file.write_bytes(data)
    return f"scales in {file.name}"


GGUF = (header_number, header_number, header_number, key_value, key_value, renamed, scales)
