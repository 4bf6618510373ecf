"""Tokenizers of model folders against `tokenizers` and `transformers`: text survives, BOS is theirs, misfits are said."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Inner
from tokenizers import decoders, normalizers, pre_tokenizers, processors, trainers
from tokenizers.models import BPE

from circuitlab.errors import BadInput, BadModel
from circuitlab.model.forward import forward
from circuitlab.model.loading import open_model
from circuitlab.model.loading.tokenizer_files import find_tokenizer
from tests.models import byte_tokenizer
from tests.unit.families.agreement import assert_analyses_work, saved
from tests.unit.families.test_llama import SMALL

NASTY = (
    "naïve  café\n\t x\u00a0y 🙂 e\u0301 <s> <|endoftext|> \u202e \x00 ﷽ 👩\u200d👩\u200d👧 \ud7ff\ufffd\ufeff",
    "", " ", "  leading", "trailing  ", "\r\n\r\n", "1234567 don't I'LL", "日本語テキスト", "\U0010ffff\x7f\x1b[0m",
    "<0x0A>", "Ġ▁Ċ",
)  # fmt: skip


def samples(shared: Path) -> list[str]:
    """Pieces of the corpora: prose, verse, code and three languages."""
    files = sorted((shared / "corpus").glob("*/*"))[::23] + sorted((shared / "corpus" / "parallel").iterdir())
    return [f.read_text(encoding="utf-8", errors="replace")[1000:5000] for f in files] + list(NASTY)


def write(folder: Path, **files: Any) -> Path:
    """JSON files by their stems."""
    folder.mkdir(exist_ok=True)
    for stem, content in files.items():
        (folder / f"{stem}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


@lru_cache
def sentencepiece_like(bos: bool = False) -> str:
    """A tokenizer.json of Llama 2's kind: spaces as ▁, one in front, bytes for what is not in the vocabulary."""
    inner = Inner(BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    special = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    text = ["once upon a time there was a little girl", "the the the a an and", "wide world of words"]
    inner.train_from_iterator(text, trainers.BpeTrainer(vocab_size=320, special_tokens=special, show_progress=False))
    whole = json.loads(inner.to_str())
    whole["added_tokens"] = [t for t in whole["added_tokens"] if not t["content"].startswith("<0x")]
    strip = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    again = Inner.from_str(json.dumps(whole))
    again.decoder = decoders.Sequence(strip)
    if bos:
        again.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return again.to_str()


def byte_level(shared: Path, folder: Path, **files: Any) -> Path:
    """GPT-2's real tokenizer as `vocab.json` and `merges.txt`."""
    whole = json.loads((shared / "tokenizers" / "gpt2" / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    merges = [m if isinstance(m, str) else " ".join(m) for m in whole["merges"]]
    write(folder, vocab=whole["vocab"], **files)
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")
    return folder


def test_gpt2_s_own_tokenizer_gives_its_ids_and_text_back(shared_dir: Path) -> None:
    folder = shared_dir / "tokenizers" / "gpt2"
    ours, theirs = find_tokenizer(folder), Inner.from_file(str(folder / "tokenizer.json"))
    assert ours is not None
    theirs.encode_special_tokens = True
    for text in samples(shared_dir):
        ids = ours.encode(text)
        assert list(ids) == theirs.encode(text, add_special_tokens=False).ids
        assert ours.decode(ids) == text
        assert 50256 not in ids
    assert (ours.bos, ours.adds_bos) == (50256, False)


@pytest.mark.parametrize("kind", ["GPT2Tokenizer", "Qwen2Tokenizer"])
def test_vocabulary_and_merges_make_the_same_tokenizer_as_transformers(shared_dir: Path, tmp_path: Path, kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    folder = byte_level(shared_dir, tmp_path / "t", tokenizer_config={"tokenizer_class": kind})
    ours, theirs = find_tokenizer(folder), getattr(transformers, kind).from_pretrained(folder, local_files_only=True)
    assert ours is not None
    assert ours.n_tokens == 50257
    for text in samples(shared_dir):
        assert list(ours.encode(text)) == theirs.encode(text, add_special_tokens=False, split_special_tokens=True), text[:60]
    if kind == "GPT2Tokenizer":
        whole = find_tokenizer(shared_dir / "tokenizers" / "gpt2")
        assert whole is not None
        assert all(ours.encode(text) == whole.encode(text) for text in samples(shared_dir))
        assert all(ours.decode(ours.encode(text)) == text for text in samples(shared_dir))
        assert ours.display(50256) == whole.display(50256) == "<|endoftext|>"


def test_text_survives_a_sentencepiece_like_tokenizer(shared_dir: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "unk_token": "<unk>"}
    folder = write(tmp_path / "t", tokenizer=json.loads(sentencepiece_like(bos=True)), tokenizer_config=config)
    ours, theirs = find_tokenizer(folder), transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    assert ours is not None
    assert (ours.bos, ours.adds_bos) == (1, True)
    for text in samples(shared_dir):
        ids = ours.encode(text, bos=True)
        assert list(ids) == theirs.encode(text, split_special_tokens=True), text[:60]
        assert ours.decode(ids) == text.replace("▁", " "), text[:60]  # its own sign for a space


FLAG = {"bos_token": "<s>", "add_bos_token": True}
ADDED = {"__type": "AddedToken", "content": "</s>", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
BOS: dict[str, tuple[str, dict[str, Any], int, bool]] = {
    "nothing stated": ("", {}, 1, False),
    "a flag without a template": ("", {"tokenizer_config": FLAG}, 1, False),
    "a template": ("<s>", {"tokenizer_config": {"bos_token": "<s>"}}, 1, True),
    "a template and a flag": ("<s>", {"tokenizer_config": FLAG}, 1, True),
    "a flag against a template": ("<s>", {"tokenizer_config": {**FLAG, "add_bos_token": False}}, 1, True),
    "a template of another token": ("</s>", {"tokenizer_config": FLAG}, 2, True),
    "an object": ("", {"tokenizer_config": {"bos_token": ADDED}}, 2, False),
}


@pytest.mark.parametrize("name", BOS)
def test_bos_is_what_transformers_puts_in_front(tmp_path: Path, name: str) -> None:
    transformers = pytest.importorskip("transformers")
    template, files, bos, adds = BOS[name]
    inner = Inner.from_str(sentencepiece_like())
    if template:
        special = [(template, inner.token_to_id(template))]
        inner.post_processor = processors.TemplateProcessing(single=f"{template} $A", special_tokens=special)
    folder = write(tmp_path / "t", tokenizer=json.loads(inner.to_str()), **files)
    ours = find_tokenizer(folder)
    assert ours is not None
    assert (ours.bos, ours.adds_bos) == (bos, adds)
    theirs = transformers.PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    assert list(ours.encode("time", bos=adds)) == theirs("time").input_ids
    assert bool(ours.notes) == (name in ("a flag without a template", "a flag against a template"))


@pytest.mark.parametrize("adds", [False, True])
def test_bos_of_vocabulary_and_merges_is_a_flag(shared_dir: Path, tmp_path: Path, adds: bool) -> None:
    transformers = pytest.importorskip("transformers")
    config = {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": adds, "bos_token": "<|endoftext|>"}
    folder = byte_level(shared_dir, tmp_path / "t", tokenizer_config=config)
    ours, theirs = find_tokenizer(folder), transformers.GPT2Tokenizer.from_pretrained(folder, local_files_only=True)
    assert ours is not None
    assert (ours.bos, ours.adds_bos) == (50256, adds)
    assert list(ours.encode("time", bos=adds)) == theirs("time").input_ids


@pytest.mark.parametrize(
    ("files", "bos"),
    [
        ({"special_tokens_map": {"bos_token": "</s>"}}, 2),
        ({"config": {"bos_token_id": 2}}, 2),
        ({"config": {"text_config": {"bos_token_id": 2}}}, 2),
        ({"config": {"bos_token_id": 99999}}, 1),
        ({"config": {"bos_token_id": True}, "tokenizer_config": {"bos_token": None}}, 1),
        ({"tokenizer_config": {"bos_token": "not there"}, "config": {"bos_token_id": 2}}, 2),
    ],
)
def test_bos_is_looked_for_in_every_file(tmp_path: Path, files: dict[str, Any], bos: int) -> None:
    result = find_tokenizer(write(tmp_path, tokenizer=json.loads(sentencepiece_like()), **files))
    assert result is not None
    assert (result.bos, result.adds_bos) == (bos, False)


def model_in(folder: Path, d_vocab: int) -> Path:
    """A random Llama of `transformers`."""
    transformers = pytest.importorskip("transformers")
    saved(folder, transformers.LlamaConfig(**{**SMALL, "vocab_size": d_vocab}))
    return folder


@pytest.mark.parametrize(("d_vocab", "said"), [(300, "have no text"), (60, "cannot be run")])
def test_a_tokenizer_of_another_size_is_said_and_harmless(tmp_path: Path, d_vocab: int, said: str) -> None:
    folder = model_in(tmp_path / "m", d_vocab)
    byte_tokenizer().save(folder / "tokenizer.json")
    opened = open_model(folder)
    assert any("tokenizer has 257 tokens" in note and said in note for note in opened.notes)
    assert_analyses_work(folder)
    tokenizer = opened.weights.tokenizer
    assert tokenizer is not None
    assert all(tokenizer.display(i) for i in range(d_vocab))
    with pytest.raises(BadInput, match="outside the vocabulary"):
        forward(opened.weights, (0, max(d_vocab, tokenizer.n_tokens)))
    if d_vocab == 60:
        with pytest.raises(BadInput, match="outside the vocabulary"):
            forward(opened.weights, tokenizer.encode("zebra"))


def test_a_longest_text_without_end_opens(tmp_path: Path) -> None:
    """What `transformers` writes where a tokenizer knows no longest text."""
    folder = model_in(tmp_path / "m", 257)
    byte_tokenizer().save(folder / "tokenizer.json")
    write(folder, tokenizer_config={"model_max_length": int(1e30), "tokenizer_class": "PreTrainedTokenizerFast"})
    assert "1000000000000000019884624838656" in (folder / "tokenizer_config.json").read_text()
    assert open_model(folder).weights.tokenizer is not None


def test_a_bos_outside_the_vocabulary_is_not_used(tmp_path: Path) -> None:
    folder = model_in(tmp_path / "m", 60)
    byte_tokenizer().save(folder / "tokenizer.json")
    write(folder, tokenizer_config={"bos_token": "z"})
    opened = open_model(folder)
    tokenizer = opened.weights.tokenizer
    assert tokenizer is not None
    assert tokenizer.bos is None
    assert not opened.weights.config.prepend_bos
    assert any("outside the vocabulary" in note for note in opened.notes)


def test_prompts_of_a_model_begin_with_bos_where_its_tokenizer_puts_it(tmp_path: Path) -> None:
    folder = model_in(tmp_path / "m", 400)
    write(folder, tokenizer=json.loads(sentencepiece_like(bos=True)))
    assert open_model(folder).weights.config.prepend_bos
    write(folder, tokenizer=json.loads(sentencepiece_like()))
    assert not open_model(folder).weights.config.prepend_bos


DAMAGED: dict[str, dict[str, str]] = {
    "tokenizer.json": {"tokenizer.json": "{}"},
    "merges of what is not there": {"vocab.json": '{"a": 0}', "merges.txt": "a b"},
    "numbers that are none": {"vocab.json": '{"a": "0"}', "merges.txt": ""},
    "a list": {"vocab.json": "[]", "merges.txt": ""},
    "no text": {"vocab.json": '{"a": 0}', "merges.txt": "\udcff"},
    "its configuration": {"vocab.json": '{"a": 0}', "merges.txt": "", "tokenizer_config.json": "{"},
    "an added token elsewhere": {"vocab.json": '{"a": 0}', "merges.txt": "", "added_tokens.json": '{"<x>": 7}'},
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_tokenizers_are_typed_errors(tmp_path: Path, name: str) -> None:
    for file, content in DAMAGED[name].items():
        (tmp_path / file).write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(BadModel, match=r"json|merges"):
        find_tokenizer(tmp_path)


def test_added_tokens_stand_where_the_files_say(tmp_path: Path) -> None:
    vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    listed = {"257": {"content": "<|b|>", "special": True}}
    folder = write(tmp_path / "t", vocab=vocab, added_tokens={"<|a|>": 256}, tokenizer_config={"added_tokens_decoder": listed})
    (folder / "merges.txt").write_text("")
    made = find_tokenizer(folder)
    assert made is not None
    assert [made.display(i) for i in (256, 257)] == ["<|a|>", "<|b|>"]
    assert all(made.decode(made.encode(text)) == text for text in NASTY)
    assert made.notes[0].startswith("tokenizer built from vocab.json and merges.txt")


SPACES = {" " * n: 288 - n for n in range(2, 31)} | {"\t" * n: 295 - n for n in range(2, 9)}
RUNS = ("def f(x):\n        return x", "a    b", "\t\tif x:\n\t\t\ty", " " * 40 + "z", "<|endoftext|> hi", " \t  \t\t", " ", "")


@pytest.mark.parametrize("stated", ["added_tokens.json", "tokenizer_config.json"])
@pytest.mark.parametrize("kind", ["GPT2Tokenizer", "Qwen2Tokenizer"])
def test_runs_of_spaces_that_a_tokenizer_adds_are_text(tmp_path: Path, stated: str, kind: str) -> None:
    """Phi-2 and CodeGen have them as added tokens that are not special: they stand in a text and come back from it."""
    transformers = pytest.importorskip("transformers")
    vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))} | {"ab": 256, "<|endoftext|>": 257}
    entry = {"lstrip": False, "rstrip": False, "single_word": False}
    table = {str(i): {**entry, "content": text, "normalized": True, "special": False} for text, i in SPACES.items()}
    table |= {str(vocab["<|endoftext|>"]): {**entry, "content": "<|endoftext|>", "normalized": False, "special": True}}
    files: dict[str, Any] = {"added_tokens": SPACES} if stated == "added_tokens.json" else {}
    decoder = {"added_tokens_decoder": table} if not files else {}
    config = {"tokenizer_class": kind, "unk_token": "<|endoftext|>", "bos_token": "<|endoftext|>", **decoder}
    folder = write(tmp_path / "t", vocab=vocab, tokenizer_config=config, **files)
    (folder / "merges.txt").write_text("#version: 0.2\na b\n")
    ours, theirs = find_tokenizer(folder), getattr(transformers, kind).from_pretrained(folder, local_files_only=True)
    assert ours is not None
    for text in (*RUNS, *NASTY):
        assert list(ours.encode(text)) == theirs.encode(text, add_special_tokens=False, split_special_tokens=True), text
        assert ours.decode(ours.encode(text)) == text or kind == "Qwen2Tokenizer"
    assert SPACES[" " * 8] in ours.encode(RUNS[0])
    assert not ours.is_special(SPACES[" " * 8])
    assert ours.is_special(vocab["<|endoftext|>"])
    assert ours.display(SPACES["   "]) == "···"


def test_the_pieces_of_gpt_1_are_words_not_bytes(tmp_path: Path) -> None:
    """A vocabulary whose pieces end in `</w>`, against `transformers`' own class for such files."""
    transformers = pytest.importorskip("transformers")
    prose = "The Cat sat on the mat; the dog, who had sat there before, didn't like it. Cats and dogs! 12 of them."
    inner = Inner(BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    inner.normalizer, inner.pre_tokenizer = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(vocab_size=90, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False)
    inner.train_from_iterator([prose], trainer)
    model = json.loads(inner.to_str())["model"]
    write(tmp_path, vocab=model["vocab"])
    pairs = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(pairs) + "\n", encoding="utf-8")
    ours, theirs = find_tokenizer(tmp_path), transformers.OpenAIGPTTokenizer(model["vocab"], [tuple(p.split(" ")) for p in pairs])
    assert ours is not None
    assert "GPT-1" in ours.notes[0]
    for text in (prose, *NASTY):
        assert list(ours.encode(text)) == theirs.encode(text, add_special_tokens=False, split_special_tokens=True), text[:60]
