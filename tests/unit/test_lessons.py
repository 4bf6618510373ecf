"""Lessons without a window: the file's format and what is wrong with it, steps as States, numbers in a text."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

import circuitlab.api as lab
from circuitlab.analysis.attention.head_scores import HeadScoresParams
from circuitlab.analysis.base import Result
from circuitlab.analysis.behaviour.samples import repeated_random
from circuitlab.cli.lessons_command import problems
from circuitlab.cli.parser import main
from circuitlab.disk.paths import config_home
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, CircuitLabError
from circuitlab.figures.contracts.panel import view_types
from circuitlab.lessons.lesson import Lesson, files, lessons, parse, read, titles
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Head, ModelRef, Subject, Target
from circuitlab.state.state import Selection, State
from circuitlab.story.resolver import Resolver
from circuitlab.story.setup import Other, Setup
from circuitlab.story.text import escaped, fill_text, links
from circuitlab.story.values import Value, formatted, read_out
from tests.models import TINY, byte_tokenizer, directory

FRONT = '+++\ntitle = "T"\nabout = "A"\nminutes = 3\n+++\n'
STEPS = (0, 64, 1000)


def lesson(body: str) -> Lesson:
    return parse(FRONT + body, Path("05-test.md"))


def step(block: str, text: str = "Words.") -> str:
    return f"## A step\n\n```circuitlab\n{block}\n```\n\n{text}\n"


def setup(block: str) -> Setup:
    made = lesson(step(block)).steps[0].setup
    assert made is not None
    return made


# -- the file ----------------------------------------------------------------------------------------------------------------


def test_a_file_is_a_title_and_steps() -> None:
    made = lesson(
        "Opening.\n\n" + step('model = "m"\nshow = ["bigram"]', "First *words*.") + "\n## Only talk\n\nMore.\n\n```\n## no\n```\n"
    )
    assert (made.name, made.title, made.about, made.minutes) == ("05-test", "T", "A", 3)
    assert [s.title for s in made.steps] == ["A step", "Only talk"]
    assert made.steps[0].text == "Opening.\n\nFirst *words*." and made.steps[0].line == 8
    assert made.steps[1].setup is None and made.steps[1].text.endswith("## no\n```"), "a fence may hold anything"
    assert made.setup(1) == made.setup(0) and made.setup(0).show == ("bigram",)


@pytest.mark.parametrize(
    "text, line, words",
    [
        ("no front", 1, "front matter is missing"),
        ("+++\ntitle = 1", 1, "does not end"),
        ('+++\ntitle = "T"\nabout = \n+++\n', 3, "not TOML"),
        ('+++\nabout = "A"\n+++\n## S\n', 1, "lacks something"),
        (FRONT.replace("3", "-1") + "## S\n", 1, "minutes cannot be read"),
        (FRONT.replace("3", '"3"') + "## S\n", 1, "minutes cannot be read"),
        (FRONT.replace("minutes", 'colour = "red"\nminutes') + "## S\n", 1, "unknown keys"),
        (FRONT + "Words.", 6, "no step"),
        (FRONT + "```circuitlab\n```\n## S\n", 6, "before the first step"),
        (FRONT + "## S\n\n```circuitlab\nmodel = \n```\n", 9, "not TOML"),
        (FRONT + "## S\n\n```circuitlab\nmodel = 'm'\n", 8, "does not end"),
        (FRONT + "## S\n\nWords.\n```circuitlab\n```\n", 9, "one block, directly after"),
        (FRONT + step('model = "m"\ncolour = "red"'), 10, "no such key"),
        (FRONT + step('model = ""'), 9, "model cannot be read"),
        (FRONT + step('checkpoint = "last"'), 9, "checkpoint cannot be read"),
        (FRONT + step('text = "a"\nrandom = { block = 2 }'), 10, "two prompts"),
        (FRONT + step("tokens = [-1]"), 9, "tokens cannot be read"),
        (FRONT + step("random = { block = 0 }"), 9, "random cannot be read"),
        (FRONT + step("random = { blocks = 1 }"), 9, "random cannot be read"),
        (FRONT + step('heads = ["H1"]'), 9, "head could not be read"),
        (FRONT + step('edge = ["L0H1"]'), 9, "edge cannot be read"),
        (FRONT + step('target = ["a", "b", "c"]'), 9, "target cannot be read"),
        (FRONT + step("destination = 1.5"), 9, "destination cannot be read"),
        (FRONT + step('source = { text = "a", occurrence = 0 }'), 9, "source cannot be read"),
        (FRONT + step('pin = "here"'), 9, "pin cannot be read"),
        (FRONT + step('pin = { show = ["heads"] }'), 9, "pin cannot be read"),
        (FRONT + step('compare = "both"'), 9, "compare cannot be read"),
        (FRONT + step("show = 1"), 9, "show cannot be read"),
        (FRONT + step("[view]\nbigram = 1"), 9, "view cannot be read"),
        (FRONT + step("[values.Loss]"), 9, "cannot be called"),
        (FRONT + step('[values.loss]\nanalysis = "a"\nread = "a b"'), 9, "read cannot be read"),
        (FRONT + step('[values.loss]\nanalysis = "a"\nread = "a"\nformat = "zz"'), 9, "format cannot be read"),
        (FRONT + step('[values.loss]\nanalysis = "a"\nread = "a"\nformat = "900000000.2f"'), 9, "format cannot be read"),
        (FRONT + step("destination = " + "9" * 5000), 9, "not TOML"),
        (FRONT + step('[values.loss]\nread = "a"'), 9, "lacks something"),
        (FRONT + step('[values.loss]\nanalysis = "a"\nread = "a"\nunit = "nats"'), 9, "cannot be read"),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(text: str, line: int, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse(text, Path("05-test.md"))
    assert caught.value.what.startswith(f"05-test.md, line {line}: ") and words in caught.value.what
    assert caught.value.expected


def test_ones_own_lessons_come_behind_the_shipped_ones_and_a_bad_one_does_not_hide_them() -> None:
    shipped = files()
    assert list(shipped) == sorted(shipped)
    own = config_home() / "lessons"
    own.mkdir(parents=True)
    (own / "mine.md").write_text(FRONT + "## S\n", encoding="utf-8")
    (own / "broken.md").write_bytes(b"\xff")
    result, failed = lessons()
    assert [path.name for path in files()] == [*(p.name for p in shipped), "broken.md", "mine.md"]
    assert result[-1].name == "mine" and len(result) == len(shipped) + 1
    assert len(failed) == 1 and "broken.md" in failed[0].what


# -- steps over steps --------------------------------------------------------------------------------------------------------


def test_a_menu_has_titles_without_the_steps_and_a_changed_file_is_read_again() -> None:
    own = config_home() / "lessons"
    own.mkdir(parents=True)
    mine = own / "mine.md"
    mine.write_text(FRONT + "## S\n\n```circuitlab\nmodel =\n```\n", encoding="utf-8")
    (own / "none.md").write_text("no front matter", encoding="utf-8")
    assert titles()[-1] == ("mine", "T") and len(titles()) == len(files()) - 1, "what has no title cannot stand in a menu"
    assert [name for name, _ in titles()[:-1]] == [one.name for one in lessons()[0]]
    with pytest.raises(BadInput):
        read(mine)
    mine.write_text(FRONT + "## Another\n", encoding="utf-8")
    assert read(mine).steps[0].title == "Another" and read(mine) is read(mine), "parsed once"
    mine.write_text(FRONT + "## A third one\n", encoding="utf-8")
    assert read(mine).steps[0].title == "A third one"


def test_what_a_step_does_not_say_stays() -> None:
    first = setup(
        'model = "m"\ncheckpoint = 5\ntext = "a b"\nheads = "L0H1"\ncut = ["L0H0"]\n'
        'destination = 3\ntoken = "a"\nshow = ["bigram"]'
    )
    assert setup("source = 1").over(first) == replace(first, source=1)
    prompt = setup('text = "c"').over(first)
    assert (prompt.destination, prompt.heads, prompt.checkpoint, prompt.token) == (None, ("L0H1",), 5, "a")
    model = setup('model = "n"').over(first)
    assert (model.heads, model.cut, model.checkpoint, model.prompt, model.destination) == (None, None, "final", "a b", 3)
    assert setup("checkpoint = 9").over(first).heads == ("L0H1",)
    assert setup('arrange = "Explore"').over(first).show == ()
    views = setup("[view.a]\nx = 1\ny = 2").over(first)
    assert setup("[view.a]\ny = 3\n[view.b]\nz = 4").over(views).view == {"a": {"x": 1, "y": 3}, "b": {"z": 4}}


def test_a_pin_follows_until_it_is_taken_away() -> None:
    pinned = setup("pin = { checkpoint = 64 }").over(setup('model = "m"'))
    assert (pinned.pin, pinned.compare) == ((Other(Setup(checkpoint=64)),), "difference")
    assert setup('text = "x"').over(pinned).pin == pinned.pin
    assert setup('compare = "now"').over(pinned).compare == "now"
    gone = setup('pin = "none"').over(pinned)
    assert (gone.pin, gone.compare) == ((), "now")
    before = setup('pin = "before"\ncut = ["L0H1"]').over(pinned)
    assert before.pin == (replace(pinned, pin=None),) and before.cut == ("L0H1",)


# -- States ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = directory(tmp_path / "m", n_ctx=128)
    final = load_file(made / "model.safetensors")
    (made / "checkpoints").mkdir()
    for i, step in enumerate(STEPS):
        save_file({n: (t * i / 2).half() for n, t in final.items()}, made / "checkpoints" / f"step-{step:06d}.safetensors")
    return made


@pytest.fixture
def resolver(path: Path) -> Resolver:
    engine = Engine(ModelStore(most=8))
    ref = ModelRef(f"file:{path}")
    engine.store.open(ref)
    views = view_types()
    return Resolver(engine, views, State(ref, "typed"))


def state(resolver: Resolver, block: str) -> State:
    return resolver.state(setup(block).over(Setup()))


def test_a_prompt_its_places_and_its_tokens(resolver: Resolver, path: Path) -> None:
    made = state(
        resolver, 'text = "ab cab"\ndestination = "ab"\nsource = { text = "a", occurrence = 1 }\ntoken = "c"\ntarget = ["a", "b"]'
    )
    ids = byte_tokenizer().encode("ab cab", True)
    assert (made.tokens, made.text, made.bos, made.model) == (ids, "ab cab", True, ModelRef(f"file:{path}"))
    chosen = made.selection
    assert (chosen.destination, chosen.source, chosen.locked) == (6, 1, True)
    assert chosen.token == ids[4] and chosen.target == Target((ids[1], ids[2]))
    assert state(resolver, "source = -1").text == "typed"
    assert state(resolver, "tokens = [0, 5, 9]").tokens == (0, 5, 9)


def test_random_tokens_are_those_of_the_measurements(resolver: Resolver) -> None:
    made = state(resolver, "random = { block = 9, repeats = 3, seed = 4 }")
    assert made.tokens == tuple(repeated_random(replace(TINY, n_ctx=128), 0, 9, 3, 1, 4)[0].tolist())
    assert made.tokens[1:10] == made.tokens[10:19] and made.text == ""


def test_the_checkpoint_nearest_to_a_step(resolver: Resolver, path: Path) -> None:
    at = lambda step: state(resolver, f"checkpoint = {step}").model
    assert [at(s).checkpoint for s in (0, 31, 33, 531, 533, 9999)] == [0, 0, 1, 1, 2, 2]
    assert state(resolver, 'checkpoint = "final"').model == ModelRef(f"file:{path}")


@pytest.mark.parametrize("score", ["prefix_matching", "previous_token"])
def test_a_live_choice_is_the_head_that_scores_best(resolver: Resolver, path: Path, score: str) -> None:
    asked = Request.named("head_scores", HeadScoresParams(), Subject(ModelRef(f"file:{path}")))
    scores = resolver.engine.answer(asked).result.of(score)  # type: ignore[attr-defined]
    layer, head = divmod(int(scores.argmax()), scores.shape[1])
    made = state(resolver, f'heads = "best {score}"\ncut = ["best {score}", "L0H2"]\nedge = ["L0H2", "best {score}"]')
    assert made.selection.heads == (Head(layer, head),)
    assert made.selection.edge == (Head(0, 2), Head(layer, head))
    assert [edit for edit, on in made.edits if on] == [
        Intervention("zero", Site("z", layer, (head,))),
        Intervention("zero", Site("z", 0, (2,))),
    ]


def test_a_live_choice_may_be_of_the_final_weights_at_any_checkpoint(resolver: Resolver, path: Path) -> None:
    final = state(resolver, 'heads = "best prefix_matching"').selection.heads
    body = """checkpoint = 0
heads = "best final prefix_matching"
[values.later]
read = "best final prefix_matching"
[values.cell]
analysis = "head_scores"
read = "prefix_matching[best final prefix_matching]"
"""
    made = lesson(step(body))
    ready = resolver.ready(made.setup(0), made.steps[0])
    early, later = ready.state, ready.requests["later"][1]
    assert early.model.checkpoint == 0 and early.selection.heads == final and later.subject.model.checkpoint is None
    assert read_out(ready.requests["later"][0], resolver.engine.answer(later).result, early) == final[0]
    cell, of_cell = ready.requests["cell"]
    assert cell.read == f"prefix_matching[{final[0]}]" and of_cell.subject.model == early.model
    asked = Request.named("head_scores", HeadScoresParams(), Subject(early.model))
    there = resolver.engine.answer(asked).result.best("prefix_matching")  # type: ignore[attr-defined]
    cut = state(resolver, 'checkpoint = 0\ncut = ["best prefix_matching"]')
    assert [edit.site.heads for edit, _ in cut.edits] == [(there.head,)], "without the word, the best at this checkpoint"


def test_a_head_does_not_compose_with_itself(resolver: Resolver) -> None:
    best = state(resolver, 'heads = "best prefix_matching"').selection.heads[0]
    for other in (str(best), "best prefix_matching"):
        with pytest.raises(BadInput, match="itself"):
            state(resolver, f'edge = ["{best}", "{other}"]')


def test_references(resolver: Resolver, path: Path) -> None:
    cut = state(resolver, 'text = "ab"\ncut = ["L0H1"]')
    assert cut.reference is not None and cut.reference.subject == replace(cut.subject, edits=()) and cut.compare == "now"
    assert state(resolver, 'cut = ["L0H1"]\npin = "none"').pins == ()
    series = state(resolver, 'text = "ab"\nheads = ["L1H3"]\npin = { checkpoint = 60 }')
    assert series.reference is not None and series.compare == "difference"
    assert series.reference.subject == replace(series.subject, model=ModelRef(f"file:{path}", 1))
    assert series.reference.label == "step 64"
    text = state(resolver, 'text = "ab"\ndestination = "b"\npin = { text = "xyzzy" }')
    assert text.reference is not None and text.reference.subject.tokens == byte_tokenizer().encode("xyzzy", True)
    uncut = state(resolver, 'cut = ["L0H1"]\npin = { cut = [] }')
    assert uncut.reference is not None and uncut.reference.subject.edits == () and uncut.subject.edits
    before = resolver.state(setup('pin = "before"\ncut = ["L0H1"]').over(setup('text = "ab"')))
    assert before.reference is not None and before.reference.subject == replace(before.subject, edits=())


def test_controls_are_checked_as_on_the_command_line(resolver: Resolver) -> None:
    made = state(resolver, '[view.attention]\nshow = "scores"')
    assert made.views["attention"].show == "scores"
    for block in ('[view.attention]\nshow = "red"', "[view.attention]\ncolour = 1", "[view.nowhere]\nx = 1"):
        with pytest.raises(CircuitLabError):
            state(resolver, block)


@pytest.mark.parametrize(
    "block, words",
    [
        ('text = "ab"\ndestination = "z"', "no such place"),
        ('text = "ab"\ndestination = 9', "no such place"),
        ('text = "ab"\nsource = { text = "a", occurrence = 2 }', "no such place"),
        ('token = "ab"', "not one token"),
        ('heads = ["L2H0"]', "no head L2H0"),
        ('heads = "best beauty"', "no such score"),
        ("tokens = [260]", "does not fit"),
        (f'text = "{"x" * 200}"', "does not fit"),
    ],
)
def test_what_the_model_does_not_have(resolver: Resolver, block: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        state(resolver, block)


def test_a_model_without_a_series_has_no_steps(resolver: Resolver, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no checkpoints"):
        state(resolver, f'model = "{directory(tmp_path / "other")}"\ncheckpoint = 5')


# -- numbers -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, eq=False)
class Grid(Result):
    values: np.ndarray
    row: np.ndarray
    whole: float = 0.5
    large: float = 1000.0
    names: tuple[str, ...] = ("one", "two")

    def of(self, name: str) -> np.ndarray:
        return self.values[self.names.index(name)]


GRID = Grid(values=np.arange(24.0).reshape(2, 3, 4), row=np.array([np.nan, 1.0, 2.0, 6.0]))
STATE = State(ModelRef("builtin:m"), selection=Selection((Head(1, 2),), destination=3, source=1, token=0))


def value(read: str, **changes: Any) -> Value:
    return replace(Value("v", "any", {}, read, ".2f"), **changes)


@pytest.mark.parametrize(
    "read, expected",
    [
        ("whole", 0.5),
        ("row[-1]", 6.0),
        ("mean(row)", 3.0),
        ("mean(row[1:3])", 1.5),
        ("max(row[:3])", 2.0),
        ("sum(row[1:])", 9.0),
        ("min(values)", 0.0),
        ("row[destination]", 6.0),
        ("row[source]", 1.0),
        ("one[head]", 6.0),
        ("two[L0H3]", 15.0),
        ("values[two, head]", 18.0),
        ("values[0, L2H1]", 9.0),
        ("values[:, 0, token].shape[0]", 2),
        ("exp(row[1])", float(np.e)),
        ("abs(row[1])", 1.0),
        ("best(one)", Head(2, 3)),
        ("best(row)", 3.0),
        ("values.shape[1]", 3),
    ],
)
def test_what_read_reads(read: str, expected: Any) -> None:
    assert read_out(value(read), GRID, STATE) == pytest.approx(expected)


@dataclass(frozen=True, kw_only=True, eq=False)
class Trainings(Result):
    """Two trainings, of which the second has other steps, and no change in the first if `phase` is NaN."""

    loss: np.ndarray
    model: np.ndarray
    steps: np.ndarray
    tokens: np.ndarray
    checkpoint: np.ndarray
    phase: np.ndarray


def trainings(begin: float = 300.0, end: float = 900.0) -> Trainings:
    steps = np.array([0, 10, 30, 50, 90, 200, 0, 31, 60])
    return Trainings(
        loss=np.arange(9.0) + 100,
        model=np.repeat([0, 1], [6, 3]),
        steps=steps,
        tokens=10 * steps,
        checkpoint=np.array([0, -1, 1, 2, 3, -1, 0, 1, -1]),
        phase=np.array([[[begin, end], [0.0, 0.0]], [[310.0, 600.0], [0.0, 0.0]]]),
    )


@pytest.mark.parametrize(
    "read, checkpoint, expected",
    [
        ("loss[first]", None, 100),
        ("loss[first+28]", None, 102),
        ("loss[checkpoint]", 1, 102),
        ("loss[checkpoint]", None, 105),
        ("loss[checkpoint + 20]", 1, 103),
        ("loss[checkpoint-500]", 3, 100),
        ("loss[begin]", None, 102),
        ("loss[middle]", None, 103),
        ("loss[end]", None, 104),
        ("loss[begin-20]", None, 101),
        ("loss[end+1000]", None, 105),
    ],
)
def test_points_of_a_training_are_read_by_what_they_are(read: str, checkpoint: int | None, expected: float) -> None:
    shown = replace(STATE, model=ModelRef("builtin:m", checkpoint))
    assert read_out(value(read), trainings(), shown) == expected


MISSING = ("loss[begin]", "loss[end+1]", "loss[middle]", "loss[checkpoint]", "loss[begun]", "loss[begin 5]")


@pytest.mark.parametrize("read", MISSING)
def test_a_point_that_a_training_does_not_have_is_refused(read: str) -> None:
    shown = replace(STATE, model=ModelRef("builtin:m", 9))
    with pytest.raises(BadInput):
        read_out(value(read), trainings(np.nan, np.nan), shown)
    with pytest.raises(BadInput):
        read_out(value(read.replace("loss", "row")), GRID, shown)


@pytest.mark.parametrize(
    "read",
    ["row", "row[0]", "nothing", "of", "row[9]", "row[there]", "row[--1]", "names", "values[two]", "exp(large)", "best(whole)"],
)
def test_what_is_not_one_number_is_refused(read: str) -> None:
    with pytest.raises(BadInput):
        read_out(value(read), GRID, STATE)


def test_numbers_in_words() -> None:
    assert [formatted(-1.25, ".1f", str), formatted(0.5, ".0%", str), formatted(7.0, "d", str)] == ["−1.2", "50%", "7"]
    assert formatted(3, "token", lambda t: f"t{t}") == "‘t3’" and formatted(Head(1, 2), "head", str) == "L1H2"
    with pytest.raises(BadInput):
        formatted(1.0, "head", str)


def test_questions_are_about_the_step_the_pin_or_another_subject(resolver: Resolver, path: Path) -> None:
    body = """text = "ab"
heads = ["L1H3"]
destination = 1
pin = { checkpoint = 0 }
[values.here]
analysis = "token_loss"
read = "mean"
[values.pinned]
analysis = "token_loss"
read = "mean"
on = "pin"
[values.there]
analysis = "attention"
set = { heads = "$heads" }
text = "xyz"
read = "values[0, destination, best previous_token]"
[values.wrong]
analysis = "token_loss"
read = "mean"
checkpoint = 5
set = { colour = 1 }
"""
    made = lesson(step(body))
    ready = resolver.ready(made.setup(0), made.steps[0])
    subject = ready.state.subject
    assert ready.requests["here"][1].subject == subject
    assert ready.requests["pinned"][1].subject == replace(subject, model=ModelRef(f"file:{path}", 0))
    asked = ready.requests["there"]
    assert asked[1].subject == replace(subject, tokens=byte_tokenizer().encode("xyz", True)) and asked[1].params.heads == (
        Head(1, 3),
    )
    assert "best" not in asked[0].read
    assert list(ready.failed) == ["wrong"] and "parameter" in str(ready.failed["wrong"])
    assert (ready.words["head"], ready.words["destination"], ready.words["pin"]) == ("L1H3", "‘a’", "step 0")


def test_text_with_its_numbers() -> None:
    made = fill_text("{loss} by {head}, `x = {loss}`, {other}", {"head": "L1*"}, {"loss": "−1.5"})
    assert made == r"[−1\.5](value:loss) by L1\*, `x = −1.5`, {other}".replace(r"−1\.5", escaped("−1.5"))
    assert links("[a](panel:attention) [b](https://x.y/z) c") == (("panel", "attention"), ("https", "//x.y/z"))


# -- checks ------------------------------------------------------------------------------------------------------------------

WHOLE = step(
    'model = "attn-only-2l"\ntext = "a"\nshow = ["attention", "prompt"]\n[view.attention]\nshow = "scores"\n'
    '[values.loss]\nanalysis = "token_loss"\nread = "mean"',
    "{loss} of {model}, [here](panel:attention).",
)


@pytest.mark.parametrize(
    "old, new, words",
    [
        ('"attention", ', '"attentoin", ', "no panel 'attentoin'"),
        ("view.attention", "view.attentoin", "no panel 'attentoin'"),
        ('"scores"', '"score"', "view.attention"),
        ('"token_loss"', '"token_los"', "no such analysis"),
        ('"mean"', '"meen"', "no 'meen' to read"),
        ('read = "mean"', 'read = "mean"\nset = { heads = 1 }', "no such parameter"),
        ('read = "mean"', 'read = "mean"\nminus = "none"', "no other value"),
        ('read = "mean"', 'read = "mean"\non = "pin"', "nothing is pinned"),
        ("{loss} of", "{los} of", "{los} is no value"),
        ("(panel:", "(panle:", "a link to panle"),
        ('text = "a"', 'text = "a"\nheads = "best beauty"', "no score 'beauty'"),
        ('text = "a"', 'text = "a"\narrange = "Nowhere"', "no arrangement 'Nowhere'"),
        ('model = "attn-only-2l"\n', "", "no model"),
    ],
)
def test_every_name_in_a_lesson_is_known(tmp_path: Path, old: str, new: str, words: str) -> None:
    file = tmp_path / "05-test.md"
    file.write_text(FRONT + WHOLE, encoding="utf-8")
    assert problems(file) == ()
    file.write_text(FRONT + WHOLE.replace(old, new, 1), encoding="utf-8")
    assert any(words in said for said in problems(file)), problems(file)


@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
def test_the_shipped_lessons_are_whole(path: Path) -> None:
    assert problems(path) == ()


def test_the_shipped_lessons_read_a_training_at_moments_and_not_at_rows() -> None:
    """The rows of a series are those of one training: another training of the model has other points."""
    of_points = re.compile(r"\b(?:loss|scores|repetitions|heads|steps|tokens|each\w*)\[(\d+)")
    rows = {
        (lesson.name, step.title, value.read)
        for lesson in lessons()[0]
        for step in lesson.steps
        for value in step.values
        if value.analysis == "training_series" and (at := of_points.search(value.read)) is not None and at[1] != "0"
    }
    assert rows == set()


def test_the_command_lists_and_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lessons"]) == 0
    said = capsys.readouterr().out
    assert all(path.stem in said for path in files())
    file = tmp_path / "05-test.md"
    file.write_text(FRONT + WHOLE, encoding="utf-8")
    assert main(["lessons", "--check", str(file)]) == 0
    assert "no problems" in capsys.readouterr().out
    file.write_text(FRONT + WHOLE.replace("{loss}", "{los}"), encoding="utf-8")
    assert main(["lessons", str(file)]) == 3
    assert "{los}" in capsys.readouterr().out
    assert main(["lessons", str(tmp_path / "none.md")]) == 3


def test_one_layer_gains_nothing_from_random_tokens_that_repeat() -> None:
    """What two lessons say, of the shipped models: the second block is cheaper by its place, not because it came before."""
    seconds = {}
    for name in ("attn-only-1l", "attn-only-2l"):
        model = lab.open(name)
        twice: Any = model.compute("in_context").result
        once: Any = model.compute("in_context", set={"block": 100, "repeats": 1}).result
        seconds[name] = once.loss[52:].mean() - twice.repetitions[:, 1].mean()
    assert seconds["attn-only-2l"] > 8 and abs(seconds["attn-only-1l"]) < seconds["attn-only-2l"] / 50, seconds
