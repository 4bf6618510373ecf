"""The structure of a pickled state dict, without running anything that is in it and without making a tensor.

Little more than a subset of what `torch.load(weights_only=True)` takes: numbers (also numpy's, which libraries leave in their
configurations), text, plain containers and tensors. Names in a pickle become inert marks of this module, never the things they
name; tensors become descriptions (`Strided`), checked before a byte of them is read. Against a hostile file that matters twice:
torch would run none of its code either, but would make an array as large as it says.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import torch

_KINDS: dict[str, torch.dtype] = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
    "ComplexFloatStorage": torch.complex64,
    "ComplexDoubleStorage": torch.complex128,
    "UntypedStorage": torch.uint8,
}
_NUMBERS = {"f8": "<d", "f4": "<f", "i8": "<q", "i4": "<i", "b1": "<?"}  # numpy's kinds of number, as `struct` calls them
_OPCODES = (
    "PROTO FRAME STOP MARK GLOBAL STACK_GLOBAL REDUCE BUILD BINPERSID NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 "
    "BINFLOAT BINUNICODE SHORT_BINUNICODE BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 "
    "TUPLE3 EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS BINGET LONG_BINGET BINPUT LONG_BINPUT MEMOIZE"
).split()
# what damaged bytes raise on their way through the reader
DAMAGE = (IndexError, KeyError, TypeError, ValueError, AttributeError, EOFError, OverflowError, pickle.UnpicklingError)


class Unwanted(Exception):
    """The pickle asks for something that is neither a tensor nor a plain container; `what` names it."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


@dataclass(frozen=True)
class Storage:
    """A run of numbers in the file, known by `key`; `n` counts elements of `dtype`."""

    key: str
    dtype: torch.dtype
    n: int


@dataclass(frozen=True)
class Strided:
    """A tensor: where it begins in its storage, in elements of `dtype`, its sizes and strides. Nothing of it is checked yet."""

    storage: Storage
    dtype: torch.dtype
    offset: Any
    shape: Any
    stride: Any


@dataclass(frozen=True)
class Other:
    """A tensor that is not a plain strided one; `kind` says what it is."""

    kind: str


@dataclass(frozen=True)
class _Mark:
    """What a name in the pickle stands for here: `make` is what calling it does, `value` what it is."""

    make: Callable[..., Any] | None = None
    value: Any = None


def _strided(storage: Any, offset: Any, shape: Any, stride: Any, *_: Any) -> Strided:
    if not isinstance(storage, Storage):
        raise TypeError("a tensor without a storage")
    return Strided(storage, storage.dtype, offset, shape, stride)


def _typed(storage: Any, offset: Any, shape: Any, stride: Any, grad: Any, hooks: Any, dtype: Any, *_: Any) -> Strided:
    if not isinstance(storage, Storage) or not isinstance(dtype, _Mark) or not isinstance(dtype.value, torch.dtype):
        raise TypeError("a tensor without a storage or dtype")
    return Strided(storage, dtype.value, offset, shape, stride)


def _tensor(value: Any, *_: Any) -> Strided | Other:
    if not isinstance(value, Strided | Other):
        raise TypeError("a parameter that is no tensor")
    return value


def _subclassed(make: Any, kind: Any, args: Any, *_: Any) -> Any:
    return _called(make, args)


def _ordered(*args: Any) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    for key, value in args[0] if args else ():
        made[_key(key)] = value
    return made


def _called(mark: Any, args: Any) -> Any:
    if not isinstance(mark, _Mark) or mark.make is None or not isinstance(args, tuple):
        raise TypeError("a call of what cannot be called")
    return mark.make(*args)


def _key(key: Any) -> Any:
    """A key of a container. Nothing nested: to hash a tuple of tuples without end would end the process."""
    if not isinstance(key, str | int | float | bool | bytes | None):
        raise TypeError("a key that is neither text nor number")
    return key


def _numpy_kind(name: Any, *_: Any) -> _Mark:
    return _Mark(value=_NUMBERS[name])


def _number(kind: Any, data: Any, *_: Any) -> Any:
    """One of numpy's numbers, such as libraries leave in a configuration."""
    if not isinstance(kind, _Mark) or not isinstance(kind.value, str) or not isinstance(data, bytes):
        raise TypeError("a number without a kind or bytes")
    if len(data) != struct.calcsize(kind.value):
        raise ValueError("a number of another length")
    return struct.unpack(kind.value, data)[0]


def _other(kind: str) -> _Mark:
    return _Mark(lambda *_: Other(kind))


_NAMES: dict[str, _Mark] = {
    "collections.OrderedDict": _Mark(_ordered),
    "torch._utils._rebuild_tensor": _Mark(_strided),
    "torch._utils._rebuild_tensor_v2": _Mark(_strided),
    "torch._utils._rebuild_tensor_v3": _Mark(_typed),
    "torch._utils._rebuild_parameter": _Mark(_tensor),
    "torch._utils._rebuild_parameter_with_state": _Mark(_tensor),
    "torch._tensor._rebuild_from_type_v2": _Mark(_subclassed),
    "torch._utils._rebuild_sparse_tensor": _other("sparse"),
    "torch._utils._rebuild_qtensor": _other("quantised"),
    "torch._utils._rebuild_meta_tensor_no_storage": _other("a meta tensor, without data"),
    "torch._utils._rebuild_nested_tensor": _other("nested"),
    "torch.Size": _Mark(lambda sizes=(): tuple(sizes)),
    "torch.device": _Mark(lambda *_: None),
    "torch.serialization._get_layout": _Mark(lambda *_: None),
    "torch.Tensor": _Mark(),
    "torch.nn.parameter.Parameter": _Mark(),
    "torch.per_tensor_affine": _Mark(),
    "torch.per_channel_affine": _Mark(),
    "numpy.dtype": _Mark(_numpy_kind),
    "numpy.core.multiarray.scalar": _Mark(_number),
    "numpy._core.multiarray.scalar": _Mark(_number),
    "_codecs.encode": _Mark(lambda text, *_: text.encode("latin1")),
}


def _named(module: str, name: str) -> _Mark:
    if module in ("torch", "torch.cuda", "torch.storage") and name in _KINDS:
        return _Mark(value=_KINDS[name])
    if module == "torch" and isinstance(found := getattr(torch, name, None), torch.dtype):
        return _Mark(value=found)
    if f"{module}.{name}" not in _NAMES:
        raise Unwanted(f"{module}.{name}")
    return _NAMES[f"{module}.{name}"]


_Python: Any = pickle._Unpickler  # the reader in Python: each opcode is a method, so that what is not wanted is not there


class _Reader(_Python):
    dispatch = {getattr(pickle, name)[0]: _Python.dispatch[getattr(pickle, name)[0]] for name in _OPCODES}  # noqa: RUF012

    def find_class(self, module: str, name: str) -> _Mark:
        return _named(module, name)

    def persistent_load(self, pid: Any) -> Storage:
        what, kind, key, _, n, *view = pid
        if isinstance(what, bytes):
            what = what.decode("ascii")
        if what != "storage" or not isinstance(kind, _Mark) or not isinstance(kind.value, torch.dtype):
            raise TypeError("a reference to something else than a storage")
        if type(n) is not int or n < 0 or any(v is not None for v in view):
            raise TypeError("a storage whose length cannot be, or that is part of another")
        made = Storage(str(key)[:200], kind.value, n)
        self.named[made.key] = made.dtype.itemsize
        return made

    def _call(self) -> None:
        args = self.stack.pop()
        self.stack[-1] = _called(self.stack[-1], args)

    def _forget(self) -> None:
        self.stack.pop()  # attributes of containers and parameters: nobody asks for them

    def _put(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._fill([key, value])

    def _put_all(self) -> None:
        self._fill(self.pop_mark())

    def _fill(self, items: list[Any]) -> None:
        if type(self.stack[-1]) is not dict or len(items) % 2:
            raise TypeError("entries of what is no dictionary")
        self.stack[-1].update({_key(key): value for key, value in zip(items[::2], items[1::2], strict=True)})

    dispatch |= {pickle.REDUCE[0]: _call, pickle.BUILD[0]: _forget, pickle.SETITEM[0]: _put, pickle.SETITEMS[0]: _put_all}


def unpickled(stream: BytesIO) -> tuple[Any, dict[str, int]]:
    """The next pickle of `stream`, which then stands behind it, and the bytes of an element of each storage that it names.

    Raises `Unwanted`, or one of `DAMAGE`.
    """
    reader = _Reader(stream, encoding="utf-8")
    reader.named = {}
    return reader.load(), reader.named


def without_marks(value: Any) -> Any:
    """A dictionary without the entries that are names of torch's (the dtype in a configuration); anything else as it is."""
    return {k: v for k, v in value.items() if not isinstance(v, _Mark)} if isinstance(value, dict) else value


def plain(value: Any, budget: int = 10_000, depth: int = 16) -> bool:
    """Whether `value` is numbers, text and containers of them, not deep and not many (one that is shared counts each time)."""
    level = [value]
    for _ in range(depth):
        budget -= len(level)
        if budget < 0 or not all(v is None or isinstance(v, str | int | float | bool | list | tuple | dict) for v in level):
            return False
        inner = [list(v.values()) if isinstance(v, dict) else v for v in level if isinstance(v, list | tuple | dict)]
        if sum(map(len, inner)) > budget:
            return False
        level = [x for items in inner for x in items]
    return not level
