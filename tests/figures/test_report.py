"""A report of a session as a page: read by parsers that were not written here, whatever tokens, texts and files are called."""

from __future__ import annotations

import base64
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as Inner

import circuitlab.api as lab
from circuitlab.analysis.base import NullContext
from circuitlab.cli.parser import main
from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.engine.stored_answer import read_stored
from circuitlab.errors import BadInput, BadModel, Cancelled, UsageError
from circuitlab.figures.contracts.panel import find_panel, panels
from circuitlab.figures.marks import Axis, Figure, Heatmap, Rows
from circuitlab.model.saving import random_tensors, save_directory
from circuitlab.model.subject import ModelRef
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.report.answer_data import NONE, AnswerData, ShownTable, shown_table
from circuitlab.report.content import Report, ReportFigure, Section
from circuitlab.report.inline_svg import inline
from circuitlab.report.markup import prose
from circuitlab.report.numbers import Number
from circuitlab.report.page import caption_html, page_of
from circuitlab.report.pages import pages_parts
from circuitlab.report.plates import PartCaption, PlateCaption
from circuitlab.report.prepare import prepare
from circuitlab.report.saved_session import opened_session
from circuitlab.report.step_figures import StepFigure
from circuitlab.session_files.container import container_bytes
from circuitlab.session_files.results import answer_member, file_bytes
from circuitlab.session_files.session import ModelEntry, Note, Session
from circuitlab.session_files.session_text import bytes_of
from circuitlab.state.state import State
from circuitlab.story.arrangements import FRONTS
from circuitlab.story.setup import Setup
from circuitlab.story.story import Step, Story
from circuitlab.story.values import Value
from tests.models import TINY, byte_tokenizer, directory
from tests.unit.test_session_results import members, talk

HOSTILE = (
    "</svg><script>alert(1)</script>",
    "&lt;",
    "]]>",
    "\x01\x1b[2J",
    "\u202e\u2066",
    "--><img src=x onerror=alert(2)>",
    '"><a href="javascript:alert(3)">',
    "</title></style>",
)
SHOWN = ("attention", "predictions", "logit_lens")
VOID = {"meta", "br", "hr", "img", "link", "input", "base", "col"}
LOADS = ("src", "srcset", "background", "poster", "data", "action", "formaction")


class Parsed(HTMLParser):
    """A page's elements with their attributes, the text of each heading, and whether every element is closed."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def attributes(self, name: str) -> list[str]:
        return [value or "" for _, attributes in self.elements for key, value in attributes.items() if key == name]


def checked(page: str) -> Parsed:
    """The page, once it is seen to be whole, to load nothing and to run nothing."""
    parsed = Parsed(page)
    assert not parsed.open and not parsed.wrong
    tags = {tag for tag, _ in parsed.elements}
    assert not tags & {
        "script",
        "iframe",
        "object",
        "embed",
        "link",
        "img",
        "base",
        "form",
        "text",
        "foreignobject",
        "audio",
        "video",
    }
    for _, attributes in parsed.elements:
        assert not [name for name in attributes if name.startswith("on")]
        for name in LOADS:
            assert name not in attributes
        for name in ("href", "xlink:href"):
            where = attributes.get(name) or "#"
            assert re.match(
                r"#|data:(application/json|application/octet-stream|text/csv|image/png);base64,|https?://|mailto:", where
            )
        assert "url(" not in (attributes.get("style") or "")
    ids = parsed.attributes("id")
    assert len(ids) == len(set(ids))
    local = [where[1:] for where in (*parsed.attributes("href"), *parsed.attributes("xlink:href")) if where.startswith("#")]
    local += [
        one for _, attributes in parsed.elements for v in attributes.values() for one in re.findall(r"^url\(#(.*)\)$", v or "")
    ]
    local += [*parsed.attributes("aria-labelledby"), *parsed.attributes("aria-describedby")]
    assert set(local) <= set(ids)
    for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        assert ET.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
    policy = next(attributes["content"] for tag, attributes in parsed.elements if attributes.get("http-equiv"))
    assert (policy or "").startswith("default-src 'none'")
    assert "@import" not in page and "url(http" not in page
    return parsed


def content_of(path: Path) -> Report:
    return opened_session(path, Engine(ModelStore()), FRONTS).content()


def hostile_model(folder: Path) -> Path:
    """A model whose tokenizer has tokens that are markup."""
    inner = Inner.from_str(byte_tokenizer().file_text())
    inner.add_tokens([AddedToken(token, normalized=False) for token in HOSTILE])
    config = replace(TINY, d_vocab=257 + len(HOSTILE))
    save_directory(folder, config, random_tensors(config, 0, 0.35), Tokenizer(inner))
    return folder


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session in which everything is called by markup, on a model whose tokens are."""
    folder = tmp_path_factory.mktemp("hostile")
    model = hostile_model(folder / "m<script>")
    name, text = "<img src=x>&amp;", "".join(HOSTILE)
    value = Value("most", "token_loss", {}, "mean", ".2f")
    steps = tuple(
        Step(
            f"{i} {token}",
            f"{token} and {{token}}, {{most}}, ![a](http://x.org/a.png) [b](javascript:alert(4)) [c](https://x.org/?a=1&b=%22)",
            Setup(model=name, prompt=text, token=token, show=(SHOWN[i],)),
            (value,),
            aside="a secret",
        )
        for i, token in enumerate(HOSTILE[: len(SHOWN)])
    )
    notes = tuple(Note(token, name, token=token) for token in HOSTILE)
    models = {name: ModelEntry(ModelRef(f"file:{model}"), ModelStore().sha256(ModelRef(f"file:{model}")))}
    path = folder / "a&b.circuitlab"
    path.write_bytes(bytes_of(Session(models, Setup(model=name, prompt=text), Story(HOSTILE[0], steps), notes), folder))
    return path


def test_tokens_that_are_markup_stay_text(hostile: Path) -> None:
    page = page_of(content_of(hostile))
    parsed = checked(page)
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", page)
    assert all(words in parsed.text for words in (*HOSTILE[:3], *HOSTILE[5:], "\\u202e", "\\u001b[2J"))
    assert len(re.findall("<svg", page)) == len(SHOWN)
    links = [where for where in parsed.attributes("href") if where.startswith("http")]
    assert links == ["https://x.org/?a=1&b=%22"] * len(SHOWN)
    assert "a secret" not in page
    again = content_of(hostile)
    assert page_of(again) == page, "the same session, the same bytes"
    assert "a secret" in page_of(again, asides=True)


def test_nothing_of_the_machine_is_in_it(tmp_path: Path) -> None:
    path = talk(tmp_path / "somebody")
    page = page_of(content_of(path))
    inside = b"".join(base64.b64decode(data) for data in re.findall(r"base64,([^\"]*)", page)).decode()
    assert "somebody" not in page and "nowhere" not in page
    assert "somebody" not in inside and '"analysis"' in inside


def test_a_step_has_its_figures_numbers_and_reasons(tmp_path: Path) -> None:
    session = opened_session(talk(tmp_path), Engine(ModelStore()), FRONTS)
    content = session.content()
    panels = [[one.drawn.panel.name for one in section.figures] for section in content.sections]
    assert panels == [["attention"], ["composition", "predictions"], ["attention"], []]
    assert "lost" in str(content.sections[3].error) and content.sections[3].lacking
    page = page_of(content)
    parsed = checked(page)
    files = [
        json.loads(base64.b64decode(where.partition(",")[2])) for where in parsed.attributes("href") if where.startswith("data:")
    ]
    answer = session.steps[0].compute("attention", {"heads": "L1H1"})
    pattern = next(one for one in files if one.get("analysis") == "attention")["result"]["values"]
    np.testing.assert_array_equal(np.array(pattern, np.float32), answer.result.arrays()["values"])
    sha256 = ModelStore().sha256(ModelRef(f"file:{tmp_path / 'mine'}"))
    assert sha256 in parsed.text and "step 3" in parsed.text and "centred" in parsed.text


def test_a_panel_and_a_training_step_that_there_are_not_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = talk(tmp_path), tmp_path / "talk.html"
    table = json.loads(path.read_text())
    steps = table["story"]["steps"]
    steps[2]["set"] |= {"show": ["attention", "nosuchpanel", "prompt"], "checkpoint": 123456789}
    path.write_text(json.dumps(table))
    assert main(["report", str(path), "-o", str(out)]) == 3
    said = capsys.readouterr()
    assert "step 3, no such panel: nosuchpanel" in said.out and "prompt" not in said.out
    page = checked(out.read_text(encoding="utf-8")).text
    assert "No such panel: nosuchpanel." in page and "no step 123,456,789: step 3 is shown" in page
    session = opened_session(path, Engine(ModelStore()), FRONTS)
    with pytest.raises(BadInput, match="nosuchpanel"):
        session.steps[2].sheet()
    assert "no step 123,456,789: step 3 is shown" in session.steps[2].sheet(panels=("attention",)).cells[0].figure.caption
    ready = prepare(session.session, session.engine, FRONTS, lost={"lost": BadModel("The model lost was not found.")})
    assert ready.steps[2].lacking == ("no such panel: nosuchpanel",) and ready.unready == (2, 3)
    table["story"]["steps"] = steps[:3]
    steps[2]["set"]["show"] = ["attention"]
    path.write_text(json.dumps(table))
    session = opened_session(path, Engine(ModelStore()), FRONTS)
    ready = prepare(session.session, session.engine, FRONTS)
    assert ready.is_ready and "view 3: mine has no step 123,456,789: step 3 is shown" in ready.line
    steps[2]["set"]["checkpoint"] = 3
    path.write_text(json.dumps(table))
    session = opened_session(path, Engine(ModelStore()), FRONTS)
    assert "shown" not in prepare(session.session, session.engine, FRONTS).line
    table["story"]["steps"] = [{"title": "Of another", "set": {"model": "lost", "text": "ab"}}]
    path.write_text(json.dumps(table))
    assert main(["report", str(path), "-o", str(out)]) == 3
    assert "Step 1, Of another: The model lost" in capsys.readouterr().err


def test_a_step_of_no_panel_that_there_is_is_empty_and_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same status in a report, a sheet, a film; other panels do not take its place."""
    path, out = talk(tmp_path), tmp_path / "talk.html"
    table = json.loads(path.read_text())
    steps = table["story"]["steps"] = table["story"]["steps"][:3]
    steps[2]["set"] |= {"show": ["attentoin"], "stage": ["attentoin"]}
    path.write_text(json.dumps(table))
    assert main(["report", str(path), "-o", str(out)]) == 3
    said = capsys.readouterr()
    assert "Step 3" in said.err and "No such panel: attentoin." in said.err and f"{out}: 2 of 3 steps" in said.out
    assert [bool(section.figures) for section in content_of(path).sections] == [True, True, False]
    for command in (["sheet"], ["film", "--over", "checkpoint=0:final"]):
        suffix = ".webp" if command[0] == "film" else ".pdf"
        assert main([command[0], f"{path}#3", *command[1:], "-o", str(tmp_path / f"one{suffix}")]) == 3
        assert "No such panel: attentoin." in capsys.readouterr().err
    assert main(["session", str(path)]) == 0
    assert "no such panel: attentoin" in capsys.readouterr().out
    steps[2]["set"] |= {"show": ["attention", "attentoin"]}
    path.write_text(json.dumps(table))
    assert main(["report", str(path), "-o", str(out)]) == 3 == main(["sheet", f"{path}#3", "-o", str(tmp_path / "one.pdf")])
    assert f"{out}: 3 steps" in capsys.readouterr().out


def test_settings_that_cannot_be_read_are_said_and_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The panel is not drawn with its own settings as if these had been asked for."""
    path, out = talk(tmp_path), tmp_path / "talk.html"
    table = json.loads(path.read_text())
    steps = table["story"]["steps"] = table["story"]["steps"][:1]
    steps[0]["set"] |= {"show": ["logit_lens"], "stage": ["logit_lens"], "view": {"logit_lens": {"colour": "mauve"}}}
    path.write_text(json.dumps(table))
    assert main(["report", str(path), "-o", str(out)]) == 3
    said = capsys.readouterr().out
    assert f"{out}: 1 step" in said and "step 1, not as it is set: logit_lens" in said and "mauve" in said
    assert "mauve" in out.read_text("utf-8")
    for command in (["sheet", f"{path}#1"], ["figure", "logit_lens", "--at", f"{path}#1"]):
        assert main([*command, "-o", str(tmp_path / "one.pdf")]) == 3
        assert "mauve" in capsys.readouterr().err and not (tmp_path / "one.pdf").exists()
    assert main(["figure", "attention", "--at", f"{path}#1", "-o", str(tmp_path / "one.pdf")]) == 0, "which has its settings"
    capsys.readouterr()
    assert main(["session", str(path)]) == 0
    assert "settings of logit_lens cannot be read" in capsys.readouterr().out


def test_a_session_without_steps_is_reported_where_it_stands(tmp_path: Path) -> None:
    path = talk(tmp_path)
    table = json.loads(path.read_text())
    del table["story"]["steps"]
    path.write_text(json.dumps(table))
    content = content_of(path)
    assert [[one.drawn.panel.name for one in section.figures] for section in content.sections] == [
        ["attention", "predictions", "heads"]
    ]
    checked(page_of(content))


def test_a_report_without_any_model_is_refused(tmp_path: Path) -> None:
    path = talk(tmp_path)
    (tmp_path / "mine").rename(tmp_path / "gone")
    for file in (tmp_path / "gone").rglob("*.safetensors"):
        file.write_bytes(b"")
    with pytest.raises(BadModel) as caught:
        lab.session(path, Engine(ModelStore())).report(tmp_path / "x.html")
    assert caught.value.remedy and not (tmp_path / "x.html").exists()


def test_results_inside_stand_in_for_the_model(tmp_path: Path) -> None:
    path = talk(tmp_path / "here")
    live = opened_session(path, Engine(ModelStore()), FRONTS)
    before, file = live.content(), live.with_results(FRONTS)
    elsewhere = tmp_path / "elsewhere" / "talk.circuitlab"
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(file_bytes(file.session, elsewhere.parent, file.results))
    (tmp_path / "here").rename(tmp_path / "gone")
    (tmp_path / "gone" / "mine" / "model.safetensors").unlink()
    after = opened_session(elsewhere, Engine(ModelStore()), FRONTS).content()
    assert len(after.origins) == 1 and "stored" in after.origins[0] and "computed for" not in after.origins[0]
    numbers = lambda content: [
        found["result"]
        for section in content.sections
        for one in section.figures
        for data in one.data
        if "result" in (found := json.loads(data.file))
    ]
    assert numbers(after) == numbers(before) and len(numbers(before)) == 6  # what weights alone give is there once
    page = page_of(after)
    assert "stored with the session" in checked(page).text and page.count("<svg") == page_of(before).count("<svg")


def test_a_number_that_is_none_is_marked_in_the_sentence_and_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = talk(tmp_path), tmp_path / "talk.html"
    table = json.loads(path.read_text())
    table["story"]["steps"][1]["text"] = "It loses {loss} nats."
    table["story"]["steps"][1]["values"]["loss"]["read"] = "loss[99, 99]"
    path.write_text(json.dumps(table))
    assert main(["report", str(path), "-o", str(out)]) == 3, "step 4 could not be set up"
    said = capsys.readouterr().out
    assert "not in it: step 2, the number loss: " in said
    parsed = checked(out.read_text(encoding="utf-8"))
    assert "It loses [loss: not computed] nats." in parsed.text and "The number loss is not computed: " in parsed.text


def test_a_damaged_answer_of_a_reference_is_told(tmp_path: Path) -> None:
    path = talk(tmp_path / "here")
    table = json.loads(path.read_text())
    table["story"]["steps"][1]["set"]["compare"] = "now"
    path.write_text(json.dumps(table))
    file = opened_session(path, Engine(ModelStore()), FRONTS).with_results(FRONTS)
    path.write_bytes(file_bytes(file.session, path.parent, file.results))
    (tmp_path / "here" / "mine").rename(tmp_path / "gone")
    session = opened_session(path, Engine(ModelStore()), FRONTS)
    assert not session.content().sections[1].lacking
    assert file.results is not None
    keys = [key for key in file.results.places[2].answers if file.results.entries[key].analysis == "predictions"]
    inside = members(path)
    edits = {n: read_stored(inside[n], lambda _: ModelRef("file:m")).request.subject.edits for n in map(answer_member, keys)}
    (hurt,) = [name for name, cut in edits.items() if not cut]
    path.write_bytes(container_bytes(inside | {hurt: b"nothing"}))
    after = opened_session(path, Engine(ModelStore()), FRONTS).content()
    (line,) = after.sections[1].lacking
    assert "before not computed" in line and "predictions is damaged" in line
    assert "before not computed" in checked(page_of(after)).text


def test_a_figure_of_a_difference_has_both_sides_and_the_difference_of_every_row(tmp_path: Path) -> None:
    """Against the whole vocabulary's softmax of the two runs, computed here."""
    path = talk(tmp_path)
    table = json.loads(path.read_text())
    table["story"]["steps"][1]["set"]["compare"] = "difference"
    path.write_text(json.dumps(table))
    one = next(f for f in content_of(path).sections[1].figures if f.drawn.panel.name == "predictions")
    assert one.drawn.figure is not None
    (rows,) = (mark for mark in one.drawn.figure.marks() if isinstance(mark, Rows))
    data = next(data for data in one.data if data.name == "difference-predictions")
    assert data.table.rows == len(rows.ids) > 20 and not any(NONE in cells for cells in data.table.cells)
    assert data.file is not None and "before" in data.title
    columns = json.loads(data.file)["columns"]
    assert sorted(columns["id"]) == sorted(rows.ids[:, 0].tolist())
    logits = [one.drawn.answers[side]["predictions"].result.all_logits.astype(np.float64) for side in ("now", "ref")]
    now, ref = (np.exp(side - np.logaddexp.reduce(side)) for side in logits)
    ids = np.array(columns["id"])
    np.testing.assert_allclose(columns["probability"], now[ids], rtol=1e-5)
    np.testing.assert_allclose(columns["probability, reference"], ref[ids], rtol=1e-5)
    np.testing.assert_allclose(columns["Δ probability"], now[ids] - ref[ids], rtol=1e-4, atol=1e-9)
    np.testing.assert_allclose(next(v for name, v in columns.items() if name.startswith("log_prob")), np.log(now[ids]), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("model", ("attn-only-2l", "gpt-mini"))
def test_every_panel_in_a_report(tmp_path: Path, model: str) -> None:
    ref = ModelRef(f"builtin:{model}")
    text = "Captain Barnaby met the keeper. Captain Barnaby met the"
    setups = {panel.title: Setup(model="m", prompt=text, heads=("L1H1",), show=(name,)) for name, panel in panels().items()}
    story = Story("All", tuple(Step(title, setup=setup) for title, setup in setups.items()))
    path = tmp_path / "all.circuitlab"
    path.write_bytes(bytes_of(Session({"m": ModelEntry(ref)}, Setup(model="m"), story), tmp_path))
    content = content_of(path)
    checked(page_of(content))
    assert sum(bool(section.figures and section.figures[0].data) for section in content.sections) >= len(setups) - 3
    assert not [section.title for section in content.sections if section.error is not None]
    assert b"".join(pages_parts(content)).startswith(b"%PDF")


def test_an_interrupt_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, out = talk(tmp_path / "t"), tmp_path / "talk.html"
    out.write_text("old")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("circuitlab.report.plates.Plate.svg", interrupted)
    assert main(["report", str(path), "-o", str(out)]) == 130
    assert out.read_text() == "old" and sorted(one.name for one in tmp_path.iterdir()) == ["t", "talk.html"]


class _Stops(NullContext):
    def __init__(self, after: int) -> None:
        self.after = after

    def tick(self, done: int, total: int, text: str = "") -> None:
        self.after -= 1
        if self.after < 0:
            raise Cancelled


@pytest.mark.parametrize("after", (0, 2, 9))
def test_a_report_that_is_cancelled_leaves_the_old_file(tmp_path: Path, after: int) -> None:
    out = tmp_path / "talk.html"
    out.write_text("old")
    with pytest.raises(Cancelled):
        lab.session(talk(tmp_path / "t")).report(out, ctx=_Stops(after))
    assert out.read_text() == "old" and [one.name for one in tmp_path.iterdir() if one.name != "t"] == ["talk.html"]


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = talk(tmp_path), tmp_path / "talk.html"
    assert main(["report", str(path), "-o", str(out)]) == 3, "of its steps one could not be set up"
    said = capsys.readouterr()
    assert "4 steps" in said.out and "Step 4, Of another" in said.err and "lost" in said.err
    checked(out.read_text(encoding="utf-8"))
    assert main(["report", str(path), "-o", str(tmp_path / "talk.doc")]) == 2
    assert main(["report", str(tmp_path / "nobody.circuitlab"), "-o", str(out)]) == 3
    assert "path" in capsys.readouterr().err
    with pytest.raises(UsageError):
        lab.session(path).report(tmp_path / "talk.txt")
    assert not list(tmp_path.glob("talk.[dt]*"))


FOREIGN = """<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 9 9">
<desc>what it shows</desc><script>alert(1)</script><foreignObject><b>x</b></foreignObject>
<g id="a" onload="alert(2)" style="background:url(https://x.org/a.png)"><use href="#a"/>
<use xlink:href="https://x.org/a.svg#a"/>
<image href="data:image/png;base64,AA=="/><image href="data:image/svg+xml,x"/><image xlink:href="javascript:alert(3)"/></g>
</svg>"""


def test_a_figure_refers_to_nothing_outside_its_page() -> None:
    one = inline(FOREIGN.encode(), "f1-", "a title")
    root = ET.fromstring(one.markup)
    refers = [value for each in root.iter() for name, value in each.attrib.items() if name.rpartition("}")[2] == "href"]
    assert refers == ["#f1-a", "data:image/png;base64,AA=="] and one.caption == "what it shows"
    assert "alert" not in one.markup and "x.org" not in one.markup.replace("www.w3.org", "")
    assert {each.tag.rpartition("}")[2] for each in root.iter()} == {"svg", "title", "g", "use", "image"}


def test_a_page_is_no_larger_than_its_limit_and_says_what_it_leaves_out(monkeypatch: pytest.MonkeyPatch, qapp: object) -> None:
    table = ShownTable(("x",), (True,), (("1",),), 1)
    data = tuple(AnswerData(f"part{i}", f"part {i}", table, "json", b"." * 400) for i in range(3))
    mark = Heatmap("map", np.eye(2, dtype=np.float32), (0.0, 1.0), Axis("source"), Axis("row"))
    drawn = StepFigure(find_panel("attention"), State(ModelRef("builtin:attn-only-2l")), Figure(((mark,),), "a map"))
    report = Report("A talk", "", (Section("A step", figures=(ReportFigure(drawn, data),)),))
    monkeypatch.setattr("circuitlab.report.page.LARGEST_DATA", 900)
    page = page_of(report)
    inside = [base64.b64decode(one) for one in re.findall(r"data:application/json;base64,([^\"]*)", page)]
    assert inside == [b"." * 400] * 2 and page.count("no file inside") == 1


def test_a_number_less_another_has_its_sign_and_why_one_is_missing_names_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = directory(tmp_path / "mine")
    value = lambda name, read, minus="": Value(name, "token_loss", {}, read, ".6f", minus=minus)
    values = (value("late", "loss[3]"), value("early", "loss[1]"), value("change", "loss[3]", "early"))
    now = Setup(model="mine", prompt="ab cab ab")
    story = Story("A talk", (Step("Words", "{late} {early} {change}", None, values),))
    path = tmp_path / "talk.circuitlab"
    path.write_bytes(bytes_of(Session({"mine": ModelEntry(ModelRef(f"file:{model}"))}, now, story), tmp_path))
    (section,) = content_of(path).sections
    late, early, change = (float(number.replace("−", "-")) for number in re.findall(r"\[(.*?)\]", section.text.replace("\\", "")))
    loss = lab.session(path).steps[0].compute("token_loss").result.loss
    assert (late, early) == pytest.approx((loss[3], loss[1]), abs=1e-6)
    assert change == pytest.approx(loss[3] - loss[1], abs=2e-6) and abs(change) > 0.01
    missing = Number("", f"{tmp_path / 'somebody' / 'corpus.txt'} cannot be read.")
    monkeypatch.setattr("circuitlab.report.content.numbers_of", lambda *about: {"late": missing})
    (section,) = content_of(path).sections
    assert any("corpus.txt" in remark for remark in section.remarks) and "somebody" not in repr(section)


MARKDOWN = {
    "<b>x</b>": "<p dir=\"auto\">&lt;b&gt;x&lt;/b&gt;</p>\n",
    "[a](JavaScript:alert(1))": '<p dir="auto">a</p>\n',
    "[a](data:text/html,x)": '<p dir="auto">a</p>\n',
    "[a](//x.org)": '<p dir="auto">a</p>\n',
    "[a](mailto:a@b.org)": '<p dir="auto"><a href="mailto:a@b.org" rel="noopener noreferrer">a</a></p>\n',
    "![a](http://x.org/a.png)": '<p dir="auto">a</p>\n',
    "# a *b*": '<h3 dir="auto">a <em>b</em></h3>\n',
    "`a < b`": '<p class="equation" dir="auto"><code>a &lt; b</code></p>\n',
    "```\na\n\n<b>\n```": "<pre><code>a\n\n&lt;b&gt;</code></pre>\n",
    "- a\n  1. b\n- c": '<ul><li dir="auto">a<ol><li dir="auto">b</li></ol></li><li dir="auto">c</li></ul>\n',
    "3. a\n4. b": '<ol start="3"><li dir="auto">a</li><li dir="auto">b</li></ol>\n',
    "> a\n>\n> > b": '<blockquote><p dir="auto">a</p>\n<blockquote><p dir="auto">b</p>\n</blockquote>\n</blockquote>\n',
}  # fmt: skip


@pytest.mark.parametrize("markdown", MARKDOWN)
def test_markdown(markdown: str) -> None:
    assert prose(markdown) == MARKDOWN[markdown]


def test_a_head_of_a_table_says_of_what_its_numbers_are() -> None:
    model = lab.open("attn-only-2l")
    heads = lambda analysis, **given: shown_table(model.compute(analysis, text="a b a", set=given).result.table()).heads
    assert heads("attention_overview")[1] == "largest after position 0 (share of attention)"
    assert heads("attention_overview", show="scores")[-1] == "mean on position 0 (score)"
    assert heads("attention")[-1] == "value (share of attention)"
    assert "probability" in heads("predictions"), "its name says it"
    assert heads("predictions")[-2:] == ("log prob (nats)", "logit"), "in words, and no unit twice"


def test_a_caption_that_asks_ends_with_its_question_mark() -> None:
    caption = lambda title: caption_html(1, PlateCaption((PartCaption("", title, "some words"),), "", ""))
    assert "strong?</span>" in caption("How strong?") and "strong.</span>" in caption("Quite strong")
