"""What the command line prints of files: visible, on its own line; what an error says; and how Ctrl+C ends it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from circuitlab import terminal
from circuitlab.cli.parser import main
from circuitlab.disk import paths
from circuitlab.engine.store import ModelStore
from circuitlab.model.subject import ModelRef
from circuitlab.session_files.session import ModelEntry, Note, Session
from circuitlab.session_files.session_text import bytes_of
from circuitlab.story.setup import Setup
from circuitlab.story.story import Step, Story
from tests.models import directory

CLEARS, TITLE, TURNS, ONE_BYTE = "\x1b[2J\x1b[H", "\x1b]0;mine\x07", "\u202etxt.exe\u2066", "\x9b31m"
HOSTILE = f"a{CLEARS}{TITLE}{TURNS}{ONE_BYTE}\x7f\r\U000e0041z\n  do:       rm -rf"
NAMED = f"m{CLEARS}{TURNS}{ONE_BYTE}"  # what a folder can be called, on Linux


@pytest.fixture
def hostile(tmp_path: Path) -> dict[str, str]:
    """A session, a lesson and a model, each of which has such texts wherever it can have a text, and where they are."""
    model = directory(tmp_path / NAMED)
    ref = ModelRef(f"file:{model}")
    models = {HOSTILE: ModelEntry(ref, ModelStore().sha256(ref)), f"lost{HOSTILE}": ModelEntry(ModelRef(f"file:/{HOSTILE}"), "7")}
    now = Setup(model=HOSTILE, prompt=f"ab{HOSTILE}", heads=("L0H2",))
    steps = (
        Step(HOSTILE, HOSTILE, now, aside=HOSTILE),
        Step(HOSTILE, setup=Setup(model=f"lost{HOSTILE}")),
        Step("place", setup=Setup(model=HOSTILE, prompt="ab", heads=(f"best {HOSTILE}",))),
        Step("token", setup=Setup(model=HOSTILE, prompt="ab", target=(HOSTILE,))),
        Step("panel", setup=Setup(model=HOSTILE, prompt="ab", view={f"p{HOSTILE}": {"x": HOSTILE}})),
    )
    notes = (Note(HOSTILE, HOSTILE, head="L1H1"), Note(HOSTILE, HOSTILE, token=HOSTILE), Note(HOSTILE, panel=HOSTILE))
    folder = tmp_path / f"talks{NAMED}"
    folder.mkdir()
    session, lesson = folder / f"s{NAMED}.circuitlab", folder / f"l{NAMED}.md"
    session.write_bytes(bytes_of(Session(models, now, Story(HOSTILE, steps, HOSTILE), notes), folder))
    front = f"+++\ntitle = {json.dumps(HOSTILE)}\nabout = {json.dumps(HOSTILE)}\n+++\n\n"
    lesson.write_text(f"{front}## {TURNS} {CLEARS}\n\n```toml\nmodel = {json.dumps(HOSTILE)}\n```\n", encoding="utf-8")
    (folder / "map.toml").write_text(f"{json.dumps(HOSTILE)} = 1\n", encoding="utf-8")
    return {"SESSION": str(session), "LESSON": str(lesson), "MODEL": str(model), "HERE": str(folder), "BAD": HOSTILE}


COMMANDS = [
    "session SESSION",
    "session SESSION --json",
    "session SESSION --markdown HERE/o.md",
    "session LESSON",
    "session LESSON -o HERE/o.circuitlab",
    "lessons --check LESSON",
    "lessons",
    "info MODEL",
    "info MODEL --json",
    "info HERE",
    "info BAD",
    "compute token_loss --at SESSION",
    "compute token_loss --at SESSION#1",
    "compute token_loss --at SESSION#2",
    "compute token_loss --at SESSION#3",
    "compute token_loss --at SESSION#4",
    "compute token_loss --at SESSION#9",
    "compute predictions MODEL --text BAD",
    "compute BAD MODEL",
    "compute token_loss MODEL --text-file BAD",
    "compute token_loss MODEL --tokens BAD",
    "compute token_loss MODEL --cut BAD",
    "compute token_loss MODEL --text ab --set BAD=1",
    "compute token_loss MODEL --text ab --csv BAD/x.csv",
    "figure attention --at SESSION#5 -o HERE/a.svg",
    "figure attention --at SESSION#3 -o HERE/a.svg",
    "figure attention MODEL --text ab --heads BAD -o HERE/a.svg",
    "figure BAD MODEL --text ab -o HERE/a.svg",
    "figure attention MODEL --text ab -o HERE/BAD",
    "import MODEL --map HERE/map.toml --check",
    "train BAD --text BAD --out HERE/t",
    "measure MODEL --text BAD",
    "open SESSION --text BAD",
    "BAD",
]


def _words(command: str, places: dict[str, str]) -> list[str]:
    words = command.split()
    for name, value in places.items():
        words = [word.replace(name, value) for word in words]
    return words


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX system: such names of files")
@pytest.mark.parametrize("command", COMMANDS)
def test_no_word_of_a_file_moves_the_cursor_or_turns_a_line(
    hostile: dict[str, str], command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (own := paths.config_home() / "lessons").mkdir(parents=True)
    shutil.copy(hostile["LESSON"], own)
    status = main(_words(command, hostile))
    out, err = capsys.readouterr()
    for text in (out, err):
        wrong = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp", "Cs") and c not in "\n\t"}
        assert not wrong, (wrong, text)
    assert not [line for line in (out + err).splitlines() if line.startswith("  do:       rm")]
    if "--json" in command:  # what reads it has the texts as they are
        assert [text for text in (HOSTILE, NAMED) if json.dumps(text)[1:-1] in json.dumps(json.loads(out))]
    if status:
        assert status in (2, 3) and (out or err)


def test_what_is_visible_stays_and_what_is_not_becomes_an_escape_of_json() -> None:
    for text in ("é 中 − “a”\u00a0b\u2009c", "line\n\tline", ""):
        assert terminal.visible(text) == text
    for char in ("\x1b", "\x9b", "\u202e", "\u200b", "\ufeff", "\U000e0041", "\ud800", "\r", "\x7f", "\u2028"):
        shown = terminal.visible(char)
        assert shown.isascii() and shown.isprintable() and json.loads(f'"{shown}"') == char
    assert "\n" not in terminal.on_one_line("a\nb") and terminal.on_one_line("a\tb") == "a\\tb"


# -- what an error says ----------------------------------------------------------------------------------------------------

ERRORS = [
    "info nothing-of-the-kind",
    "info OWNER/NAME@",
    "info SESSION",
    "compute token_loss MODEL",
    "compute token_loss MODEL --text ab --cut L9H9",
    "compute token_loss MODEL --text ab --cut H9",
    "compute token_loss MODEL --tokens 1,x",
    "compute token_loss MODEL --tokens 1,99999",
    "compute token_loss MODEL --text ab --checkpoint 3",
    "compute token_loss MODEL --text ab --checkpoint soon",
    "compute token_loss MODEL --text ab --device abacus",
    "compute token_losses MODEL --text ab",
    "compute token_loss MODEL --text ab --set x=1",
    "compute token_loss MODEL --text ab --set without",
    "compute attention MODEL --text ab --set heads=L9H9",
    "compute attention MODEL --text ab --set heads=nine",
    "compute attention MODEL --text ab --set show=all",
    "compute direct_attribution MODEL --text ab --set position=99",
    "compute direct_attribution MODEL --text ab --set target=99999",
    "compute direct_attribution MODEL --text ab --set target=a-b-c",
    "compute path_patching MODEL --text ab --set sender=L1H0",
    "compute ov_table MODEL --set head=L0H7",
    "compute neurons MODEL --text ab",
    "compute in_context MODEL --text ab --set ratio=0",
    "compute over_prompts MODEL --set file=nowhere.tsv analysis=token_loss",
    "compute over_prompts MODEL --set analysis=nothing",
    "compute training_series MODEL",
    "compute token_loss MODEL --text-file nowhere.txt",
    "compute token_loss --at SESSION#99",
    "compute token_loss --at nowhere.circuitlab",
    "compute token_loss --at LESSON",
    "compute token_loss --at SESSION#2",
    "compute token_loss --at SESSION#3",
    "compute token_loss --at SESSION#4",
    "compute token_loss MODEL --at SESSION",
    "compute token_loss --at SESSION MODEL",
    "compute token_loss MODEL --threads many",
    "figure attentions MODEL --text ab -o a.svg",
    "figure attention MODEL -o HERE/a.svg",
    "figure attention MODEL --text ab -o a.gif",
    "figure attention MODEL --text ab --heads L9H9 -o HERE/a.svg",
    "figure attention MODEL --text ab --destination 99 -o HERE/a.svg",
    "figure attention MODEL --text ab --target 1-2-3 -o HERE/a.svg",
    "figure attention MODEL --text ab --width 1 -o HERE/a.svg",
    "figure neurons MODEL --text ab -o HERE/a.svg",
    "session nowhere.circuitlab",
    "session LESSON",
    "session SESSION --markdown a.txt",
    "session SESSION -o a.circuitlab",
    "session HERE/map.toml",
    "lessons --check nowhere.md",
    "import MODEL --map nowhere.toml",
    "import MODEL --map HERE/map.toml",
    "train nothing --text x --out HERE/t",
    "train attn-only-1l --text nowhere --out HERE/t",
    "measure MODEL --text nowhere",
    "trian",
]


# analyses and panels that do not apply: the reason says all, there is nothing to compare
ALONE = (
    "compute path_patching MODEL --text ab --set sender=L1H0",
    "compute neurons MODEL --text ab",
    "compute over_prompts MODEL --set analysis=nothing",
    "compute training_series MODEL",
    "figure attention MODEL -o HERE/a.svg",
    "figure neurons MODEL --text ab -o HERE/a.svg",
)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX system: such names of files")
@pytest.mark.parametrize("command", ERRORS)
def test_an_error_says_what_was_expected_what_came_and_what_to_do(
    hostile: dict[str, str], command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(hostile["HERE"])
    words = _words(command, hostile)
    assert main(words) in (2, 3)
    lines = capsys.readouterr().err.splitlines()
    said = {line[:11].strip(" :"): line[11:].strip() for line in lines if line.startswith("  ")}
    assert said.get("do"), lines
    assert command in ALONE or lines[0].startswith("usage:") or (said.get("expected") and said.get("got")), lines


# -- Ctrl+C ----------------------------------------------------------------------------------------------------------------

START = """
import os, runpy, signal, sys
moment, sent = sys.argv.pop(1), []
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == moment and not sent:
            sent.append(name)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts())
runpy.run_module("circuitlab", run_name="__main__", alter_sys=True)
"""
MOMENTS = [
    ("circuitlab.interrupts", "--version"),
    ("circuitlab.launch", "--version"),
    ("circuitlab.cli.parser", "--version"),
    ("argparse", "--version"),
    ("circuitlab.cli.commands", "panels"),
    ("torch", "panels"),
    ("torch._C", "panels"),
    ("numpy", "panels"),
    ("circuitlab.engine.engine", "analyses"),
    ("circuitlab.cli.lessons_command", "lessons"),
    ("circuitlab.training.command", "train attn-only-1l --text x --out y"),
    ("circuitlab.doctor", "doctor"),
    ("circuitlab.gui.shell.main", "open"),
]


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX system: a process that interrupts itself")
@pytest.mark.parametrize(("moment", "command"), MOMENTS)
def test_ctrl_c_while_it_starts_ends_it_quietly(moment: str, command: str, tmp_path: Path) -> None:
    """At the moment when a module is looked for: the first ones come within a tenth of a second."""
    done = subprocess.run(
        [sys.executable, "-c", START, moment, *command.split()],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "QT_QPA_PLATFORM": "offscreen"},
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell starts what is in the background without it
    )
    assert (done.returncode, done.stdout) == (130, "") and "Traceback" not in done.stderr, done
    assert done.stderr.strip() in ("", "Cancelled.")


AT_EXIT = """
import atexit, os, runpy, signal, sys
class Late:
    def __del__(self, kill=os.kill, own=os.getpid(), number=signal.SIGINT):
        kill(own, number)
if sys.argv[1] == "at exit":
    atexit.register(os.kill, os.getpid(), signal.SIGINT)
if sys.argv[1] == "modules":
    sys.modules["late"] = Late()
sys.argv[1:] = ["--version"]
runpy.run_module("circuitlab", run_name="__main__", alter_sys=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX system: a process that interrupts itself")
@pytest.mark.parametrize(("moment", "status"), [("at exit", 130), ("modules", 0)])
def test_ctrl_c_while_it_ends_is_no_end_by_a_signal(moment: str, status: int) -> None:
    """Modules are not taken apart: there Python has no handlers any more."""
    done = subprocess.run(
        [sys.executable, "-c", AT_EXIT, moment],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert (done.returncode, done.stderr) == (status, "") and done.stdout.startswith("circuitlab "), done


def test_an_own_handler_of_interrupts_stays() -> None:
    from circuitlab.interrupts import starting

    before = signal.getsignal(signal.SIGINT)
    own = lambda number, frame: None
    try:
        signal.signal(signal.SIGINT, own)
        with starting():
            assert signal.getsignal(signal.SIGINT) is own
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with starting():
            assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
