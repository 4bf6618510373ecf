"""The kinds of tensors that GGUF files have: numbers in blocks of so many bytes, and packed kinds made into float32.

The dequantisation itself is that of `gguf`, the package of the format's authors, which is imported when the first packed tensor
is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from circuitlab.errors import BadMachine, BadModel, cause

_AT_ONCE = 2**18  # numbers that are dequantised in one go: little memory beside the result, and few calls
_PLAIN = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@dataclass(frozen=True)
class Kind:
    """`block` numbers lie in `nbytes` bytes; `packed`: as integers with scales, which become float32. Neither plain nor packed:
    numbers that weights are not (integers, a kind that is not dequantised)."""

    id: int
    name: str
    block: int
    nbytes: int
    packed: bool = False

    @property
    def dtype(self) -> torch.dtype | None:
        """The dtype of its numbers as they are read, None for what no weight has."""
        return torch.float32 if self.packed else _PLAIN.get(self.name)

    @property
    def bits(self) -> float:
        """Bits of one number, scales included."""
        return 8 * self.nbytes / self.block


def _kinds(text: str, packed: bool) -> dict[int, Kind]:
    rows = (line.split() for line in text.strip().split(";"))
    return {int(id): Kind(int(id), name, int(block), int(nbytes), packed) for id, name, block, nbytes in rows}


# by the number that files have: name, numbers in a block, bytes of a block
KINDS = _kinds(
    "0 F32 1 4; 1 F16 1 2; 30 BF16 1 2; 24 I8 1 1; 25 I16 1 2; 26 I32 1 4; 27 I64 1 8; 28 F64 1 8; 9 Q8_1 32 40; 15 Q8_K 256 292",
    packed=False,
) | _kinds(
    "2 Q4_0 32 18; 3 Q4_1 32 20; 6 Q5_0 32 22; 7 Q5_1 32 24; 8 Q8_0 32 34; 10 Q2_K 256 84; 11 Q3_K 256 110; 12 Q4_K 256 144;"
    "13 Q5_K 256 176; 14 Q6_K 256 210; 16 IQ2_XXS 256 66; 17 IQ2_XS 256 74; 18 IQ3_XXS 256 98; 19 IQ1_S 256 50; 20 IQ4_NL 32 18;"
    "21 IQ3_S 256 110; 22 IQ2_S 256 82; 23 IQ4_XS 256 136; 29 IQ1_M 256 56; 34 TQ1_0 256 54; 35 TQ2_0 256 66; 39 MXFP4 32 17;"
    "40 NVFP4 64 36",
    packed=True,
)


def dequantised(kind: Kind, data: Tensor, name: str) -> Tensor:
    """float32 [numbers] of packed blocks [bytes] uint8, one after the other.

    Raises `BadMachine` where the package `gguf` is not installed, `BadModel` where it does not know the kind.
    """
    package = _package()
    values = np.empty(data.numel() // kind.nbytes * kind.block, np.float32)
    packed, blocks = data.numpy(), max(1, _AT_ONCE // kind.block)
    try:
        kind_there = package.GGMLQuantizationType(kind.id)
        with np.errstate(all="ignore"):  # scales that are no numbers are found by whoever reads the tensor
            for i in range(0, data.numel() // kind.nbytes, blocks):
                part = packed[None, i * kind.nbytes : (i + blocks) * kind.nbytes]  # as one row: the package goes by 16 rows
                values[i * kind.block : (i + blocks) * kind.block] = package.quants.dequantize(part, kind_there)[0]
    except (NotImplementedError, ValueError, KeyError) as error:
        raise BadModel(
            f"The tensor {name} ({kind.name}) cannot be dequantised.",
            expected="a kind that the installed package gguf dequantises",
            got=cause(error),
            remedy="Install a newer version of it: pip install -U gguf.",
        ) from error
    return torch.from_numpy(values)


def _package() -> ModuleType:
    try:
        import gguf
    except ImportError as error:
        raise BadMachine(
            "Packed weights need the package gguf.",
            expected="the extra [gguf]",
            got=cause(error),
            remedy="Install it: pip install 'circuitlab[gguf]'. Files of F32, F16 and BF16 open without it.",
        ) from error
    return gguf
