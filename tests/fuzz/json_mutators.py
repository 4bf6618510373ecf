"""What a hostile or careless hand writes into config.json, an index, a tokenizer, or the header of a safetensors file."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

_RAW = "<<raw>>"
# Python cannot write these: put in as text
_TEXTS = (
    "1e999",
    "-1e999",
    "NaN",
    "Infinity",
    "9" * 40,
    "9" * 6000,
    "1" + "0" * 18,
    "[" * 500 + "]" * 500,
    '{"a":' * 900 + "1" + "}" * 900,
)
_VALUES: tuple[Any, ...] = (
    10**9, 10**12, 2**31, 2**63 - 1, -1, 0, 1, 3, 7, 0.5, -0.0, 1e-320, 1e300, "8", "", "four", "\u0000", "\ud800", "x" * 100_000,
    None, True, False, [], {}, [1, 2], [[]], {"a": 1}, [10**9] * 3, "../../etc/passwd", "\x1b[31m",
)  # fmt: skip


def _value(rng: random.Random) -> Any:
    return f"{_RAW}{rng.randrange(len(_TEXTS))}" if rng.random() < 0.25 else rng.choice(_VALUES)


def _written(data: Any) -> str:
    text = json.dumps(data)
    for i, raw in enumerate(_TEXTS):
        text = text.replace(f'"{_RAW}{i}"', raw)
    return text


def _spot(data: Any, rng: random.Random) -> tuple[Any, Any] | None:
    """A container somewhere in `data` and a key of it; near the top more often."""
    place = None
    while isinstance(data, dict | list) and data:
        key = rng.choice(list(data)) if isinstance(data, dict) else rng.randrange(len(data))
        place = (data, key)
        if rng.random() < 0.5:
            break
        data = data[key]
    return place


def json_value(file: Path, rng: random.Random) -> str:
    data = json.loads(file.read_text())
    said = []
    for _ in range(rng.choice([1, 1, 1, 3])):
        if (place := _spot(data, rng)) is not None:
            place[0][place[1]] = value = _value(rng)
            said.append(f"{str(place[1])[:40]} = {str(value)[:40]!r}")
    file.write_text(_written(data))
    return f"{', '.join(said)} in {file.name}"


def json_key(file: Path, rng: random.Random) -> str:
    data = json.loads(file.read_text())
    key = rng.choice(sorted(data))
    if rng.random() < 0.5:
        del data[key]
    else:
        data[rng.choice(["", "\ud800", "n_experts", key + " ", "add_cross_attention", "x" * 70_000])] = data.get(key)
    file.write_text(_written(data))
    return f"key {key} in {file.name}"


def json_text(file: Path, rng: random.Random) -> str:
    text = file.read_text()
    key = rng.choice(sorted(json.loads(text)))
    kinds = {
        "twice": text.replace("{", f'{{"{key}": {rng.choice(_TEXTS)}, ', 1),
        "deep": "[" * 100_000,
        "deep object": '{"a":' * 100_000,
        "list": f"[{text}]",
        "bare": rng.choice(["1", "null", '"x"', "", " "]),
        "behind": text + rng.choice(["}", "x", "\0", text]),
        "BOM": "\ufeff" + text,
        "wide": "[" + "[]," * 300_000 + "[]]",
    }
    kind = rng.choice(sorted(kinds))
    file.write_text(
        kinds[kind], encoding=rng.choice(["utf-8", "utf-8", "utf-8", "utf-16", "latin-1" if kind != "BOM" else "utf-8"])
    )
    return f"{kind} in {file.name}"


def sizes_multiplied(file: Path, rng: random.Random) -> str:
    """Two sizes or more, each of which a model might have, and whose product none has."""
    data = json.loads(file.read_text())
    sizes = sorted(key for key, value in data.items() if type(value) is int) if isinstance(data, dict) else []
    if not sizes:
        return json_value(file, rng)
    chosen = rng.sample(sizes, min(len(sizes), rng.choice([2, 2, 3])))
    data |= {key: rng.choice([9_999, 10_000, 60_000, 65_536]) for key in chosen}
    if rng.random() < 0.5:
        data |= {rng.choice(["num_local_experts", "num_experts"]): rng.choice([13, 9_999, 60_000]), "num_experts_per_tok": 1}
    file.write_text(json.dumps(data))
    return f"{', '.join(chosen)} multiplied in {file.name}"


def index_paths(file: Path, rng: random.Random) -> str:
    data = json.loads(file.read_text())
    table = data["weight_map"]
    names, files = sorted(table), sorted(set(table.values()))
    tricks = ("../model.safetensors", "/etc/passwd", "/dev/zero", "C:\\x.safetensors", "a/b.safetensors", "..", "",
              "a\0.safetensors", "nobody.safetensors", "config.json", "\ud800.safetensors", ".safetensors", "x" * 300 + ".bin",
              "a\n.bin")  # fmt: skip
    kind = rng.choice(["trick", "trick", "swap", "all in one", "unknown", "lost", "empty"])
    if kind == "trick":
        table[rng.choice(names)] = rng.choice(tricks)
    elif kind == "swap":
        data["weight_map"] = {n: files[1 - files.index(f)] for n, f in table.items()}
    elif kind == "all in one":
        data["weight_map"] = dict.fromkeys(names, files[0])
    elif kind == "unknown":
        table["x" * rng.choice([1, 9000])] = files[0]
    elif kind == "lost":
        del table[rng.choice(names)]
    else:
        data["weight_map"] = {}
    file.write_text(json.dumps(data))
    return f"{kind} in {file.name}"


# -- safetensors -----------------------------------------------------------------------------------------------------------


def _split(file: Path) -> tuple[dict[str, Any], bytes]:
    data = file.read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + n]), data[8 + n :]


def _join(file: Path, header: str, body: bytes, length: int | None = None) -> None:
    text = header.encode("utf-8", "surrogatepass")
    file.write_bytes(struct.pack("<Q", len(text) if length is None else length) + text + body)


def header_value(file: Path, rng: random.Random) -> str:
    header, body = _split(file)
    name = rng.choice(sorted(set(header) - {"__metadata__"}))
    entry, place = header[name], rng.choice(["dtype", "shape", "data_offsets", "entry", "size", "offset"])
    if place == "dtype":
        entry["dtype"] = rng.choice(
            ["F8_E4M3", "F8_E5M2", "I64", "I8", "BOOL", "C64", "F64", "BF16", "F16", "F4", "Q4", "", 5, None]
        )
    elif place == "shape":
        entry["shape"] = rng.choice(
            [[], [2**62, 0], [-1, -8], [1] * 2000, entry["shape"][::-1], [0], [10**30], ["8"], [8.0], {}, [True]]
        )
    elif place == "size":
        entry["shape"] = [n * rng.choice([1, 2, 2**40]) for n in entry["shape"]]
    elif place == "data_offsets":
        start, stop = entry["data_offsets"]
        entry["data_offsets"] = rng.choice(
            [[stop, start], [start, 2**63], [-4, stop], [start - 4, stop - 4], [start], [0, 0], "0", None]
        )
    elif place == "offset":
        other = rng.choice(sorted(set(header) - {"__metadata__"}))
        entry["data_offsets"] = header[other]["data_offsets"]
    else:
        header[name] = rng.choice([None, [], 1, {}, {"dtype": "F32"}, {**entry, "more": 1}])
    _join(file, json.dumps(header), body)
    return f"{place} of {name} in {file.name}"


def header_names(file: Path, rng: random.Random) -> str:
    header, body = _split(file)
    name = rng.choice(sorted(set(header) - {"__metadata__"}))
    new = rng.choice(["", "\x1b[2J", "\ud800", "a\nb", name.upper(), f"{name} ", "x" * 5000, "__metadata__", name])
    text = json.dumps({(new if n == name else n): e for n, e in header.items()})
    if new == name:  # the same name twice
        text = text[:-1] + f", {json.dumps(name)}: {json.dumps(header[name])}}}"
    _join(file, text, body)
    return f"{name} is called {new[:20]!r} in {file.name}"


def header_text(file: Path, rng: random.Random) -> str:
    header, body = _split(file)
    text = json.dumps(header)
    kind = rng.choice(["huge length", "short length", "zero length", "deep", "wide", "padded", "array", "no JSON"])
    lengths = {"huge length": rng.choice([2**63, 2**64 - 1, 10**9, len(text) + len(body) + 1]), "zero length": 0}
    lengths["short length"] = rng.randrange(len(text))
    texts = {
        "deep": '{"a":' + "[" * 200_000 + "]" * 200_000 + "}",
        "wide": '{"__metadata__":{' + ",".join(f'"{i}":"x"' for i in range(100_000)) + "}, " + text[1:],
        "padded": text + " " * rng.randrange(1, 64),
        "array": f"[{text}]",
        "no JSON": text[: rng.randrange(len(text))],
    }
    _join(file, texts.get(kind, text), body, lengths.get(kind))
    return f"{kind} of the header of {file.name}"


def header_tensors(file: Path, rng: random.Random) -> str:
    """A tensor less, or one more."""
    header, body = _split(file)
    name = rng.choice(sorted(set(header) - {"__metadata__"}))
    kind = rng.choice(["dropped", "more", "more of no size", "integers more"])
    if kind == "dropped":
        header[f"unused.{name}"] = header.pop(name)
    else:
        n = 0 if kind == "more of no size" else 16
        dtype = "I64" if kind == "integers more" else "F32"
        header["one.more"] = {
            "dtype": dtype,
            "shape": [n // (8 if dtype == "I64" else 4)],
            "data_offsets": [len(body), len(body) + n],
        }
        body += bytes(n)
    _join(file, json.dumps(header), body)
    return f"{kind} in {file.name}"


def not_finite(file: Path, rng: random.Random) -> str:
    header, body = _split(file)
    name = rng.choice(sorted(set(header) - {"__metadata__"}))
    data, (start, stop) = bytearray(body), header[name]["data_offsets"]
    wide = {"F32": 4, "F16": 2, "BF16": 2}[header[name]["dtype"]]
    bits = (
        {"F32": "0000c07f", "F16": "007e", "BF16": "c07f"}
        if rng.random() < 0.5
        else {"F32": "0000807f", "F16": "007c", "BF16": "807f"}
    )
    at = start + wide * rng.randrange((stop - start) // wide)
    data[at : at + wide] = bytes.fromhex(bits[header[name]["dtype"]])
    _join(file, json.dumps(header), bytes(data))
    return f"{name} is not finite in {file.name}"


JSON = (json_value, json_value, json_value, json_key, json_text, sizes_multiplied)
SAFETENSORS = (header_value, header_value, header_value, header_names, header_text, header_tensors, not_finite)
