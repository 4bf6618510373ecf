"""Published heads: which models their files are about, what is said of which head, and what a damaged file says."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest

from circuitlab.disk.paths import resource
from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadModel
from circuitlab.figures.contracts.panel import facts_of
from circuitlab.model.config import ModelConfig
from circuitlab.model.records import known_heads as module
from circuitlab.model.records.known_heads import complaints, known_heads, read
from circuitlab.model.subject import Head, ModelRef
from tests.models import TINY, directory

SMALL = ModelConfig(
    n_layers=12,
    n_heads=12,
    d_model=768,
    d_head=64,
    d_mlp=3072,
    d_vocab=50257,
    n_ctx=1024,
    norm="layer",
    activation="gelu_new",
    biases=("q", "k", "v", "o", "mlp"),
)
TINY_FILE = {
    "model": "tiny",
    "names": ["somebody/tiny"],
    "shape": {"n_layers": 2, "n_heads": 4, "d_model": 24},
    "sha256": [],
    "sources": [
        {"cite": "A. Body 2020", "where": "a page", "heads": {"induction": ["L1H2", "L1H3"], "first token": ["L1H2"]}},
        {"cite": "B. Body 2021", "where": "a paper", "heads": {"induction": ["L1H2"]}, "note": "Measured on text."},
    ],
}


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in place of the shipped one."""
    folder = tmp_path / "known_heads"
    folder.mkdir()
    monkeypatch.setattr(module, "resource", lambda *parts: tmp_path.joinpath(*parts))
    clear()
    yield folder
    clear()


def clear() -> None:
    module._shipped.cache_clear()
    known_heads.cache_clear()


def test_the_shipped_files_can_be_read_and_name_their_sources() -> None:
    files = sorted(resource("known_heads").glob("*.json"))
    assert [f.stem for f in files] == ["attn-only-2l-demo", "gpt2-small"]
    assert not complaints()
    for file in files:
        roles = [role for listed in read(file).roles.values() for role in listed]
        assert roles and all(role.name and role.cite and role.where for role in roles)
    small = read(resource("known_heads", "gpt2-small.json"))
    named = lambda name: {head for head, roles in small.roles.items() if name in [r.name for r in roles]}
    assert len(named("name mover")) == 11
    assert named("previous token") == {(2, 2), (4, 11)}
    assert named("induction") == {(5, 5), (5, 8), (5, 9), (6, 9)}


@pytest.mark.parametrize(
    ("source", "by"),
    [
        ("hub:openai-community/gpt2", "name"),
        ("hub:openai-community/gpt2@607a30d", "name"),
        ("hub:somebody/gpt2-tuned", "shape"),
        ("file:/models/gpt2", "shape"),
        ("file:/models/anything", "shape"),
    ],
)
def test_gpt2_small_is_known_by_its_name_on_the_hub_else_by_its_shape(source: str, by: str) -> None:
    known = known_heads(SMALL, source)
    assert known is not None
    assert (known.model, known.by) == ("GPT-2 small", by)
    fits = " (only the shape fits)" if by == "shape" else ""
    assert known.words(Head(9, 9)) == f"published for GPT-2 small{fits}: name mover (Wang et al. 2022, indirect objects)"
    assert known.short(Head(9, 9)) == "name mover"
    assert known.words(Head(9, 10)) == ""
    assert "hints" in known.caption and ("fine-tuned" in known.caption) == (by == "shape")


@pytest.mark.parametrize(
    "changes", [{"n_layers": 11}, {"n_ctx": 512}, {"norm": "rms"}, {"d_vocab": 50258}, {"n_heads": 24, "d_head": 32}]
)
def test_another_shape_is_another_model_whatever_its_name(changes: Any) -> None:
    assert known_heads(replace(SMALL, n_kv_heads=0, **changes), "hub:openai-community/gpt2") is None


def test_a_folder_of_gpt2_smalls_shape_is_offered_hints(tmp_path: Path) -> None:
    """A file of zeros that takes no room on the disk, read where it lies."""
    config = {"model_type": "gpt2", "n_layer": 12, "n_head": 12, "n_embd": 768, "vocab_size": 50257, "n_positions": 1024}
    (tmp_path / "config.json").write_text(json.dumps(config))
    shapes: dict[str, tuple[int, ...]] = {"wte.weight": (50257, 768), "wpe.weight": (1024, 768)}
    for i in range(12):
        at = f"h.{i}"
        shapes |= {f"{at}.{ln}.{w}": (768,) for ln in ("ln_1", "ln_2") for w in ("weight", "bias")}
        shapes |= {f"{at}.attn.c_attn.weight": (768, 2304), f"{at}.attn.c_attn.bias": (2304,)}
        shapes |= {f"{at}.attn.c_proj.weight": (768, 768), f"{at}.attn.c_proj.bias": (768,)}
        shapes |= {f"{at}.mlp.c_fc.weight": (768, 3072), f"{at}.mlp.c_fc.bias": (3072,)}
        shapes |= {f"{at}.mlp.c_proj.weight": (3072, 768), f"{at}.mlp.c_proj.bias": (768,)}
    shapes |= {"ln_f.weight": (768,), "ln_f.bias": (768,)}
    ends = [0]
    for shape in shapes.values():
        ends.append(ends[-1] + 4 * prod(shape))
    header = {n: {"dtype": "F32", "shape": s, "data_offsets": ends[i : i + 2]} for i, (n, s) in enumerate(shapes.items())}
    text = json.dumps(header).encode()
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + ends[-1])
    engine, ref = Engine(ModelStore(largest_copy=1)), ModelRef(f"file:{tmp_path}")
    engine.store.largest_copy = 1
    known = facts_of(engine, ref).known_heads()
    assert known is not None and known.by == "shape"
    assert known.short(Head(5, 5)) == "induction, greater-than, group AMID"


def test_adding_a_model_is_adding_a_file(tmp_path: Path, shelf: Path) -> None:
    engine = Engine(ModelStore())
    ref = ModelRef(f"file:{directory(tmp_path / 'model')}")
    sha256 = engine.store.sha256(ref)
    assert facts_of(engine, ref).known_heads() is None
    (shelf / "tiny.json").write_text(json.dumps(TINY_FILE))
    clear()
    known = facts_of(engine, ref).known_heads()
    assert known is not None and known.by == "shape"
    assert known.short(Head(1, 2)) == "induction, first token"
    assert known.words(Head(1, 3)) == "published for tiny (only the shape fits): induction (A. Body 2020)"
    assert known.cites == ("A. Body 2020", "B. Body 2021")
    settings = engine.store.open(ref).settings_sha256
    (shelf / "exactly.json").write_text(
        json.dumps({**TINY_FILE, "model": "exactly this", "sha256": [sha256], "settings": [settings]})
    )
    clear()
    known = facts_of(engine, ref).known_heads()
    assert known is not None and (known.by, known.model) == ("fingerprint", "exactly this")
    assert known_heads(replace(TINY, d_model=30), "hub:somebody/tiny", sha256, settings) is None
    other = known_heads(TINY, "file:a", sha256, "7" * 64)
    assert other is not None and other.by == "shape", "the same weights under another configuration"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"colour": "blue"}, "colour"),
        ({"shape": {"n_layers": 2}}, "n_heads in shape"),
        ({"shape": {"n_layers": 2, "n_heads": 4, "width": 3}}, "width"),
        ({"names": "somebody/tiny"}, "names: a list"),
        ({"sources": [{"cite": "x", "heads": {}}]}, "no where"),
        ({"sources": [{"cite": "x", "where": "y", "heads": {"induction": ["1.4"]}}]}, "heads such as L9H6"),
        ({"sources": [{"cite": "x", "where": "y", "heads": {"induction": ["L2H0"]}}]}, "below L2H4"),
        ({"sources": [{"cite": "x", "where": "y", "heads": ["L0H0"]}]}, "by role"),
        ({"sources": {}}, "sources: a list"),
    ],
)
def test_a_file_that_is_wrong_is_named_and_left_out(tmp_path: Path, shelf: Path, changes: dict[str, Any], words: str) -> None:
    (shelf / "wrong.json").write_text(json.dumps({**TINY_FILE, **changes}))
    with pytest.raises(BadModel, match=r"wrong\.json") as caught:
        read(shelf / "wrong.json")
    assert words in str(caught.value)
    clear()
    (said,) = complaints()
    assert "wrong.json" in said and words in said
    engine, ref = Engine(ModelStore()), ModelRef(f"file:{directory(tmp_path / 'model')}")
    facts = facts_of(engine, ref)
    assert facts.known_heads() is None
    assert said in facts.notes
