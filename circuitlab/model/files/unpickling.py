"""The structure of a pickled state dict, without running anything in it and without creating a tensor.

What is read is little more than a subset of what `torch.load(weights_only=True)` accepts: numbers (also NumPy's, which libraries
leave in their configurations), text, plain containers and tensors. Names in a pickle become inert marks of this module, never the
things they name; tensors become descriptions (`Strided`), checked before a byte of them is read; objects of all other classes
become descriptions too (`Inert`). A call of an unknown function is refused. A hostile file cannot run its code in torch either,
but there it could make torch allocate an array as large as the file claims. What calls and attributes copy is counted against the
pickle's length: 218 kB that name one list again and again would otherwise make 5 GB.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Iterable
from dataclasses import replace
from io import BytesIO
from typing import Any

import torch

from circuitlab.counting import number_of
from circuitlab.model.files.described import Inert, Mark, Other, Storage, Strided, attributes, key_of
from circuitlab.model.files.harmless import CALLS, RECONSTRUCTORS

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
    "QInt8Storage": torch.int8,  # of tensors that were quantised, whose scales stand beside them
    "QUInt8Storage": torch.uint8,
    "QInt32Storage": torch.int32,
    "QUInt4x2Storage": torch.uint8,
    "QUInt2x4Storage": torch.uint8,
}
_NUMBERS = {"f8": "<d", "f4": "<f", "i8": "<q", "i4": "<i", "b1": "<?"}  # NumPy's kinds of number -> formats of `struct`
_OPCODES = (
    "PROTO FRAME STOP MARK GLOBAL STACK_GLOBAL REDUCE BUILD BINPERSID NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 "
    "BINFLOAT BINUNICODE SHORT_BINUNICODE BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 "
    "TUPLE3 EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS BINGET LONG_BINGET BINPUT LONG_BINPUT MEMOIZE EMPTY_SET "
    "ADDITEMS FROZENSET NEWOBJ NEWOBJ_EX POP POP_MARK"
).split()
# what the reader may raise on damaged bytes
DAMAGE = (
    IndexError,
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    EOFError,
    OverflowError,
    struct.error,
    pickle.UnpicklingError,
)


class Unwanted(Exception):
    """Raised for a pickle that needs a function to be called; `what` names it."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


def _strided(storage: object, offset: object, shape: object, stride: object, *_: object) -> Strided:
    if not isinstance(storage, Storage):
        raise TypeError("a tensor without a storage")
    return Strided(storage, storage.dtype, offset, shape, stride)


def _typed(
    storage: object, offset: object, shape: object, stride: object, grad: object, hooks: object, dtype: object, *_: object
) -> Strided:
    if not isinstance(storage, Storage) or not isinstance(dtype, Mark) or not isinstance(dtype.value, torch.dtype):
        raise TypeError("a tensor without a storage or dtype")
    return Strided(storage, dtype.value, offset, shape, stride)


def _tensor(value: object, *_: object) -> Strided | Other:
    if not isinstance(value, Strided | Other):
        raise TypeError("a parameter that is no tensor")
    return value


def _subclassed(*_: object) -> object:
    """A call within a call: (what makes the tensor, its class, the arguments); see `_called`."""
    raise TypeError("a subclass of a tensor without its parts")


def _ordered(*args: Iterable[tuple[object, object]]) -> dict[object, object]:
    entries: dict[object, object] = {}
    for key, value in args[0] if args else ():
        entries[key_of(key)] = value
    return entries


def _encoded(text: str = "", *_: object) -> bytes:
    return text.encode("latin1")


def _size(sizes: object = ()) -> object:
    if not isinstance(sizes, tuple | list):
        raise TypeError("sizes that are no list")
    return sizes


def _called(mark: object, args: object, copies: Callable[[int], None]) -> object:
    """What a call gives. `copies(n)` is told how many values it copies, before it does."""
    while isinstance(mark, Mark) and mark.make is _subclassed and isinstance(args, tuple) and len(args) > 2:
        copies(1)
        mark, args = args[0], args[2]
    if isinstance(mark, Mark) and mark.name and mark.make is None:
        raise Unwanted(mark.name)
    if not isinstance(mark, Mark) or mark.make is None or not isinstance(args, tuple):
        raise TypeError("a call of what cannot be called")
    copies(len(args))
    if args and mark.make in (_ordered, _encoded):
        copies(len(args[0]))
    return mark.make(*args)


def _numpy_kind(name: object, *_: object) -> Mark:
    return Mark(value=_NUMBERS.get(name, name) if isinstance(name, str) else None)


def _number(kind: object, data: object, *_: object) -> object:
    """A NumPy scalar, as libraries leave them in configurations."""
    if not isinstance(kind, Mark) or not isinstance(kind.value, str) or not isinstance(data, bytes):
        raise TypeError("a number without a kind or bytes")
    if kind.value not in _NUMBERS.values():
        return Inert(f"numpy {kind.value[:40]}")
    if len(data) != struct.calcsize(kind.value):
        raise ValueError("a number of another length")
    return struct.unpack(kind.value, data)[0]


def _reconstructed(kind: object, *_: object) -> Inert:
    return Inert(_name_of(kind))


def _name_of(mark: object) -> str:
    """The name of a mark in the pickle, if it has one."""
    return mark.name if isinstance(mark, Mark) and mark.name else "an object"


def _inert(kind: str) -> Mark:
    return Mark(lambda *_: Inert(kind))


def _other(kind: str) -> Mark:
    return Mark(lambda *_: Other(kind))


_NAMES: dict[str, Mark] = {
    "collections.OrderedDict": Mark(_ordered),
    "torch._utils._rebuild_tensor": Mark(_strided),
    "torch._utils._rebuild_tensor_v2": Mark(_strided),
    "torch._utils._rebuild_tensor_v3": Mark(_typed),
    "torch._utils._rebuild_parameter": Mark(_tensor),
    "torch._utils._rebuild_parameter_with_state": Mark(_tensor),
    "torch._tensor._rebuild_from_type_v2": Mark(_subclassed),
    "torch._utils._rebuild_sparse_tensor": _other("sparse"),
    "torch._utils._rebuild_qtensor": _other("quantised"),
    "torch._utils._rebuild_meta_tensor_no_storage": _other("a meta tensor, without data"),
    "torch._utils._rebuild_nested_tensor": _other("nested"),
    "torch.Size": Mark(_size),
    "torch.device": Mark(lambda *_: None),
    "torch.serialization._get_layout": Mark(lambda *_: None),
    "torch.Tensor": Mark(),
    "torch.nn.parameter.Parameter": Mark(),
    "torch.per_tensor_affine": Mark(),
    "torch.per_channel_affine": Mark(),
    "numpy.dtype": Mark(_numpy_kind),
    "numpy.core.multiarray.scalar": Mark(_number),
    "numpy._core.multiarray.scalar": Mark(_number),
    "numpy.ndarray": Mark(),
    "_codecs.encode": Mark(_encoded),
    **{name: _inert(kind) for name, kind in CALLS.items()},
    **{name: Mark(_reconstructed) for name in RECONSTRUCTORS},
}


def storage_key(key: object) -> str:
    """The name of a storage: a number of the older format, as text. Raises `TypeError` for anything else."""
    if type(key) is str:
        return key[:200]
    if type(key) is int:
        return str(key)[:200]
    raise TypeError("a storage whose name is no text")


def _named(module: str, name: str) -> Mark:
    whole = f"{module[:300]}.{name[:300]}"[:300]
    if module in ("torch", "torch.cuda", "torch.storage") and name in _KINDS:
        return Mark(value=_KINDS[name], name=whole)
    if module == "torch" and isinstance(dtype := getattr(torch, name, None), torch.dtype):
        return Mark(value=dtype, name=whole)
    return replace(_NAMES.get(whole, Mark()), name=whole)


_Python: Any = pickle._Unpickler  # the reader in Python: each opcode is a method, so that unwanted ones can be left out


class _Reader(_Python):
    dispatch = {getattr(pickle, name)[0]: _Python.dispatch[getattr(pickle, name)[0]] for name in _OPCODES}  # noqa: RUF012

    def find_class(self, module: str, name: str) -> Mark:
        return _named(module, name)

    def _copies(self, n: int) -> None:
        """Count values that are about to be copied. Raises `ValueError` once they are more than the pickle has bytes."""
        self.room -= n
        if self.room < 0:
            raise ValueError("values that are copied again and again, more than the file holds")

    def persistent_load(self, pid: object) -> Storage | Mark:
        if not isinstance(pid, tuple) or not 2 <= len(pid) <= 6:
            raise TypeError("a reference to something else than a storage")
        if pid[0] in ("module", b"module") and isinstance(pid[1], Mark):  # how the older format names a class and its source
            return pid[1]
        _, kind, key, _, n, *view = pid
        if pid[0] not in ("storage", b"storage") or not isinstance(kind, Mark) or not isinstance(kind.value, torch.dtype):
            raise TypeError("a reference to something else than a storage")
        if type(n) is not int or n < 0 or any(v is not None for v in view):
            raise TypeError("a storage whose length cannot be, or that is part of another")
        storage = Storage(storage_key(key), kind.value, n)
        self.named[storage.key] = storage.dtype.itemsize
        return storage

    def _call(self) -> None:
        args = self.stack.pop()
        self.stack[-1] = _called(self.stack[-1], args, self._copies)

    def _new_object(self) -> None:
        self.stack.pop()  # arguments of the class, which is not called
        self.stack[-1] = Inert(_name_of(self.stack[-1]))

    def _new_object_by_keywords(self) -> None:
        self.stack.pop()
        self._new_object()

    def _built(self) -> None:
        state = self.stack.pop()  # attributes; those of containers and parameters are not needed
        if isinstance(self.stack[-1], Inert):
            self._copies(sum(len(part) for part in attributes(state)))
            self.stack[-1].take(state)

    def _bytes(self) -> None:
        (n,) = struct.unpack("<Q", self.read(8))
        data = self.read(n)  # pickle's own method would allocate as many bytes as the file claims
        if len(data) != n:
            raise EOFError(number_of(n, "byte"))
        self.append(data)

    def _set(self) -> None:
        self.append(Inert("builtins.set"))  # left empty: hashing endlessly nested entries would end the process

    def _frozen(self) -> None:
        self.pop_mark()
        self.append(Inert("builtins.frozenset"))

    def _added(self) -> None:
        self.pop_mark()
        if not isinstance(self.stack[-1], Inert):
            raise TypeError("entries of what is no set")

    def _append(self) -> None:
        value = self.stack.pop()
        self._extend([value])

    def _append_all(self) -> None:
        self._extend(self.pop_mark())

    def _extend(self, items: list[object]) -> None:
        if isinstance(self.stack[-1], Inert):
            return  # entries of a list that was not created
        if type(self.stack[-1]) is not list:
            raise TypeError("entries of what is no list")
        self.stack[-1].extend(items)

    def _set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._fill([key, value])

    def _set_items(self) -> None:
        self._fill(self.pop_mark())

    def _fill(self, items: list[object]) -> None:
        top = self.stack[-1]
        if (type(top) is not dict and not isinstance(top, Inert)) or len(items) % 2:
            raise TypeError("entries of what is no dictionary")
        entries = {key_of(key): value for key, value in zip(items[::2], items[1::2], strict=True)}
        top.take(entries) if isinstance(top, Inert) else top.update(entries)

    dispatch |= {pickle.REDUCE[0]: _call, pickle.BUILD[0]: _built, pickle.SETITEM[0]: _set_item, pickle.SETITEMS[0]: _set_items}
    dispatch |= {pickle.NEWOBJ[0]: _new_object, pickle.NEWOBJ_EX[0]: _new_object_by_keywords, pickle.BYTEARRAY8[0]: _bytes}
    dispatch |= {pickle.EMPTY_SET[0]: _set, pickle.ADDITEMS[0]: _added, pickle.FROZENSET[0]: _frozen}
    dispatch |= {pickle.APPEND[0]: _append, pickle.APPENDS[0]: _append_all}


def unpickled(stream: BytesIO) -> tuple[Any, dict[str, int]]:
    """The next pickle of `stream`, which is advanced past it, and the element size in bytes of each storage that it names.

    Raises `Unwanted`, or one of `DAMAGE`.
    """
    reader = _Reader(stream, encoding="utf-8")
    reader.named, reader.room = {}, len(stream.getbuffer()) - stream.tell()
    return reader.load(), reader.named
