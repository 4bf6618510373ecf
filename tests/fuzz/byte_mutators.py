"""What transport and disks do to any file: cut, flipped, changed as if it were text, replaced."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

Mutator = Callable[[Path, random.Random], str]


def _edit(change: Callable[[bytearray, random.Random], str]) -> Mutator:
    def mutate(file: Path, rng: random.Random) -> str:
        if not file.is_file():  # a pipe that stands there by now is never read to its end
            raise FileNotFoundError(file)
        data = bytearray(file.read_bytes())
        said = change(data, rng)
        file.write_bytes(data)
        return f"{said} in {file.name}"

    mutate.__name__ = change.__name__.strip("_")
    return mutate


def _somewhere(data: bytearray, rng: random.Random) -> int:
    """A place in a file, more often in its head or tail, where the structure is."""
    n = max(1, len(data))
    return rng.choice(
        [rng.randrange(n), rng.randrange(min(n, 64)), rng.randrange(min(n, 2000)), n - 1 - rng.randrange(min(n, 400))]
    )


def _truncated(data: bytearray, rng: random.Random) -> str:
    at = _somewhere(data, rng)
    del data[at:]
    return f"cut at {at}"


def _bits(data: bytearray, rng: random.Random) -> str:
    many = rng.choice([1, 1, 2, 8, 64])
    for _ in range(many if data else 0):
        data[_somewhere(data, rng)] ^= 1 << rng.randrange(8)
    return f"{many} bits flipped"


def _bytes(data: bytearray, rng: random.Random) -> str:
    for _ in range(4 if data else 0):
        data[_somewhere(data, rng)] = rng.choice([0, 255, 128, 127, rng.randrange(256)])
    return "bytes set"


def _inserted(data: bytearray, rng: random.Random) -> str:
    at = _somewhere(data, rng)
    data[at:at] = rng.randbytes(rng.choice([1, 7, 64, 5000]))
    return f"bytes put in at {at}"


def _taken(data: bytearray, rng: random.Random) -> str:
    at = _somewhere(data, rng)
    del data[at : at + rng.choice([1, 3, 40, 700])]
    return f"bytes taken out at {at}"


def _zeros(data: bytearray, rng: random.Random) -> str:
    at = _somewhere(data, rng)
    data[at : at + 512] = bytes(len(data[at : at + 512]))
    return f"zeros at {at}"


def _doubled(data: bytearray, rng: random.Random) -> str:
    at = _somewhere(data, rng)
    data[at:at] = data[at : at + 300]
    return f"a block twice at {at}"


def _crlf(data: bytearray, rng: random.Random) -> str:
    data[:] = data.replace(b"\n", b"\r\n") if rng.random() < 0.6 else data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return "line ends changed"


def _empty(data: bytearray, rng: random.Random) -> str:
    data.clear()
    return "emptied"


def _longer(data: bytearray, rng: random.Random) -> str:
    data += rng.choice([b"\0", b"\n", b"PK\x05\x06" + bytes(18), rng.randbytes(1000), bytes(data)])
    return "lengthened"


def _noise(data: bytearray, rng: random.Random) -> str:
    head = rng.choice([b"", b"PK\x03\x04", b"\x80\x02", b"{", b"\x89HDF", b"\x00" * 8, b"\xff" * 8])
    data[:] = head + rng.randbytes(max(64, min(len(data), 5000)))
    return f"noise behind {head!r}"


BYTES: tuple[Mutator, ...] = tuple(
    map(
        _edit,
        (
            _truncated,
            _truncated,
            _bits,
            _bits,
            _bits,
            _bytes,
            _inserted,
            _taken,
            _zeros,
            _doubled,
            _crlf,
            _empty,
            _longer,
            _noise,
        ),
    )
)
