"""Vocabularies that single files bring: SentencePiece's, Mistral's, tiktoken's, those in GGUF files, and what stands beside one.

One that is read encodes texts, with the ids of SentencePiece's own library where that reads it, too.
"""

from __future__ import annotations

import base64
import io
import json
import os
import random
import struct
import tempfile
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.fuzz.byte_mutators import BYTES
from tests.fuzz.gguf_mutators import GGUF
from tests.fuzz.json_mutators import json_key, json_text, json_value
from tests.gguf_files import add

Named = list[tuple[str, bytes]]
TEXTS = (
    "", " ", "a", "Once upon a time  there was\n\n\ta wolf, 12345 ab", "aaaaaaaabababab the the",
    "<s> </s><unk> <0x0A> ▁▁ [INST]", "naïve 🙂 日本語 e\u0301 \x00\u00a0ﬁ①Ａ", "a" * 1500, " " * 300 + "x",
    "ab" * 700, "\u0301" * 50,
)  # fmt: skip
FLOATS = (float("nan"), float("inf"), float("-inf"), 1e-45, 3e38, -3e38, 1e9, -1.0)
NUMBERS = (0, 1, 2, 3, 4, 5, 6, 7, 99, 2**31, 2**32 - 1, 2**63, 2**64 - 1)
# none with a NUL, at which the library's keys end
SAID = (b"", b"a", b"<s>", b"<unk>", b"<0x0A>", "▁".encode(), "▁▁".encode(), b"\xff\xfe", b"\xed\xa0\x80", b"a" * 255,
        b"ab" * 300, b"a" * 2**20, "🙂".encode(), "e\u0301".encode(), b"<0xZZ>", b" ", b"\n")  # fmt: skip
N_RANKED = 300


def encoded(tokenizer: Any) -> dict[str, tuple[int, ...]]:
    """Ids of the texts that it reads, each of which it shows and spells again."""
    from circuitlab.errors import BadInput

    result = {}
    for text in TEXTS:
        try:
            result[text] = ids = tokenizer.encode_uncached(text)
        except BadInput:
            continue
        if not all(0 <= i < tokenizer.n_tokens for i in ids):
            raise AssertionError(f"ids beyond {tokenizer.n_tokens}: {ids}")
        tokenizer.decode(ids)
        for i in ids[:50]:
            tokenizer.display(i)
    tokenizer.encode(TEXTS[5], True, True)
    tokenizer.find("a")
    return result


def _opened(folder: Path) -> Any:
    """The tokenizer of a folder, None where it says why it has none."""
    from circuitlab.model.loading.lone_vocabulary import unread
    from circuitlab.model.loading.tokenizer_files import find_tokenizer

    tokenizer = find_tokenizer(folder)
    if tokenizer is None and folder.is_dir() and any(folder.iterdir()):
        unread(folder)
    return tokenizer


# -- SentencePiece ----------------------------------------------------------------------------------------------------------

_PROSE = "Once upon a time there was a little girl, who had a red coat; and the wolf, too, was there. naïve café ab aaaa 12345"
_BYTES: dict[str, Any] = {"normalization_rule_name": "identity", "byte_fallback": True, "vocab_size": 330}
_TRAINED: tuple[dict[str, Any], ...] = (
    {"model_type": "unigram", "normalization_rule_name": "nmt_nfkc"},
    {"model_type": "unigram", **_BYTES},
    {"model_type": "bpe", "remove_extra_whitespaces": False, **_BYTES},
    {"model_type": "bpe", "normalization_rule_name": "nmt_nfkc", "user_defined_symbols": ["<turn>", "▁▁", "ab"]},
)  # fmt: skip


@lru_cache
def _models() -> Named:
    import sentencepiece

    made = []
    for options in _TRAINED:
        out = io.BytesIO()
        usual: dict[str, Any] = {"vocab_size": 70, "hard_vocab_limit": False, "minloglevel": 5, "num_threads": 1}
        lines = iter(_PROSE.split(";"))
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=lines, model_writer=out, **usual | options)
        made.append(("tokenizer.model", out.getvalue()))
    return made


def _fields(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(number, wire, bytes of the value) of each field of a valid message."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        tag = varint()
        start = at
        if tag & 7 == 0:
            varint()
        elif tag & 7 == 2:
            length = varint()
            start, at = at, at + length
        else:
            at += {1: 8, 5: 4}[tag & 7]
        yield tag >> 3, tag & 7, data[start:at]


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _message(fields: list[tuple[int, int, bytes]]) -> bytes:
    return b"".join(_varint(n << 3 | wire) + (_varint(len(v)) if wire == 2 else b"") + v for n, wire, v in fields)


def _changed(value: bytes, wire: int, rng: random.Random) -> bytes:
    if wire == 0:
        return _varint(rng.choice(NUMBERS))
    if wire == 5:
        return struct.pack("<f", rng.choice([*FLOATS, struct.unpack("<f", value)[0]]))
    return rng.choice(SAID)


def piece(file: Path, rng: random.Random) -> str:
    """A field of some pieces: text, score or kind; or pieces twice, gone, in another order."""
    fields = list(_fields(file.read_bytes()))
    places = [i for i, (n, _, _) in enumerate(fields) if n == 1]
    kind = rng.choice(["field", "field", "field", "field", "twice", "gone", "order", "empty", "one score", "runs", "unknown"])
    for i in rng.sample(places, min(len(places), rng.choice([1, 1, 3, 40]))):
        inner = list(_fields(fields[i][2]))
        if kind == "field" and inner:
            k = rng.randrange(len(inner))
            inner[k] = (*inner[k][:2], _changed(inner[k][2], inner[k][1], rng))
        elif kind == "empty":
            inner = []
        elif kind == "one score":
            inner = [(n, wire, struct.pack("<f", -3.0) if n == 2 else value) for n, wire, value in inner]
        elif kind == "unknown":
            inner = [(1, 2, value) for n, _, value in inner if n == 1] + [(2, 5, struct.pack("<f", -rng.random()))]
        fields[i] = (1, 2, _message(inner))
        if kind == "twice":
            fields.append(fields[i])
    if kind == "gone":
        del fields[rng.choice(places)]
    elif kind == "order":
        rng.shuffle(fields)
    elif kind == "runs":
        one = lambda text: _message([(1, 2, text), (2, 5, struct.pack("<f", -rng.random()))])
        fields += [(1, 2, one(rng.choice([b"a", b"ab", "▁".encode()]) * k)) for k in range(2, rng.choice([30, 300]))]
    file.write_bytes(_message(fields))
    return f"pieces: {kind}"


def settings_of_it(file: Path, rng: random.Random) -> str:
    """A field of how it was trained or of how it normalises: another value, gone, or one more."""
    fields = list(_fields(file.read_bytes()))
    i = rng.choice([i for i, (n, _, _) in enumerate(fields) if n in (2, 3)])
    inner = list(_fields(fields[i][2]))
    kind = rng.choice(["changed", "gone", "more"])
    k = rng.randrange(len(inner) or 1)
    if kind == "more" or not inner:
        inner.append((rng.choice([2, 3, 4, 5, 24, 35, 40]), 0, _varint(rng.choice(NUMBERS))))
    elif kind == "gone":
        del inner[k]
    else:
        inner[k] = (*inner[k][:2], _changed(inner[k][2], inner[k][1], rng))
    number = fields[i][0]
    fields[i] = (number, 2, _message(inner))
    file.write_bytes(_message(fields))
    return f"field {number}: {kind}"


def table(file: Path, rng: random.Random) -> str:
    """The table of characters: units of its array, its texts, its length."""
    fields = list(_fields(file.read_bytes()))
    i = next(i for i, (n, _, _) in enumerate(fields) if n == 3)
    inner = [[n, wire, bytearray(v)] for n, wire, v in _fields(fields[i][2])]
    for field in inner:
        data = field[2]
        if field[0] == 2 and len(data) > 8:
            (size,) = struct.unpack_from("<I", data)
            for _ in range(rng.choice([1, 20, 2000])):
                at = rng.choice([4 + 4 * rng.randrange(max(1, min(size, len(data) - 8) // 4)), rng.randrange(len(data) - 4)])
                old = struct.unpack_from("<I", data, at)[0]
                new = rng.choice([0, 2**32 - 1, old ^ 1 << rng.randrange(32), old ^ 0x100, rng.randrange(2**32), at // 4 << 10])
                struct.pack_into("<I", data, at, new)
    fields[i] = (3, 2, _message([(n, wire, bytes(v)) for n, wire, v in inner]))
    file.write_bytes(_message(fields))
    return "units of the table"


def sentencepiece_ids(data: bytes, texts: tuple[str, ...]) -> list[list[int]] | None:
    """Ids as its library gives them, in a process that it may end; None where it does not read the model."""
    ours, theirs = os.pipe()
    if not (child := os.fork()):
        try:
            os.close(ours)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            import sentencepiece

            model = sentencepiece.SentencePieceProcessor(model_proto=data)
            with os.fdopen(theirs, "w") as pipe:
                json.dump([model.encode(text) for text in texts], pipe)
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return json.loads(said) if said else None


def read_sentencepiece(file: Path) -> None:
    tokenizer = _opened(file.parent)
    if tokenizer is None:
        return
    result = encoded(tokenizer)
    theirs = sentencepiece_ids(file.read_bytes(), tuple(result))
    for (text, ids), other in zip(result.items(), theirs or (), strict=False):
        if list(ids) != other:
            raise AssertionError(f"{text[:40]!r} is {ids[:20]}, of SentencePiece {other[:20]}")


# -- bytes with ranks -------------------------------------------------------------------------------------------------------


@lru_cache
def _ranked() -> list[bytes]:
    """Bytes, and what neighbours of a text join to."""
    ranked, words = [bytes((b,)) for b in range(256)], [word.encode() for word in _PROSE.split(" ")]
    for length in range(2, 9):
        for word in words:
            if (part := word[:length]) not in ranked and part[:-1] in ranked and part[-1:] in ranked and len(ranked) < N_RANKED:
                ranked.append(part)
    return ranked


def _tekken() -> Named:
    from circuitlab.model.loading.gguf.splitting import TEKKEN

    vocab = [{"rank": i, "token_bytes": base64.b64encode(t).decode(), "token_str": None} for i, t in enumerate(_ranked())]
    sizes = {"num_vocab_tokens": len(vocab), "default_vocab_size": len(vocab) + 30, "default_num_special_tokens": 30}
    special = [{"rank": i, "token_str": text, "is_control": True} for i, text in enumerate(("<unk>", "<s>", "</s>", "[INST]"))]
    whole = {"config": {"pattern": TEKKEN, "version": "v3", **sizes}, "vocab": vocab}
    return [("tekken.json", json.dumps(one).encode()) for one in (whole, whole | {"special_tokens": special})]


def token_of_it(file: Path, rng: random.Random) -> str:
    """Some entries of a list: their number, their bytes."""
    data = json.loads(file.read_text())
    listed = data[rng.choice([name for name in ("vocab", "vocab", "special_tokens") if name in data])]
    kind = rng.choice(["rank", "bytes", "text", "swapped", "gone", "more", "no object"])
    for _ in range(rng.choice([1, 1, 5])):
        i, value = rng.randrange(len(listed)), listed
        if kind == "rank":
            value[i]["rank"] = rng.choice([-1, 0.5, 1e300, 2**63, 2**64, "3", None, True, i + 1, i - 1, [], 10**30])
        elif kind == "bytes":
            long = base64.b64encode(b"a" * rng.choice([255, 300, 2**20])).decode()
            value[i]["token_bytes"] = rng.choice(["", "=", "%%%%", "YQ", "YQ==\n", "é", 5, None, long, "YWI=", "YQ==YQ=="])
        elif kind == "text":
            value[i]["token_str"] = rng.choice(["", "a", "<s>", "\ud800", "\0", "x" * 5000, 5, None, ["a"], "Ġ", "<SPECIAL_3>"])
        elif kind == "swapped":
            value[i], value[i - 1] = value[i - 1], value[i]
        elif kind == "gone":
            del value[i]
        elif kind == "more":
            value += [dict(value[i], rank=len(value))] * rng.choice([1, 2, 1000])
        else:
            value[i] = rng.choice([None, 5, "a", [], {}])
    file.write_text(json.dumps(data))
    return f"tokens: {kind}"


def sizes_of_it(file: Path, rng: random.Random) -> str:
    """Numbers of its configuration, and how it splits a text."""
    data = json.loads(file.read_text())
    name = rng.choice(["default_vocab_size", "default_num_special_tokens", "num_vocab_tokens", "pattern"])
    numbers = [0, 1, 29, 31, N_RANKED, 10**7, 2**63, -1, 0.5, "8", None, True, 1e999]
    expressions = ["", "(", "a*b*", "(a|a)*$", "(?=.)", ".", "x" * 10**5, "(" * 5000, "\\p{Xyz}", "(?<=a{1,9999})", 5, "\ud800"]
    data["config"][name] = rng.choice(expressions if name == "pattern" else numbers)
    file.write_text(json.dumps(data))
    return f"{name} = {str(data['config'][name])[:20]}"


def read_ranks(file: Path) -> None:
    tokenizer = _opened(file.parent)
    if tokenizer is not None:
        encoded(tokenizer)


def _listed() -> Named:
    return [("tokenizer.model", b"".join(base64.b64encode(t) + b" %d\n" % i for i, t in enumerate(_ranked())))]


def line_of_it(file: Path, rng: random.Random) -> str:
    """Some lines of a list: the rank, the bytes, what is between them; the number of lines stays."""
    lines = file.read_bytes().split(b"\n")
    kind = rng.choice(["rank", "bytes", "space", "swapped", "same", "none"])
    for _ in range(rng.choice([1, 1, 5])):
        i = rng.randrange(len(lines) - 1)
        token, _, rank = lines[i].partition(b" ")
        ranks = (b"-1", b"0.5", b"1e3", b"9" * 30, b"9" * 5000, b"", b"x", b"\xd9\xa3", b"1_0", b"+5", b"00", b"0x1")
        tokens = (b"", b"=", b"%%%", b"YQ", b"YQ==YQ==", base64.b64encode(b"a" * 300), base64.b64encode(b"a" * 2**20), b"\xff")
        if kind == "rank":
            lines[i] = token + b" " + rng.choice(ranks)
        elif kind == "bytes":
            lines[i] = rng.choice(tokens) + b" " + rank
        elif kind == "space":
            lines[i] = token + rng.choice([b"", b"  ", b"\t", b" 1 ", b"\0", b"\x0b", b"\x1c", b"\xc2\xa0", b"\r"]) + rank
        elif kind == "swapped":
            lines[i], lines[i - 1] = lines[i - 1], lines[i]
        elif kind == "same":
            lines[i] = lines[rng.randrange(len(lines) - 1)]
        else:
            lines[i] = b""
    file.write_bytes(b"\n".join(lines))
    return f"lines: {kind}"


def read_list(file: Path) -> None:
    """As Llama 3's of so many tokens."""
    from circuitlab.model.loading import byte_ranks

    byte_ranks._LLAMA3_TOKENS = N_RANKED
    read_ranks(file)


# -- GGUF -------------------------------------------------------------------------------------------------------------------


def _said() -> Iterator[dict[str, Any]]:
    """The keys of vocabularies of each kind, from the models above."""
    for (_, data), model in zip(_models(), ("t5", "t5", "llama", "llama"), strict=True):
        pieces = [{n: v for n, _, v in _fields(value)} for number, _, value in _fields(data) if number == 1]
        rules = next({n: v for n, _, v in _fields(value)} for number, _, value in _fields(data) if number == 3)
        yield {
            "model": model,
            "tokens": [one[1].decode() for one in pieces],
            "scores": [struct.unpack("<f", one.get(2, bytes(4)))[0] for one in pieces],
            "token_type": [one.get(3, b"\x01")[0] for one in pieces],
            "add_space_prefix": True,
            "remove_extra_whitespaces": True,
            "unknown_token_id": 0,
            **({"precompiled_charsmap": rules[2]} if model == "t5" and rules.get(2) else {}),
        }


def _written(said: dict[str, Any]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        writer = gguf.GGUFWriter(Path(folder) / "v.gguf", "llama")
        for name, value in said.items():
            if isinstance(value, bytes):
                writer.add_array(f"tokenizer.ggml.{name}", value)
            else:
                add(writer, f"tokenizer.ggml.{name}", value)
        writer.add_string("tokenizer.chat_template", "{{ messages }}")
        writer.add_tensor("none", np.zeros(32, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return (Path(folder) / "v.gguf").read_bytes()


@lru_cache
def _ggufs() -> Named:
    return [("v.gguf", _written(said)) for said in _said()]


def key_of_it(file: Path, rng: random.Random) -> str:
    """The file of one vocabulary with another value of a key."""
    said = rng.choice(list(_said()))
    name = rng.choice(sorted(said))
    value = said[name]
    if name == "tokens":
        new = [t.decode("utf-8", "replace") for t in SAID]
        for _ in range(rng.choice([1, 5])):
            value[rng.randrange(len(value))] = rng.choice(new)
    elif name == "scores":
        value[rng.randrange(len(value))] = rng.choice(FLOATS)
    elif name == "token_type":
        value[rng.randrange(len(value))] = rng.choice([0, 1, 2, 3, 4, 5, 6, 7, -1, 2**31 - 1])
    elif name == "precompiled_charsmap":
        data = bytearray(value)
        for _ in range(rng.choice([1, 20, 500])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        said[name] = bytes(data)
    else:
        said[name] = rng.choice([True, False, 0, 5, 2**31, "x", "gpt2", "t5", "llama", "replit", 0.5])
    if rng.random() < 0.1:
        said[name] = rng.choice([True, 5, "x", 0.5, [1], ["a"], [0.5], b"\0"])
    file.write_bytes(_written(said))
    return f"{name} of {said['model']}"


def read_gguf(file: Path) -> None:
    from circuitlab.model.files.gguf.header import read_header
    from circuitlab.model.files.whole_file import WholeFile
    from circuitlab.model.loading.gguf.vocabulary import vocabulary

    tokenizer = vocabulary(read_header(WholeFile(file)))
    if tokenizer is not None:
        encoded(tokenizer)


# -- what stands beside a vocabulary ----------------------------------------------------------------------------------------


def _beside() -> Named:
    entry = lambda text, **how: {
        "content": text,
        "lstrip": False,
        "rstrip": False,
        "single_word": False,
        "normalized": False,
        **how,
    }
    n = sum(number == 1 for number, _, _ in _fields(_models()[0][1]))
    table_of_it = {"0": entry("<unk>", special=True), str(n): entry("<|im_start|>", special=True), str(n + 1): entry("    ")}
    settings = {
        "add_bos_token": True,
        "bos_token": {"content": "<s>"},
        "eos_token": "</s>",
        "added_tokens_decoder": table_of_it,
        "additional_special_tokens": ["<|im_start|>"],
        "chat_template": [{"name": "default", "template": "{{ messages }}"}],
    }
    more, named = (
        {"<|im_start|>": n, "    ": n + 1},
        {"bos_token": "<s>", "additional_special_tokens": ["<s>", {"content": "</s>"}]},
    )
    return [
        ("tokenizer_config.json", json.dumps(settings).encode()),
        ("special_tokens_map.json", json.dumps(named).encode()),
        ("added_tokens.json", json.dumps(more).encode()),
    ]  # fmt: skip


def read_beside(file: Path) -> None:
    (file.parent / "tokenizer.model").write_bytes(_models()[0][1])
    tokenizer = _opened(file.parent)
    if tokenizer is not None:
        encoded(tokenizer)


# name: (valid files, how they are read, what is done to them)
VOCABULARIES: dict[str, tuple[Callable[[], Named], Callable[[Path], None], tuple[Any, ...]]] = {
    "SentencePiece": (_models, read_sentencepiece, ((piece,) * 8 + (settings_of_it,) * 4 + (table,) * 6 + BYTES[:9])),
    "tekken": (_tekken, read_ranks, ((token_of_it,) * 8 + (sizes_of_it,) * 4 + (json_value, json_key, json_text) + BYTES[:6])),
    "tiktoken": (_listed, read_list, ((line_of_it,) * 8 + BYTES[:9])),
    "GGUF vocabularies": (_ggufs, read_gguf, ((key_of_it,) * 10 + GGUF + BYTES[:6])),
    "beside a vocabulary": (_beside, read_beside, ((json_value,) * 8 + (json_key,) * 4 + (json_text,) * 2 + BYTES[:6])),
}
