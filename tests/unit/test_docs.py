"""What the pages of `docs/` and CONTRIBUTING.md name is there: files, modules, classes, functions, panels, commands, links.

Everything in backticks must resolve. A page writes `path/file.py:Name.attribute` where it means one name of one file; paths are
those of the repository or of the package; capitals (`NAME.py`) and `*` stand for anything. What belongs to a library is listed in
`OUTSIDE`.
"""

from __future__ import annotations

import ast
import builtins
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from circuitlab.analysis.base import analyses
from circuitlab.figures.contracts.panel import panels
from circuitlab.gui.places.arrangements import ARRANGEMENTS
from circuitlab.gui.work.runner import LANES
from circuitlab.gui.work.settings import SETTINGS
from circuitlab.session_files.session import SUFFIX
from tests.unit.test_registered_names import registered_names

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
LINKED = [*PAGES, ROOT / "README.md", ROOT / "CHANGELOG.md"]
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
KNOWN_FOLDERS = ("circuitlab", "tests", "resources", "models", "docs")
# Of libraries, of the system, of the format that is spoken about: not ours to have.
OUTSIDE = frozenset(
    "transformers libxcb-cursor0 True GraphItem QThread QSvgGenerator QPdfWriter setColorScheme tolist xcb_connect QApplication "
    "QT_NO_GUI_THREADPOOL tokenizer.json config.json pip ldd dev-mode-dirs importlinter ThreadPoolExecutor(1) threading.Event "
    "qtbot.waitUntil qtbot.waitSignal time.sleep .venv runs/NAME textChanged lint-imports urllib.request dist/archives".split()
) | {'connect="pairs"', "a → aa", "OMP_WAIT_POLICY=PASSIVE GOMP_SPINCOUNT=0"}


class Names(NamedTuple):
    """What Python files define: by file its top-level names with their members, by class the members and bases, and all names."""

    files: dict[str, dict[str, frozenset[str]]]
    classes: dict[str, tuple[frozenset[str], tuple[str, ...]]]
    every: frozenset[str]
    parameters: frozenset[str]


def _targets(node: ast.AST) -> Iterator[str]:
    """Names that an assignment gives."""
    aims = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    for aim in aims:
        for one in ast.walk(aim):
            if isinstance(one, ast.Name):
                yield one.id


def _members(node: ast.ClassDef) -> frozenset[str]:
    """Methods, fields and attributes that methods give `self`."""
    result = {one.name for one in node.body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}
    result |= {name for one in node.body for name in _targets(one)}
    inside = (one for one in ast.walk(node) if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store))
    return frozenset(result | {one.attr for one in inside if isinstance(one.value, ast.Name) and one.value.id == "self"})


@cache
def _names() -> Names:
    files: dict[str, dict[str, frozenset[str]]] = {}
    classes: dict[str, tuple[frozenset[str], tuple[str, ...]]] = {}
    parameters: set[str] = set()
    helpers = (path for path in (ROOT / "tests").rglob("*.py") if not path.name.startswith("test_"))
    for path in (*(ROOT / "circuitlab").rglob("*.py"), *helpers):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        top: dict[str, frozenset[str]] = {}
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                top[node.name] = _members(node)
                bases = tuple(ast.unparse(base).rpartition(".")[2].partition("[")[0] for base in node.bases)
                had = classes.get(node.name, (frozenset[str](), ()))
                classes[node.name] = had[0] | top[node.name], (*had[1], *bases)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                top[node.name] = frozenset()
                parameters |= {one.arg for one in (*node.args.args, *node.args.kwonlyargs)}
            else:
                top |= {name: frozenset() for name in _targets(node)}
        files[path.relative_to(ROOT).as_posix()] = top
    every = {name for top in files.values() for name in top} | {name for members, _ in classes.values() for name in members}
    return Names(files, classes, frozenset(every), frozenset(parameters))


@cache
def _paths() -> frozenset[str]:
    """Every file and folder of the repository, as `git ls-files` would write them, folders with a slash behind."""
    result = [ROOT / name for name in KNOWN_FOLDERS]
    inside = [path for folder in result for path in folder.rglob("*") if "__pycache__" not in path.parts]
    inside += [*result, *(path for path in ROOT.iterdir() if path.is_file()), *(ROOT / ".ci").glob("*")]
    return frozenset(path.relative_to(ROOT).as_posix() + "/" * path.is_dir() for path in inside)


def _alternatives(text: str) -> list[str]:
    """`a/{b,c}` as `a/b` and `a/c`."""
    match = re.search(r"\{([^{}]*,[^{}]*)\}", text)
    if match is None:
        return [text]
    return [whole for part in match[1].split(",") for whole in _alternatives(text[: match.start()] + part + text[match.end() :])]


@cache
def _by_name() -> dict[str, list[str]]:
    """Paths by their last part."""
    result: dict[str, list[str]] = {}
    for path in _paths():
        result.setdefault(path.rstrip("/").rpartition("/")[2], []).append(path)
    return result


@cache
def _files_called(text: str) -> list[str]:
    """Files and folders of this name: from the root, from the package, or the end of a path; `*` and capitals are anything."""
    exact = [p for p in _by_name().get(text.rpartition("/")[2], ()) if f"/{p.rstrip('/')}".endswith(f"/{text}")]
    if exact:
        return exact
    pattern = re.sub(r"(?<![A-Za-z])[A-Z]{2,}(?![A-Za-z])", "[^/]*", re.escape(text).replace(r"\*", "[^/]*"))
    if pattern == re.escape(text):
        return []
    whole = re.compile(rf"(.*/)?{pattern}/?")
    return [path for path in _paths() if whole.fullmatch(path)]


def _looks_like_a_file(text: str) -> bool:
    return "/" in text or re.fullmatch(r"[\w.*-]+\.(py|md|toml|json|tsv|txt|svg|safetensors|ini)", text) is not None


def _has(kind: str, attribute: str) -> bool:
    """Whether a class, or one that it is made of, has a member."""
    members, bases = _names().classes.get(kind, (frozenset[str](), ()))
    return attribute in members or any(_has(base, attribute) for base in bases if base != kind)


def _defined_in(file: str, name: str) -> bool:
    """Whether one file defines `Name`, or `Name.attribute`."""
    owner, _, attribute = name.removesuffix("()").partition(".")
    return any(
        owner in _names().files.get(path, {}) and (not attribute or _has(owner, attribute)) for path in _files_called(file)
    )


def _is_python(text: str) -> bool:
    """A module, a name that some file defines, `Class.attribute`, `function(…)`, `field=value`, `@decorator`."""
    text = re.sub(r"\(.*\)$", "", text.removeprefix("@"), flags=re.DOTALL)
    left, equals, _ = text.partition("=")
    if equals and NAME.fullmatch(left):
        return left in _names().parameters or left in _names().every
    if not NAME.fullmatch(text):
        return False
    names, parts = _names(), text.split(".")
    if text in names.every or hasattr(builtins, text) or _files_called(text.replace(".", "/") + ".py"):
        return True
    if _files_called(text.replace(".", "/")) and len(parts) > 1:  # a package
        return True
    if len(parts) < 2:
        return bool([path for path in _files_called(text) if path.startswith("circuitlab/")])
    owner, attribute = parts[-2], parts[-1]
    if owner in names.classes:
        return _has(owner, attribute)
    modules = [path for path in names.files if path.endswith(f"/{owner}.py")]
    return any(attribute in names.files[path] for path in modules) or (
        owner.islower() and attribute in names.every and owner in names.parameters
    )


@cache
def _targets_of_make() -> frozenset[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return frozenset(re.search(r"^\.PHONY:(.*)$", text, re.MULTILINE)[1].split())  # type: ignore[index]


def _options() -> dict[str, frozenset[str]]:
    commands = registered_names()["command line"]
    both = {"": frozenset(commands["options"])}
    return both | {name: frozenset(sub["options"]) for name, sub in commands["commands"].items()}


def _is_command(text: str) -> bool:
    """`circuitlab COMMAND …` with its options, `make TARGET …`, `python -m MODULE …`; capitals stand for anything."""
    words = shlex.split(text)
    if words[0] == "make":
        return all("=" in word or word in _targets_of_make() for word in words[1:])
    if words[:2] == ["python", "-m"] and len(words) > 2:
        return words[2] == "pytest" or bool(_files_called(words[2].replace(".", "/")) or _is_python(words[2]))
    if words[0] != "circuitlab" or len(words) < 2:
        return text == "circuitlab"
    options = _options()
    if words[1] not in options:
        return words[1].isupper()
    named = {"compute": set(analyses()), "figure": set(panels())}.get(words[1])
    if (
        named is not None
        and len(words) > 2
        and not words[2].startswith("-")
        and words[2] != words[2].upper()
        and words[2] not in named
    ):
        return False
    return all(word.partition("=")[0] in options[words[1]] for word in words[2:] if word.startswith("-") and word != "-")


@cache
def _registered() -> frozenset[str]:
    """Names that people type or that files keep."""
    names = registered_names()
    fields = {name for a in names["analyses"].values() for name in (*a["parameters"], *a["result"])}
    named = {*names["analyses"], *names["panels"], *names["window commands"], *fields, *(s.name for s in SETTINGS)}
    named |= set(ARRANGEMENTS) | set(LANES) | {option for options in _options().values() for option in options}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    return frozenset(named | set(_options()) | set(extras))


def resolves(span: str) -> bool:
    """Whether what stands in backticks is there."""
    if span in OUTSIDE or span == SUFFIX or span in _registered():
        return True
    if re.match(r"(circuitlab|make|python) ", span) or span == "circuitlab":
        return _is_command(span)
    if "::" in span:
        test, _, name = span.partition("::")
        return (ROOT / test).is_file() and f"\ndef {name}(" in (ROOT / test).read_text(encoding="utf-8")
    file, colon, name = span.partition(":")
    if colon and file.endswith(".py"):
        return _defined_in(file, name)
    if _looks_like_a_file(span):
        return all(_files_called(one.removesuffix("/")) for one in _alternatives(span))
    if span.startswith("-"):
        return span.partition("=")[0] in {*_registered(), "--headed", "--update-snapshots", "--replay"}
    return _is_python(span)


def _spans(page: Path) -> list[str]:
    """What stands in backticks in a page, its blocks of code aside."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    return sorted({re.sub(r"\s+", " ", span) for span in SPAN.findall(text)})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_is_there(page: Path) -> None:
    spans = _spans(page)
    assert len(spans) > 10
    assert not [span for span in spans if not resolves(span)]


def test_what_no_file_may_do_has_a_test_a_line() -> None:
    rows = [line.split("|") for line in (ROOT / "SECURITY.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    rows = [row for row in rows if row[1].strip() != "a file may"]
    assert len(rows) > 10
    assert all(len(row) == 6 and re.search(r"`tests/\S+::test_\w+`", row[4]) for row in rows)


def _anchors(page: Path) -> set[str]:
    """What `#…` may lead to: headings as GitHub calls them."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        where, _, anchor = link.partition("#")
        if where.startswith(("http:", "https:")):
            continue
        there = (page.parent / where).resolve() if where else page
        if not there.exists() or (anchor and anchor not in _anchors(there)):
            broken.append(link)
    assert not broken


def test_every_page_can_be_reached_from_the_first() -> None:
    first = ROOT / "docs" / "README.md"
    linked = {link.partition("#")[0] for link in LINK.findall(first.read_text(encoding="utf-8"))}
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"} <= linked
    assert "docs/README.md" in LINK.findall((ROOT / "README.md").read_text(encoding="utf-8"))


def test_the_index_names_every_analysis_and_every_panel() -> None:
    text = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    assert not set(analyses()) - set(SPAN.findall(text))
    assert not {panel.title for panel in panels().values() if f"*{panel.title}*" not in text}


def test_the_index_calls_panels_by_their_titles() -> None:
    text = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    titles = {panel.title for panel in panels().values()}
    rows = [line.split("|") for line in text.splitlines() if line.startswith("| ") and line.count("|") == 6]
    assert len(rows) > 30
    named = {title for row in rows for title in re.findall(r"\*([^*]+)\*", row[4])} - {"panel"}
    assert not named - titles


def test_every_term_of_the_glossary_names_who_owns_it() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    entries = re.findall(r"^\*\*(.+?)\*\*(.*?)(?=^\*\*|^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert len(entries) > 30
    assert not [term for term, told in entries if not re.search(r"`[\w/{},]+\.py(:[\w.]+)?`", told)]


@pytest.mark.parametrize(
    "span",
    [
        "gui/work/no_such_file.py",
        "state/state.py:Selektion",
        "state/state.py:Selection.with_nothing",
        "Runner.no_such_method",
        "NoSuchClass",
        "no_such_module",
        "circuitlab compute no_such_analysis MODEL",
        "circuitlab figure attention MODEL --no-such-option 3",
        "make no-such-target",
        "resources/recipes/no-such.toml",
        "python -m tests.no_such_module",
    ],
)
def test_what_is_not_there_is_noticed(span: str) -> None:
    assert not resolves(span)
