"""The net under all other tests catches: an unexpected skip, a widget, a timer or a thread that is left behind."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parent.parent.parent
CONFTEST = ROOT / "tests" / "conftest.py"

SAMPLES = """
import threading
import pytest


def test_allowed_skip():
    pytest.skip("needs ../shared")


def test_other_skip():
    pytest.skip("it did not work today")


@pytest.mark.skipif(True, reason="neither did this")
def test_marked_skip(): ...


@pytest.mark.xfail(reason="an expected failure is no skip")
def test_expected_failure():
    assert False


def test_clean_widget(qtbot):
    from PySide6.QtWidgets import QLabel
    label = QLabel("fine")
    qtbot.addWidget(label)
    label.show()


def test_window_that_is_only_closed(qapp):
    from PySide6.QtWidgets import QMainWindow
    QMainWindow().show()


KEPT = []


def test_left_timer(qapp):
    from PySide6.QtCore import QTimer
    timer = QTimer()
    timer.setObjectName("clock")
    timer.start(1000)
    KEPT.append(timer)


def test_left_thread(qapp):
    thread = threading.Thread(target=threading.Event().wait, daemon=True, name="worker-left")
    thread.start()


def test_failed_and_left(qapp):
    from PySide6.QtCore import QTimer
    timer = QTimer()
    timer.start(1000)
    KEPT.append(timer)
    assert False, "its own reason"


def test_home(home):
    from circuitlab.disk import paths
    assert paths.log_file().is_relative_to(home)
"""


def test_the_net(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST.read_text("utf-8").replace("from tests.patience import SECONDS", "SECONDS = 2.0"))
    pytester.path.joinpath("allowed_skips.txt").write_text(CONFTEST.with_name("allowed_skips.txt").read_text("utf-8"), "utf-8")
    pytester.makeini(f"[pytest]\nqt_api = pyside6\nfilterwarnings = error\npythonpath = {ROOT}\n")
    pytester.makepyfile(test_samples=SAMPLES)
    pytester.makepyfile(test_module_skip='import pytest\npytest.skip("a whole file", allow_module_level=True)\n')
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-rA", "--continue-on-collection-errors")
    counts = result.parseoutcomes()
    assert counts == {"passed": 5, "failed": 2, "skipped": 1, "xfailed": 1, "errors": 4}, result.stdout.str()
    result.stdout.fnmatch_lines_random(
        [
            "*not in allowed_skips.txt: it did not work today*",
            "*not in allowed_skips.txt: neither did this*",
            "*not in allowed_skips.txt: a whole file*",
            "*left behind: *QTimer('clock')*",
            "*left behind: *Thread('worker-left')*",
            "*its own reason*",
        ]
    )


WAITS = {"waitActive", "waitCallback", "waitExposed", "waitSignal", "waitSignals", "waitUntil"}


def test_no_wait_of_a_test_names_a_time_of_its_own() -> None:
    """One patience for all: `qtbot.wait`, which waits for nothing, and a time at any other wait, are for an idle machine."""
    found = list[str]()
    for path in sorted(CONFTEST.parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            timed = node.func.attr in WAITS and any(word.arg == "timeout" for word in node.keywords)
            if timed or ast.unparse(node.func) == "qtbot.wait":
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not found
