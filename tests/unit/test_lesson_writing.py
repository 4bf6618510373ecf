"""A story as a lesson and back: the same story, or a refusal that names the step."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuitlab.cli.lessons_command import problems
from circuitlab.cli.parser import main
from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore, reference
from circuitlab.errors import BadInput
from circuitlab.figures.contracts.panel import view_types
from circuitlab.lessons.lesson import LARGEST, files, parse, read
from circuitlab.lessons.toml_text import toml_lines
from circuitlab.lessons.writing import markdown_of
from circuitlab.model.subject import ModelRef
from circuitlab.session_files.lesson_story import for_lesson, session_of_lesson, with_lesson
from circuitlab.session_files.model_table import mentioned
from circuitlab.session_files.session import ModelEntry, Note, Session
from circuitlab.session_files.session_text import bytes_of, parse_session, read_session
from circuitlab.state.state import State
from circuitlab.story.resolver import Resolver
from circuitlab.story.setup import Other, Setup
from circuitlab.story.story import Step, Story
from circuitlab.story.values import Value
from tests.models import directory
from tests.real_file import LESSONS
from tests.unit.test_session_text import plain, stories, texts

VIEWS = view_types()
FOLDER = Path("/somewhere/talks")


def reread(text: str, tmp_path: Path) -> Story:
    """The story of a file with this text."""
    path = tmp_path / "story.md"
    path.write_bytes(text.encode("utf-8"))
    return read(path).story


def is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def leaves(value: Any) -> list[Any]:
    """The values in a story that are neither lists nor tables, with the keys of tables."""
    if isinstance(value, (list, tuple)):
        return [leaf for one in value for leaf in leaves(one)]
    return [*value, *leaves(list(value.values()))] if isinstance(value, dict) else [value]


def table_of_story(story: Story) -> dict[str, Any]:
    return json.loads(bytes_of(Session(story=story), FOLDER)).get("story", {})


# -- laws ---------------------------------------------------------------------------------------------------------------------


markdown = st.lists(
    st.sampled_from(
        ["Words.", "", " ", "## A heading", "```", "```aside", "````", "```circuitlab", "+++", '"""', "\\", "\r", "{x}", "é\x7f"]
    ),
    max_size=5,
).map("\n".join)
written_steps = st.builds(
    Step, markdown, markdown, st.sampled_from([None, Setup(), Setup(heads=("L0H1",))]), st.just(()), markdown
)


@settings(max_examples=150)
@given(
    story=st.builds(Story, texts, st.lists(written_steps, min_size=1, max_size=3).map(tuple)).filter(
        lambda s: is_unicode(s.title)
    )
)
def test_whatever_is_written_in_a_story_survives(story: Story) -> None:
    text = markdown_of(story)
    assert parse(text, Path("a.md")).story == story
    assert parse(text.replace("\r\n", "\n").replace("\r", "\n"), Path("a.md")).story == story, "as a file gives it"


@settings(max_examples=150)
@given(story=stories)
def test_a_story_is_the_same_story_again_or_refused_where_a_lesson_cannot_hold_it(story: Story) -> None:
    table = table_of_story(story)
    result = leaves(table)
    known = not any(isinstance(leaf, str) and leaf.startswith("of tomorrow") for leaf in result)
    sayable = known and None not in result and all(is_unicode(leaf) for leaf in result if isinstance(leaf, str))
    try:
        text = markdown_of(story)
    except BadInput as error:
        assert not sayable or not story.steps
        assert error.expected and error.remedy
    else:
        assert story.steps and sayable
        assert parse(text, Path("a.md")).story == story


@settings(max_examples=150)
@given(table=st.dictionaries(texts, plain, max_size=3))
def test_tables_are_what_tomllib_reads(table: dict[str, Any]) -> None:
    refused = lambda where, expected, got: BadInput(where, expected=expected, got=ascii(got))
    try:
        lines = "\n".join(toml_lines({"plain": 1, "view": {"a b": table}, **table}, ("view",), refused))
    except BadInput:
        assert None in leaves(table) or not all(is_unicode(leaf) for leaf in leaves(table) if isinstance(leaf, str))
    else:
        assert tomllib.loads(lines) == {"plain": 1, **table, "view": {"a b": table}}


@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
def test_each_shipped_lesson_is_the_same_lesson_again(path: Path, tmp_path: Path) -> None:
    lesson = read(path)
    text = markdown_of(lesson)
    assert parse(text, path) == lesson and markdown_of(parse(text, path)) == text
    assert "[exactly]" not in text, "as a person would write it"
    (tmp_path / path.name).write_text(text, encoding="utf-8")
    assert problems(tmp_path / path.name) == ()


# a session names a model of the catalogue by its place, so its lesson does too
@pytest.mark.parametrize("path", [path for path in files() if path.stem not in LESSONS], ids=lambda path: path.stem)
def test_each_shipped_lesson_is_a_session_and_a_lesson_again(path: Path) -> None:
    session = session_of_lesson(read(path).story, path.parent, VIEWS)
    again = parse_session(bytes_of(session, FOLDER), FOLDER)
    assert again == session and again.now.model is not None
    exported = for_lesson(again, FOLDER / "talk.md", VIEWS)
    assert (exported.story, exported.local, exported.assumed) == (read(path).story, (), ())


# -- the text -----------------------------------------------------------------------------------------------------------------


def test_the_text_is_one_that_a_person_would_write(tmp_path: Path) -> None:
    setup = Setup(
        model="attn-only-2l", prompt="Ä “b”\n", heads=("L1H1",), show=("attention",), view={"attention": {"show": "scores"}}
    )
    value = Value("loss", "token_loss", {"head": "$head"}, "mean", ".2f")
    story = Story("Talk", (Step("The head", "Looks *back*, {loss}.", setup, (value,), "wait for the laugh"), Step("The end")))
    assert markdown_of(story) == (
        '+++\ntitle = "Talk"\n+++\n\n## The head\n\n```circuitlab\nmodel = "attn-only-2l"\ntext = "Ä “b”\\n"\nheads = ["L1H1"]\n'
        'show = ["attention"]\n[view.attention]\nshow = "scores"\n[values.loss]\nanalysis = "token_loss"\n'
        'set = { head = "$head" }\nread = "mean"\nformat = ".2f"\n```\n\nLooks *back*, {loss}.\n\n'
        "```aside\nwait for the laugh\n```\n\n## The end\n"
    )
    assert reread(markdown_of(story), tmp_path) == story


def test_what_markdown_would_change_stands_word_for_word_and_legible(tmp_path: Path) -> None:
    step = Step("A step", 'First\n\n## No step\n\n```\nopen """', aside="```aside\n")
    story = Story("", (step, Step(" spaced\n"), Step("Values", values=(Value("loss", "token_loss", {}, "mean", ".2f"),))))
    text = markdown_of(story)
    assert "\n## No step\n" in text and reread(text, tmp_path) == story


@pytest.mark.parametrize(
    "step",
    [
        Step("Wrong", "half \ud800"),
        Step("Wrong", setup=Setup(view={"attention": {"x": [None]}})),
        Step("Wrong", setup=Setup(unknown={"of tomorrow": 1})),
        Step("Wrong", setup=Setup(pin=(Other(Setup(heads=("L0H0",), unknown={"of tomorrow": 1})),))),
        Step("Wrong", unknown={"of tomorrow": 1}),
        Step("Wrong", values=(Value("a", "b", {}, "mean", ".2f", unknown={"of tomorrow": 1}),)),
    ],
    ids=range(6),
)
def test_what_a_lesson_cannot_hold_is_refused_by_the_step(step: Step) -> None:
    with pytest.raises(BadInput, match="Step 2, ‘Wrong’"):
        markdown_of(Story("Talk", (Step("Right"), step)))


def test_a_lesson_has_steps_and_not_too_many_bytes() -> None:
    for story in (Story("Talk"), Story("Talk", (Step("Long", "x" * LARGEST),))):
        with pytest.raises(BadInput):
            markdown_of(story)


def test_an_aside_may_stand_anywhere_in_a_step() -> None:
    front = '+++\ntitle = "T"\n+++\n'
    body = "One.\n\n```aside\nsmile\n```\n\nTwo.\n\n```\ncode\n```\n"
    step = parse(front + f"## S\n\n{body}", Path("a.md")).steps[0]
    assert (step.text, step.aside) == ("One.\n\nTwo.\n\n```\ncode\n```", "smile")
    assert parse(front + "## S\n\n```\n```aside\n```\n", Path("a.md")).steps[0].aside == "", "a fence may hold anything"
    for wrong in (f"{body}{body}", "```aside\nsmile\n", "```aside\nsmile\n```python\n"):
        with pytest.raises(BadInput, match="aside"):
            parse(front + f"## S\n\n{wrong}", Path("a.md"))
    for exactly in ("[exactly]\ntitle = 1", "[exactly]\ncolour = 1", 'heads = "L0H0"\n[exactly]\nwords = false', "exactly = 1"):
        with pytest.raises(BadInput, match=r"line \d+"):
            parse(front + f"## S\n\n\n```circuitlab\n{exactly}\n```\n", Path("a.md"))


def test_only_a_shipped_lesson_must_say_what_it_is_about(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lessons" / "talk.md"
    path.parent.mkdir()
    path.write_text('+++\ntitle = "T"\n+++\n## S\n\n```circuitlab\nmodel = "attn-only-2l"\n```\n', encoding="utf-8")
    assert problems(path) == ()
    monkeypatch.setattr("circuitlab.lessons.check.resource", lambda name: tmp_path / name)
    assert [fault.rpartition("no ")[2].split(";")[0] for fault in problems(path)] == ["about", "minutes"]


# -- models and files of a person's own ---------------------------------------------------------------------------------------


def test_models_and_files_of_ones_own_are_named_by_their_path_and_listed(tmp_path: Path) -> None:
    talks, data = tmp_path / "talks", tmp_path / "data"
    models = {
        "mine": ModelEntry(ModelRef(f"file:{data / 'runs'}", None, (("positions", "shortformer"),)), "77ab"),
        "near": ModelEntry(ModelRef(f"file:{talks / 'attn-only-2l'}")),
        "ours": ModelEntry(ModelRef("hub:a/b@c")),
        "small": ModelEntry(ModelRef("builtin:attn-only-2l")),
        "by hand": ModelEntry(reference("rope-induction?alpha=5")),
        "unused": ModelEntry(ModelRef("file:/elsewhere")),
    }
    value = Value("loss", "token_loss", {"x": None}, "mean", ".2f", other=Other(Setup(model="ours")))
    pins = (Other(Setup(model="near")), Setup(model="by hand", pin=(Other(Setup(model="mine")),)))
    view = {"term_importance": {"file": str(data / "names.tsv")}, "laboratory": {"far": None}}
    step = Step("One", setup=Setup(model="mine", pin=pins, view=view), values=(value,))
    session = Session(models, story=Story("T", (step, Step("Two", setup=Setup(model="small")))))
    exported = for_lesson(session, talks / "talk.md", VIEWS)
    assert set(exported.local) == {"../data/runs", "./attn-only-2l", "../data/names.tsv"} and exported.assumed == (
        "../data/runs",
    )
    first = exported.story.steps[0]
    assert (
        first.setup is not None
        and first.setup.model == "../data/runs"
        and exported.story.steps[1].setup == Setup(model="attn-only-2l")
    )
    assert first.values[0].other == Other(Setup(model="hub:a/b@c")) and first.values[0].params == {"x": "none"}
    assert first.setup.view == {"term_importance": {"file": "../data/names.tsv"}, "laboratory": {"far": "none"}}
    text = markdown_of(exported.story)
    assert str(tmp_path) not in text
    kept, same = with_lesson(models, parse(text, Path("a.md")).story, talks, VIEWS)
    assert kept == models and mentioned(Setup(), same, ()) == set(models) - {"unused"}, "with what is assumed of them"
    table, story = with_lesson({"runs": ModelEntry(ModelRef("file:/other/runs"))}, parse(text, Path("a.md")).story, talks, VIEWS)
    refs = {name: replace(entry.ref, assume=()) for name, entry in models.items() if name != "unused"}
    assert {entry.ref for entry in table.values()} == {*refs.values(), ModelRef("file:/other/runs")}
    assert story.steps[0].setup is not None and table[story.steps[0].setup.model or ""].ref == refs["mine"], (
        "not of the same name"
    )
    assert story.steps[0].setup.view["term_importance"] == {"file": str(data / "names.tsv")}


def test_what_a_lesson_has_no_place_for_is_said() -> None:
    notes = (Note("a head", "m", head="L0H0"), Note("another", "m", head="L0H1"))
    exported = for_lesson(Session(story=Story("", (Step("One"),)), notes=notes), FOLDER / "my talk.md", VIEWS)
    assert exported.notes == 2 and any("2 notes" in remark for remark in exported.remarks)
    assert exported.story.title == "my talk" and 'title = ""' not in markdown_of(exported.story)
    assert for_lesson(Session(story=Story("T", (Step("One"),))), FOLDER / "my talk.md", VIEWS).remarks == ()


def test_what_a_session_cannot_hold_is_refused_by_the_step() -> None:
    front = '+++\ntitle = "T"\n+++\n## S\n\n```circuitlab\n[view.attention]\n'
    for word in ("x = nan", "x = 1979-05-27", "x = [inf]", f"x = {'[' * 70}{']' * 70}"):
        story = parse(f"{front}{word}\n```\n", Path("a.md")).story
        with pytest.raises(BadInput, match="Step 1, ‘S’"):
            session_of_lesson(story, FOLDER, VIEWS)


def test_a_session_becomes_a_lesson_and_back_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs, file = directory(tmp_path / "runs"), tmp_path / "talks" / "talk.circuitlab"
    file.parent.mkdir()
    steps = (Step("One", "Look.", Setup(model="mine", heads=("L0H1",)), aside="smile"), Step("Two"))
    session = Session({"mine": ModelEntry(ModelRef(f"file:{runs}"))}, Setup(model="mine"), Story("Talk", steps))
    file.write_bytes(bytes_of(session, file.parent))
    lesson, again = tmp_path / "talks" / "talk.md", tmp_path / "again.circuitlab"
    assert main(["session", str(file), "--markdown", str(lesson)]) == 0
    assert "../runs" in capsys.readouterr().out and 'model = "../runs"' in lesson.read_text("utf-8")
    assert main(["lessons", "--check", str(lesson)]) == 0
    assert read(lesson).setup(0).model == f"file:{runs}", "a walk finds it wherever one stands"
    assert main(["session", str(lesson), "-o", str(again)]) == 0
    back, engine = read_session(again), Engine(ModelStore())
    assert all(entry.sha256 for entry in back.models.values())
    base = State(ModelRef("builtin:attn-only-2l"))
    walked = Resolver(engine, VIEWS, base).state(read(lesson).setup(1))
    assert walked == Resolver(engine, VIEWS, base, models=session.refs()).state(session.story.setup(1)), "as the session shows it"
    assert {entry.ref for entry in back.models.values()} == {ModelRef(f"file:{runs}")}
    assert back.now == Setup(model="runs", heads=("L0H1",), checkpoint="final") and back.story.steps[0].aside == "smile"
    for wrong in (["--markdown", "talk.txt"], ["-o", str(again)], ["-o", "a.md"]):
        assert main(["session", str(file), *wrong]) == 2
    assert main(["session", str(lesson)]) == 2 and "-o talk.circuitlab" in capsys.readouterr().err
    assert main(["session", str(file), "--markdown", str(tmp_path / "no" / "a.md")]) == 3
