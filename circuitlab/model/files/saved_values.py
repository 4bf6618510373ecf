"""All values of an archive of torch, tensors among them, in no more memory than the file is large.

What a program of ours saved with `torch.save` is read with the reader for models: nothing in the file runs, each tensor lies
within its storage and no numbers are read twice. A value that a pickle names twice is there once and counts each time it is met.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from circuitlab.counting import number_of
from circuitlab.errors import BadModel
from circuitlab.model.files.archive import damaged
from circuitlab.model.files.described import OddKey, Strided, kind_of
from circuitlab.model.files.pickled import archived, place_of
from circuitlab.model.files.places import Place
from circuitlab.model.files.unpickling import DAMAGE, Unwanted
from circuitlab.model.files.whole_file import WholeFile

_DEEPEST, _MOST = 16, 2**17  # nesting, and values: a state has six or so for each tensor
_LARGEST = 64 * 2**20  # bytes of what is no tensor: a history of many checkpoints is one text


def saved_values(file: WholeFile) -> object:
    """The numbers, texts, lists, dictionaries and tensors of an archive, which may begin behind other bytes; tensors are copies.

    Raises `BadModel` for anything else in it, and for tensors that overlap.
    """
    try:
        contents, storages = archived(file, _LARGEST)
    except (Unwanted, *DAMAGE) as error:
        raise damaged(file, "plain values and tensors", str(error).partition("\n")[0][:150] or type(error).__name__) from error
    return _Values(file, storages).of(contents)


class _Values:
    """Values by their descriptions; what two descriptions share of a file is read once."""

    def __init__(self, file: WholeFile, storages: Mapping[str, tuple[int, int]]) -> None:
        self._file, self._storages, self._tensors = file, storages, dict[Place, Tensor]()
        self._bytes, self._values = file.size, _MOST

    def of(self, value: Any, depth: int = _DEEPEST) -> Any:
        self._values -= 1
        if self._values < 0 or not depth:
            limits = f"at most {_DEEPEST} levels and {number_of(_MOST, 'value')}"
            raise damaged(self._file, limits, "more of them, or the same again and again")
        if isinstance(value, Strided):
            return self._tensor(value)
        if type(value) in (list, tuple) and len(value) <= self._values:
            return type(value)(self.of(one, depth - 1) for one in value)
        if type(value) is dict and len(value) <= self._values and not any(isinstance(key, OddKey) for key in value):
            return {key: self.of(one, depth - 1) for key, one in value.items()}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise damaged(self._file, "plain values and tensors", kind_of(value)[:60])

    def _tensor(self, value: Strided) -> Tensor:
        place = place_of(self._file, "a tensor", value, self._storages)
        if place.dtype is None:
            raise BadModel(f"{self._file.name} holds numbers of another kind.", expected="floating point", got=place.kind)
        if place not in self._tensors:
            self._bytes -= place.span * place.itemsize
            if self._bytes < 0:
                raise damaged(self._file, "tensors side by side", "tensors that overlap")
            self._tensors[place] = place.copy(self._file)
        return self._tensors[place]
