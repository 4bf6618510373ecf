"""Files of unsupported kinds, recognised by their first bytes: the error names the kind, and what to do.

This is checked before a weight file is read at all, since its name says little: `.bin` is a pickle, a llama2.c file or a GGUF.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from circuitlab.errors import BadModel
from circuitlab.model.files.archive import check_directory, is_archive
from circuitlab.model.files.strict_json import read_object
from circuitlab.model.files.whole_file import WholeFile, shown

_FROM = "Open the model that it was made from"
_STATE = "Load it where it comes from, save its state_dict with torch or safetensors, and open that or import it with a map"


@dataclass(frozen=True)
class _Format:
    """One kind of file: its first bytes (from byte `at`), endings of names that also show it, and what to do."""

    what: str
    remedy: str
    starts: tuple[bytes, ...] = ()
    endings: tuple[str, ...] = ()
    at: int = 0


_FORMATS = (
    _Format(
        "a file of llama.cpp in a form older than GGUF",
        f"{_FROM}: its GGUF file, or its Hugging Face folder.",
        (b"lmgg", b"tjgg", b"fmgg"),
    ),
    _Format("an HDF5 file (Keras, TensorFlow)", f"{_STATE}.", (b"\x89HDF\r\n\x1a\n",), (".h5", ".hdf5")),
    _Format(
        "a NumPy array",
        "Save all arrays of the model as tensors by name, torch.save({name: torch.from_numpy(x) …}, FILE), and import that with "
        "a map; from Python, circuitlab.api.Transformer(config, arrays) opens them as they are.",
        (b"\x93NUMPY",),
        (".npy",),
    ),
    _Format("a TensorFlow Lite file", f"{_FROM}, or: {_STATE[0].lower()}{_STATE[1:]}.", (b"TFL3",), (".tflite",), 4),
    _Format("an ONNX graph", f"{_FROM}: a graph names operations, not a transformer's parts. {_STATE}.", (), (".onnx",)),
    _Format("a checkpoint of Flax or JAX", f"{_STATE}.", (), (".msgpack", ".orbax-checkpoint")),
    _Format("a checkpoint of TensorFlow", f"{_STATE}.", (), (".pb", ".ckpt.index", ".ckpt.meta")),
    _Format(
        "a pointer of Git LFS, not the file itself",
        "Fetch the file: `git lfs pull` in its folder, or download it again.",
        (b"version https://git-lfs",),
    ),
    _Format(
        "a web page, not the file itself",
        "Download the file itself; this is a page about it.",
        (b"<!DOCTYPE", b"<!doctype", b"<html", b"<HTML"),
    ),
)
_PACKED = (b"\x1f\x8b", b"7z\xbc\xaf", b"BZh", b"\xfd7zXZ", b"(\xb5/\xfd")
_NPZ = _Format("an NPZ file of NumPy arrays", _FORMATS[2].remedy)
_ZIP = _Format("a packed archive", "Unpack it, and open what is in it.", _PACKED)


def refuse_format(path: Path, expected: str = "safetensors, a checkpoint of torch, a GGUF or a llama2.c file") -> None:
    """Raise `BadModel` for a file of a recognised kind that is not supported; a missing file is no error here."""
    try:
        kind = _kind_of(path)
    except BadModel:  # its reader reports what is wrong with it
        return
    if kind is not None:
        raise BadModel(
            f"{shown(Path(path.name))} is {kind.what}.",
            expected=expected,
            got=shown(path)[:300],
            remedy=kind.remedy,
        )


def refuse_text(path: Path) -> None:
    """Raise `BadModel` for a text file, or an empty one, in place of weights; a missing file is no error here.

    Weights are never text: they begin with a length or a magic number, which has bytes that no text has.
    """
    if not path.is_file():
        return
    file = WholeFile(path)
    head = file.read(0, min(256, file.size))
    if head and (head.startswith(b"\x80") or any(byte < 32 and byte not in b"\t\n\r\f" for byte in head)):
        return
    try:
        text = head.decode("utf-8", "ignore" if file.size > len(head) else "strict")
    except UnicodeDecodeError:
        return
    if head and len(text.encode()) < len(head) - 3:  # more was ignored than a character that the end cuts
        return
    kind = "a JSON file" if text.lstrip()[:1] in ("{", "[") else "a text file"
    raise BadModel(
        f"{shown(Path(path.name))} is {f'{kind}, not weights' if head else 'empty'}.",
        expected="safetensors, a checkpoint of torch, a GGUF or a llama2.c file",
        got=shown(path)[:300],
        remedy="Open the model's folder, or the file of its weights; if this should be that file, copy or download it again.",
    )


def _kind_of(path: Path) -> _Format | None:
    if not path.is_file():
        return None
    file = WholeFile(path)
    head = file.read(0, min(64, file.size))
    for kind in (*_FORMATS, _ZIP):
        if any(head[kind.at :].startswith(start) for start in kind.starts) or path.name.endswith(kind.endings or ("\0",)):
            return kind
    return _zip_kind(file) if head.startswith(b"PK\x03\x04") and is_archive(file) else None


def _zip_kind(file: WholeFile) -> _Format | None:
    """The kind of a zip that is not torch's."""
    check_directory(file)
    try:
        with file.duplicate() as handle, zipfile.ZipFile(handle) as archive:
            names = [info.filename for info in archive.infolist()[:10_000]]
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, EOFError, OverflowError):
        return None
    if names and all(name.endswith(".npy") for name in names):
        return _NPZ
    of_torch = any(name.endswith(("data.pkl", "constants.pkl")) for name in names)
    return None if of_torch or not names else _ZIP


def refuse_folder(folder: Path) -> None:
    """Raise `BadModel` for a folder whose weights, if it has any, are of a recognised kind that is not supported."""
    if (folder / "adapter_config.json").is_file():
        refuse_adapter(folder / "adapter_config.json")
    for file in sorted(f for f in folder.iterdir() if f.is_file())[:200]:
        if not file.name.endswith((".gz", ".zip", ".html")):  # may lie in any folder
            refuse_format(file)


def refuse_adapter(file: Path | None, names: Iterable[str] = ()) -> None:
    """Raise `BadModel` for an adapter (LoRA), a change of another model: by its configuration, or by its tensors' names."""
    lora = [n for n in names if ".lora_" in n or ".lora." in n]
    if file is None and not lora:
        return
    adapter = read_object(file) if file is not None and file.is_file() else {}
    base, kind = adapter.get("base_model_name_or_path"), adapter.get("peft_type")
    contents = f"tensors such as {lora[0][:80]}" if lora else "the configuration of one"
    raise BadModel(
        f"This is an adapter ({kind[:30] if isinstance(kind, str) else 'LoRA'}): a change of another model, not a model itself.",
        expected="the weights of a whole model",
        got=contents + (f", for {base[:100]}" if isinstance(base, str) else ""),
        remedy="Add it to its model, with the library `peft`, and open what that saves: "
        "PeftModel.from_pretrained(model, FOLDER).merge_and_unload().save_pretrained(NEW).",
    )
