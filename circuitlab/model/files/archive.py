"""Torch's archives: a zip with uncompressed entries, so that every storage can be memory-mapped.

Refused are entries that are compressed (a small file could grow without end), overlap or lie outside the file, two entries of one
name, and a directory larger than torch would ever write.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Mapping
from itertools import pairwise

from circuitlab.counting import number_of
from circuitlab.errors import BadModel
from circuitlab.model.files.whole_file import WholeFile

LARGEST_PICKLE = 4 * 2**20  # bytes of structure: about 30 000 tensors
_LARGEST_DIRECTORY = 16 * 2**20
_END, _END64 = b"PK\x05\x06", b"PK\x06\x06"
_LOCAL = b"PK\x03\x04"


def is_archive(file: WholeFile) -> bool:
    """Whether this is a zip archive, possibly damaged."""
    return file.read(0, min(4, file.size)) == _LOCAL or _end(file) is not None


def entries(file: WholeFile) -> Mapping[str, tuple[int, int]]:
    """(start, stop) in bytes of each entry, by its name below the archive's top folder. Raises `BadModel`."""
    check_directory(file)
    try:
        with file.duplicate() as handle, zipfile.ZipFile(handle) as archive:
            infos = archive.infolist()
        spans = {info.filename: _span(file, info) for info in infos}
        sums = {info.filename: info.CRC for info in infos}
    except (zipfile.BadZipFile, struct.error, ValueError, NotImplementedError, OSError, EOFError, OverflowError) as error:
        raise damaged(file, "a zip directory", str(error)[:150] or type(error).__name__) from error
    if len(spans) != len(infos):
        raise damaged(file, "each entry once", "two entries of one name")
    in_order = sorted(spans.values())
    if any(after[0] < before[1] for before, after in pairwise(in_order)):
        raise damaged(file, "entries side by side", "entries that overlap")
    for name in (name for name in spans if name.endswith("/data.pkl")):  # now, when all of them have no more bytes than the file
        _check_sum(file, spans[name], sums[name])
    return {name.partition("/")[2] or name: span for name, span in spans.items()}


def structure(file: WholeFile, spans: Mapping[str, tuple[int, int]], largest: int = LARGEST_PICKLE) -> bytes:
    """The pickle of an archive with these entries, of at most so many bytes.

    Raises `BadModel` where there is none, or its numbers are big-endian.
    """
    if "constants.pkl" in spans or any(name.startswith("code/") for name in spans):
        raise BadModel(
            f"{file.name} is a TorchScript program.",
            expected="a state dict: tensors by name, nothing that runs",
            got="an archive with code in it",
            remedy="Load it with its own code and save its state_dict.",
        )
    if "data.pkl" not in spans:
        raise damaged(file, "an archive of torch.save, with data.pkl", ", ".join(map(ascii, list(spans)[:4])) or "nothing")
    if "byteorder" in spans and (order := file.read(*spans["byteorder"])[:20]) != b"little":
        raise damaged(file, "little-endian numbers", ascii(order))
    start, stop = spans["data.pkl"]
    if stop - start > largest:
        raise BadModel(
            f"{file.name} holds too much besides tensors.",
            expected=f"a structure of at most {largest >> 20} MiB, with the numbers in tensors",
            got=f"{number_of(stop - start, 'byte')} of structure (NumPy arrays, long lists and texts count)",
            remedy="Save the state dict alone: torch.save(model.state_dict(), FILE).",
        )
    return file.read(start, stop)


def _span(file: WholeFile, info: zipfile.ZipInfo) -> tuple[int, int]:
    """(start, stop) in bytes of an entry, by its local header. Raises `BadModel`."""
    name = ascii(info.filename)[:100]
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
        raise damaged(
            file,
            "entries stored as they are",
            f"{name} is compressed or encrypted ({number_of(info.file_size, 'byte')} when opened)",
        )
    head = file.read(info.header_offset, info.header_offset + 30)
    if not head.startswith(_LOCAL):
        raise damaged(file, f"the head of {name} at byte {info.header_offset}", ascii(head[:4]))
    start = info.header_offset + 30 + sum(struct.unpack_from("<HH", head, 26))
    if info.file_size != info.compress_size or start + info.file_size > file.size:
        raise damaged(file, f"{name} within the file", f"{number_of(info.file_size, 'byte')} from byte {start}")
    return start, start + info.file_size


def _check_sum(file: WholeFile, span: tuple[int, int], wanted: int) -> None:
    """Raise `BadModel` for a pickle with other bytes than were saved; one that is too large is refused where it is read."""
    if span[1] - span[0] <= LARGEST_PICKLE and zlib.crc32(file.read(*span)) != wanted:
        raise damaged(file, "the structure that was saved", "another checksum")


def _end(file: WholeFile) -> int | None:
    """The byte at which the end record of the directory begins, None without one."""
    tail = file.read(max(0, file.size - 22 - 65535), file.size)
    at = tail.rfind(_END)
    whole = at >= 0 and at + 22 <= len(tail) and at + 22 + int.from_bytes(tail[at + 20 : at + 22], "little") == len(tail)
    return file.size - len(tail) + at if whole else None


def check_directory(file: WholeFile) -> None:
    """Raise `BadModel` where the directory is missing, or would take more memory than any that torch writes."""
    at = _end(file)
    if at is None:
        raise damaged(file, "a zip directory at the end", "none: the file was cut short, or changed as if it were text")
    size = struct.unpack("<I", file.read(at + 12, at + 16))[0]
    if at >= 76 and file.read(at - 76, at - 72) == _END64:
        size = max(size if size != 0xFFFFFFFF else 0, struct.unpack("<Q", file.read(at - 36, at - 28))[0])
    if size > min(_LARGEST_DIRECTORY, file.size):
        raise damaged(file, f"a directory of at most {_LARGEST_DIRECTORY >> 20} MiB", number_of(size, "byte"))


def damaged(file: WholeFile, expected: str, got: str) -> BadModel:
    """The error for a damaged archive or pickle."""
    return BadModel(
        f"{file.name} is damaged or not a checkpoint of torch.",
        expected=expected,
        got=f"{got} ({number_of(file.size, 'byte')})",
        remedy="Copy or download it again, as a binary file; or convert it to safetensors where it can be opened.",
    )
