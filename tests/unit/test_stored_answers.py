"""Stored answers: every analysis is read back bit for bit, and what was not stored so is refused."""

from __future__ import annotations

import io
import json
import math
import random
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circuitlab import api
from circuitlab.analysis.attention.pattern import AttentionParams, attention
from circuitlab.analysis.base import Remainder, SeriesRef, TextRef, analyses
from circuitlab.analysis.behaviour.over_prompts import OverPromptsParams, over_prompts
from circuitlab.analysis.behaviour.token_loss import TokenLossParams, token_loss
from circuitlab.analysis.training.series import TrainingSeriesParams, training_series
from circuitlab.caption_parts import About, Essential, Part, Sense, of_difference, sense_of
from circuitlab.engine.engine import Engine
from circuitlab.engine.exact_values import as_json, fits, from_json
from circuitlab.engine.former_parts import with_sense
from circuitlab.engine.request import Answer, Provenance, Request, files_of
from circuitlab.engine.store import ModelStore
from circuitlab.engine.stored_answer import Outdated, read_stored, stored_bytes
from circuitlab.errors import BadInput
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject
from tests.fuzz.byte_mutators import BYTES
from tests.models import CONFIGS, FULL, directory
from tests.same import check_same
from tests.unit.test_exported import answers

SECRET = "zoe-quagmire"
(ODD_NAN,) = struct.unpack(">d", bytes.fromhex("fff8000000000123"))  # negative, and with bits of its own
SENSE = Sense(About.SLOPE, ("one", "two"), "in short", "")
NO_SENSES = (["elsewhere", [], "", None], [3, [], "", None], [None, [1], "", None], [None, "one", "", None], [None, [], 1, None])
OVERHEAD = 16 * 2**10  # bytes beyond the arrays: headers, request, provenance, captions


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models and prompts in the home of somebody whose name is nobody's business."""
    made = tmp_path_factory.mktemp("home") / SECRET / "private"
    made.mkdir(parents=True)
    directory(made / "gpt2", FULL, n_ctx=128)
    directory(made / "odd", CONFIGS["odd"], tokenizer=False)
    (made / "prompts.tsv").write_text("ab ab\ta\tb\nba ba\tb\ta\n", encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def answer(folder: Path) -> Answer:
    """A small one, with an intervention."""
    cut = (Intervention("scale", Site("z", 0, (1,)), (0.25,)),)
    subject = Subject(ModelRef(f"file:{folder / 'gpt2'}"), (0, 5, 6, 5), cut, Conventions(centre=False))
    return Engine(ModelStore()).answer(Request(token_loss, TokenLossParams(), subject))


def unpacked(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def packed(members: dict[str, bytes], kind: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", kind) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, kind)
    return out.getvalue()


def npy(array: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def text_of(data: bytes) -> str:
    """What stands in the file, as a reader of NPZ files sees it."""
    return str(np.load(io.BytesIO(data))["about"])


def said_otherwise(data: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """The same file with another `about`."""
    about = json.loads(text_of(data))
    change(about)
    return packed(unpacked(data) | {"about.npy": npy(np.array(json.dumps(about)))})


@pytest.mark.parametrize("name", sorted(analyses()))
def test_every_analysis_is_read_back_bit_for_bit(name: str, folder: Path) -> None:
    result = answers(name, folder)
    assert result, f"{name} was never answered"
    for one in result:
        original, ref = api.engine().identified(one), one.request.subject.model
        paths = {file.path for file in files_of(one.request.params) if isinstance(file, TextRef)}
        data = stored_bytes(original, {ref: "mine"}, {path: f"file {i}" for i, path in enumerate(sorted(paths))})
        assert data == stored_bytes(original, {ref: "mine"}, {path: f"file {i}" for i, path in enumerate(sorted(paths))})
        back = read_stored(data, lambda name, ref=ref: {"mine": ref}[name], {f"file {i}": p for i, p in enumerate(sorted(paths))})
        assert back.request == original.request
        check_same(back.result, original.result)
        assert back.provenance == replace(original.provenance, stored=True)
        assert back.complete == original.complete and back.fingerprint == original.fingerprint
        assert back.result.axes_of and not any(array.flags.writeable for array in back.result.arrays().values())
        for array in original.result.arrays():
            assert back.result.axes_of(array) == original.result.axes_of(array)
            assert back.result.unit_of(array) == original.result.unit_of(array)
        assert stored_bytes(back, {ref: "mine"}, {path: f"file {i}" for i, path in enumerate(sorted(paths))}) == data
        assert len(data) < original.result.nbytes + OVERHEAD
        for one_file in (data, stored_bytes(original)):  # listed in the session, or not
            for member, content in unpacked(one_file).items():
                plain = content.replace(b"\0", b"")
                assert SECRET.encode() not in plain and str(folder.parent.parent).encode() not in plain, member
            assert "file:" not in text_of(one_file)


def test_stored_bytes_say_nothing_of_when_they_were_written(answer: Answer) -> None:
    with zipfile.ZipFile(io.BytesIO(stored_bytes(answer))) as archive:
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_large_arrays_are_most_of_a_stored_answer(answer: Answer) -> None:
    n = 2**18
    rng = np.random.default_rng(0)
    noise = {"loss": rng.normal(size=n), "rank": rng.integers(0, 2**62, n), "tokens": rng.integers(0, 2**62, n)}
    result = replace(answer.result, **{name: noise.get(name, array) for name, array in answer.result.arrays().items()})
    data = stored_bytes(replace(answer, result=result))
    assert len(data) < 1.01 * result.nbytes + OVERHEAD + n // 8


@pytest.mark.parametrize(
    "value",
    [
        None, True, 0, -(2**62), 0.1, -0.0, math.inf, -math.inf, math.nan, ODD_NAN,
        complex(math.nan, -0.0), "", "ä⟨e2⟩\udc80", (), (1, 2.0, ("a", None)), [1, (2,)], Head(1, 2), Essential("remainder 0"),
        Part("a"), Part("a", SENSE), Essential("a", SENSE), (Part("a", Sense(of_differences="")), Essential("")),
        Remainder(math.nan, 1.5, "logit", "range"), np.float32(0.1), np.float64(math.nan), np.int64(-3), np.bool_(True),
        np.complex64(1 + 2j), {"entropy": "nats", "": (1,)},
    ],
)  # fmt: skip
def test_values_are_read_back_bit_for_bit(value: Any) -> None:
    check_same(from_json(json.loads(json.dumps(as_json(value)))), value)


def test_a_value_of_another_kind_is_not_stored_as_something_else() -> None:
    for value in (object(), b"x", {1: 2}, {1}, np.array([1])):
        with pytest.raises(TypeError):
            as_json(value)
    for data in ({}, {"head": [1]}, {"head": [1.5, 2]}, {"what": 1}, {"number": ["O", ""]}, {"float": "00"}, {"a": 1, "b": 2}):
        with pytest.raises(ValueError, match=r"."):
            from_json(data)
    for said in ("a", ["a"], *(["a", False, *rest] for rest in NO_SENSES)):
        with pytest.raises(ValueError, match=r"."):
            from_json({"part": said})
    assert fits(tuple[str, ...], ("a",)) and not fits(tuple[str, ...], (1,)) and not fits(int, True) and fits(float, 3)
    assert fits(tuple[int, float], (1, 2.0)) and not fits(tuple[int, float], (1,)) and fits(int | None, None)


def test_a_checkpoint_and_a_model_of_another_place(answer: Answer) -> None:
    here = replace(answer.request.subject.model, checkpoint=3)
    one = replace(answer, request=replace(answer.request, subject=replace(answer.request.subject, model=here)))
    data, elsewhere = stored_bytes(one, {replace(here, checkpoint=None): "mine"}), ModelRef("file:/b/mine", None, (("a", "b"),))
    assert read_stored(data, lambda name: elsewhere).request.subject.model == replace(elsewhere, checkpoint=3)
    assert read_stored(data, elsewhere).request.subject.model == elsewhere
    with pytest.raises(BadInput, match="cannot be read") as caught:
        read_stored(data, {"yours": elsewhere}.__getitem__)
    assert caught.value.got == "mine"


def test_other_models_and_files_are_named_without_their_place(folder: Path) -> None:
    """Of the session's tables or not: the model beside which series were drawn, its own series, one of no folder, a text."""
    own, other = ModelRef(f"file:{folder / 'gpt2'}"), ModelRef(f"file:{folder / 'odd'}")
    series = (SeriesRef(own.source, "aa"), SeriesRef(other.source, "bb"), SeriesRef("builtin:attn-only-0l", "cc"))
    request = Request(training_series, TrainingSeriesParams(series), Subject(own))
    result = api.open("attn-only-0l").compute("training_series", models="attn-only-0l").result
    one = Answer(request, result, True, Provenance(weights="dd"))
    for models in ({}, {own: "mine"}, {own: "mine", other: "yours"}):
        data = stored_bytes(one, models)
        assert not any(SECRET.encode() in content.replace(b"\0", b"") for content in unpacked(data).values())
        elsewhere = {name: ModelRef(f"file:/there/{name}") for name in models.values()} or {"gpt2": ModelRef("file:/there/gpt2")}
        back = read_stored(data, elsewhere.__getitem__).request
        sources = [ref.source for ref in back.params.models]
        assert sources[0] == back.subject.model.source == next(iter(elsewhere.values())).source
        assert sources[1] == ("file:/there/yours" if other in models else "session:odd") and sources[2] == series[2].source
        assert [ref.sha256 for ref in back.params.models] == ["aa", "bb", "cc"]


def test_a_path_inside_a_text_is_not_stored(answer: Answer) -> None:
    inner = json.dumps({"on": "file", "text": {"path": f"/home/{SECRET}/a.txt", "sha256": "aa"}})
    params = OverPromptsParams(TextRef("prompts.tsv", "bb"), "in_context", inner)
    with pytest.raises(BadInput, match="over_prompts is not stored"):
        stored_bytes(replace(answer, request=Request(over_prompts, params, answer.request.subject)))


def test_an_answer_of_another_version_is_refused_by_name(answer: Answer) -> None:
    data = said_otherwise(stored_bytes(answer), lambda about: about["stored"].update(version=token_loss.version + 1))
    with pytest.raises(BadInput, match="token_loss is by another version") as caught:
        read_stored(data, answer.request.subject.model)
    assert (caught.value.expected, caught.value.got) == (f"version {token_loss.version}", f"version {token_loss.version + 1}")


def test_an_answer_of_an_earlier_version_that_holds_has_no_values_where_it_had_no_fields(answer: Answer) -> None:
    members = {name: data for name, data in unpacked(stored_bytes(answer)).items() if not name.startswith("equal.")}

    def before(about: dict[str, Any]) -> None:
        about["stored"]["version"] = token_loss.version - 1
        del about["stored"]["arrays"]["equal"]
        about.get("missing", {}).pop("equal", None)

    older = said_otherwise(packed(members), before)
    ref, config = answer.request.subject.model, lambda: FULL
    back = read_stored(older, ref, config=config)
    assert back.request == answer.request and (back.result.equal == -1).all() and back.result.equal.shape == (4,)
    np.testing.assert_array_equal(back.result.loss, answer.result.loss)
    for data, known in ((older, None), (stored_bytes(answer), config)):
        with pytest.raises(BadInput) if known is None else nullcontext():
            read_stored(data, ref, config=known)
    for version in (0, token_loss.version - 2, token_loss.version + 1, "2"):
        with pytest.raises(Outdated):
            read_stored(said_otherwise(older, lambda about, v=version: about["stored"].update(version=v)), ref, config=config)


FORMER = {
    "norm not folded": Sense(About.READING), "W_U centred": Sense(About.READING), "exact": Sense(About.EXACT),
    "exact up to a positive scale per token": Sense(), "control: 4 samples of 25 random tokens, seed 0": Sense(),
    "4 samples of BOS + 25 random tokens × 4, seed 0": Sense(About.SAMPLE), "4 samples": Sense(), "seed 3, 4 samples": Sense(),
    "10 pieces of 64 tokens from a.txt, seed 1": Sense(About.SAMPLE), "rows sum to 0.9 … 1.1: scales": Sense(of_differences=""),
    "own tokens of all 60 rows": Sense(quantities=("own tokens",), brief="all 60 rows"),
    "QK: rows minus their means over sources": Sense(quantities=("QK",)),
    "slope by ln index: least squares over": Sense(About.SLOPE),
    "mean of 3 of 1,200 prompts of a.tsv": Sense(About.MEAN), "sd: standard deviation over prompts": Sense(About.SPREAD),
    "chance −0.92: logits that have nothing to do with attention": Sense(About.CHANCE),
    "not computed: prefix matching and ablation, the context is too short": Sense(
        About.NOT_COMPUTED, ("prefix matching", "ablation")
    ),
    "prefix matching, copying (repeated): 4 samples of 25 random tokens × 4, seed 0": Sense(
        About.SAMPLE, ("prefix matching", "copying (repeated)")
    ),
}  # fmt: skip


def test_parts_of_captions_that_format_1_had_as_texts_have_their_sense(answer: Answer) -> None:
    pattern = Engine(ModelStore()).answer(Request(attention, AttentionParams(), answer.request.subject))
    series = ("small: 16 × 50 random tokens × 2, seed 0", "in-context score on text: tokens 12–15 minus 2–4", "another")
    said = lambda about: about["stored"]["fields"].update(conventions=["float32", "pattern: rows sum to 1", *series])

    def of_format(number: int) -> tuple[str, ...]:
        def change(about: dict[str, Any]) -> None:
            said(about)
            about["stored"]["format"] = number

        return read_stored(said_otherwise(stored_bytes(pattern), change), pattern.request.subject.model).result.conventions

    former, plain = of_format(1), of_format(2)
    assert former == plain == ("float32", "pattern: rows sum to 1", *series) and {sense_of(part) for part in plain} == {Sense()}
    assert of_difference(former[1]) == "pattern" and sense_of(former[2]) == Sense(About.SAMPLE, brief="16 × 50 × 2")
    assert [sense_of(part).about for part in former[3:]] == [About.IN_CONTEXT, None]
    assert "pattern: rows sum to 1" in pattern.result.conventions
    for text, sense in FORMER.items():
        assert sense_of(with_sense(text)) == sense and sense_of(with_sense(Essential(text))) == sense, text
        assert type(with_sense(Essential(text))) is Essential and with_sense(text) == text
    assert of_difference(next(part for part in pattern.result.conventions if "rows" in part)) == "pattern"


OTHERWISE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "another analysis": lambda about: about.update(analysis="no_such_analysis"),
    "no name": lambda about: about.update(analysis=3),
    "another format": lambda about: about["stored"].update(format=3),
    "nothing stored": lambda about: about.pop("stored"),
    "a text for a number": lambda about: about["stored"]["fields"].update(done="all of it"),
    "a field too many": lambda about: about["stored"]["fields"].update(surplus=1),
    "a field too few": lambda about: about["stored"]["fields"].pop("done"),
    "conventions that are no texts": lambda about: about["stored"]["fields"].update(conventions=[1]),
    "an array too few": lambda about: about["stored"]["arrays"].pop("loss"),
    "an array as a field": lambda about: about["stored"].update(
        fields=about["stored"]["fields"] | {"loss": 1.0},
        arrays={k: v for k, v in about["stored"]["arrays"].items() if k != "loss"},
    ),
    "another dtype": lambda about: about["stored"]["arrays"].update(loss=["<f8", about["stored"]["arrays"]["loss"][1]]),
    "another shape": lambda about: about["stored"]["arrays"]["loss"][1].append(1),
    "parameters it does not have": lambda about: about.update(params={"nothing": 1}),
    "an impossible intervention": lambda about: about["subject"]["edits"][0].update(op="explode"),
    "a token that is none": lambda about: about["subject"]["tokens"].append("a"),
    "whether it is complete": lambda about: about.update(complete=1),
    "provenance": lambda about: about["provenance"].update(seconds="long"),
    "deep": lambda about: about["stored"]["fields"].update(conventions=json.loads("[" * 900 + "]" * 900)),
}


@pytest.mark.parametrize("what", OTHERWISE)
def test_what_was_not_stored_so_is_refused(answer: Answer, what: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_stored(said_otherwise(stored_bytes(answer), OTHERWISE[what]), answer.request.subject.model)
    assert caught.value.expected and caught.value.got and caught.value.remedy


def test_arrays_that_are_not_what_was_stored_are_refused(answer: Answer) -> None:
    data = stored_bytes(answer)
    members, loss = unpacked(data), np.load(io.BytesIO(data))["loss"]
    objects = io.BytesIO()
    np.save(objects, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    for changed in (
        {"loss.npy": npy(loss.astype(np.float64))},
        {"loss.npy": npy(loss[:-1])},
        {"loss.npy": npy(loss[None])},
        {"loss.npy": npy(loss.astype(">f4"))},
        {"loss.npy": members["loss.npy"] + b"\0"},
        {"loss.npy": objects.getvalue()},
        {"loss.npy": members["loss.npy"].replace(b"(4,)", b"(-4,)")},
        {"loss.npy": b""},
        {"surplus.npy": npy(loss)},
        {"about.npy": npy(np.array(["{}"]))},
        {"about.npy": npy(np.array(3))},
        {"about.npy": npy(np.array("[" * 100_000))},
    ):
        with pytest.raises(BadInput):
            read_stored(packed(members | changed), answer.request.subject.model)
    with pytest.raises(BadInput):
        read_stored(packed(members, zipfile.ZIP_BZIP2), answer.request.subject.model)
    assert read_stored(packed(members, zipfile.ZIP_STORED), answer.request.subject.model).fingerprint == answer.fingerprint


def test_axes_of_one_name_are_equally_long(answer: Answer) -> None:
    short = replace(answer.result, loss=answer.result.arrays()["loss"][:-1])
    with pytest.raises(BadInput):
        read_stored(stored_bytes(replace(answer, result=short)), answer.request.subject.model)


def test_what_unpacks_to_more_than_is_allowed_is_not_unpacked(answer: Answer) -> None:
    members = unpacked(stored_bytes(answer))
    bomb = packed(members | {"loss.npy": npy(np.zeros(2**23, np.float32))})
    liar = packed(members | {"loss.npy": npy(np.zeros(4, np.float32))[:64] + bytes(2**25)})
    long = packed(members | {"about.npy": npy(np.array("x" * 2**22))})
    assert max(map(len, (bomb, liar, long))) < 2**20
    tracemalloc.start()
    try:
        for data in (bomb, long):
            with pytest.raises(BadInput, match="cannot be read"):
                read_stored(data, answer.request.subject.model, most=2**20)
        assert tracemalloc.get_traced_memory()[1] < 2**23
        with pytest.raises(BadInput):
            read_stored(liar, answer.request.subject.model)
    finally:
        tracemalloc.stop()


def test_damaged_files_are_refused_or_read(answer: Answer, tmp_path: Path) -> None:
    data, outcomes, file = stored_bytes(answer), set[str](), tmp_path / "one.npz"
    members = unpacked(data)
    inside = packed(members, zipfile.ZIP_STORED)
    for seed in range(600):
        rng = random.Random(seed)
        if seed % 3:  # past the checksums of the archive
            changed = packed(members | _one_changed(members, rng), zipfile.ZIP_STORED)
        else:
            file.write_bytes(rng.choice([data, inside]))
            rng.choice(BYTES)(file, rng)
            changed = file.read_bytes()
        try:
            back = read_stored(changed, answer.request.subject.model, most=2**22)
            back.result.table()
            outcomes.add("read")
        except BadInput as error:
            assert error.expected and error.got and str(tmp_path) not in str(error)
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}


def _one_changed(members: dict[str, bytes], rng: random.Random) -> dict[str, bytes]:
    name = rng.choice(list(members))
    data = bytearray(members[name])
    for _ in range(rng.choice([1, 2, 9])):
        data[rng.randrange(len(data))] = rng.choice([0, 255, 128, rng.randrange(256)])
    return {name: bytes(data)}
