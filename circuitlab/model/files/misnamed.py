"""Weights of one kind in a file that is named as another: what they are is told by their first bytes, before the file is read.

A reader that met them would speak of damage, and the person would download a sound file again.
"""

from __future__ import annotations

from circuitlab.errors import BadModel
from circuitlab.model.files.whole_file import WholeFile

SAFETENSORS, TORCH, GGUF = "a safetensors file", "a checkpoint of torch", "a GGUF file"
MAGIC = b"GGUF"
PROTOCOL = tuple(bytes((0x80, n)) for n in range(2, 6))  # the first bytes of a pickle, of torch's older format too
_ENDINGS = {SAFETENSORS: "model.safetensors", TORCH: "pytorch_model.bin", GGUF: "model.gguf"}


def refuse_misnamed(file: WholeFile, read_as: str) -> None:
    """Raise `BadModel` where the file holds weights of another kind than that which it is to be read as."""
    kind = _kind_of(file)
    if kind and kind != read_as:
        raise BadModel(
            f"{file.name} is {kind} under the name of another kind.",
            expected=read_as,
            got=kind,
            remedy=f"Rename it, for instance to {_ENDINGS[kind]}, and open it again.",
        )


def _kind_of(file: WholeFile) -> str:
    """What kind of weights begin like this file, "" for none."""
    head = file.read(0, min(9, file.size))
    if head[8:] == b"{" and int.from_bytes(head[:8], "little") <= file.size - 8:  # a length, which may begin like a pickle
        return SAFETENSORS
    if head.startswith(MAGIC):
        return GGUF
    return TORCH if head.startswith((b"PK\x03\x04", *PROTOCOL)) else ""
