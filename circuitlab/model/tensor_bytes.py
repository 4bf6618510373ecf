"""How many bytes the tensors take that an object holds: what is counted is what is there, whoever made it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import FunctionType, MethodType, ModuleType

from torch import Tensor

from circuitlab.model.text.tokenizer import Tokenizer

_PLAIN = (str, bytes, int, float, bool, type(None), type, ModuleType, Tokenizer)


def tensor_bytes(*holders: object) -> int:
    """Bytes of the storages of all tensors that these objects hold, each once: in their attributes, containers and closures."""
    storages = {(t.device, s.data_ptr()): s.nbytes() for t in _tensors(holders) for s in [t.untyped_storage()]}
    return sum(storages.values())


def _tensors(holders: tuple[object, ...]) -> Iterator[Tensor]:
    seen, left = set[int](), list(holders)
    while left:
        one = left.pop()
        if isinstance(one, _PLAIN) or id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, Tensor):
            yield one
        elif isinstance(one, dict):
            left += list(one.values())  # in one step: another thread may be adding a layer
        elif isinstance(one, (list, tuple, set, frozenset)):
            left += list(one)
        elif isinstance(one, MethodType):
            left.append(one.__self__)
        elif isinstance(one, FunctionType):
            left += [cell.cell_contents for cell in one.__closure__ or () if _filled(cell)]
        elif isinstance(attributes := getattr(one, "__dict__", None), Mapping):
            left += list(attributes.values())


def _filled(cell: object) -> bool:
    try:
        return cell.cell_contents is not None  # type: ignore[attr-defined]
    except ValueError:
        return False
