"""What closes the gate: a test that fails twice, more than three failures, and whatever is no failure of a test."""

from __future__ import annotations

import pytest

from tests.gate import Failures, judged

pytest_plugins = ["pytester"]

FAILED = pytest.ExitCode.TESTS_FAILED


def failures(*names: str, whole: bool = True) -> Failures:
    recorded = Failures()
    recorded.names, recorded.whole = list(names), whole
    return recorded


def test_what_passes_alone_is_named_and_does_not_close_the_gate(capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(FAILED, failures("a", "b", "c"), lambda name: True) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("UNSTABLE")] == [
        "UNSTABLE a",
        "UNSTABLE b",
        "UNSTABLE c",
    ]


def test_what_fails_twice_closes_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(FAILED, failures("a", "b"), lambda name: name == "a") == FAILED
    shown = capsys.readouterr().out
    assert "UNSTABLE a" in shown and "FAILED b" in shown


@pytest.mark.parametrize(
    ("status", "recorded"),
    [
        (FAILED, failures("a", "b", "c", "d")),
        (FAILED, failures("a", whole=False)),
        (FAILED, failures()),
        (pytest.ExitCode.INTERNAL_ERROR, failures("a")),
        (pytest.ExitCode.INTERRUPTED, failures("a")),
        (pytest.ExitCode.NO_TESTS_COLLECTED, failures()),
        (pytest.ExitCode.OK, failures()),
    ],
)
def test_nothing_else_is_tried_again(status: pytest.ExitCode, recorded: Failures) -> None:
    tried: list[str] = []

    def passes(name: str) -> bool:
        tried.append(name)
        return True

    assert judged(status, recorded, passes) == status and not tried


def test_failures_are_recorded_from_workers_too(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import os
        def test_passes(): pass
        def test_fails(): assert False
        def test_dies(): os._exit(1)
        """
    )
    recorded = Failures()
    assert pytester.inline_run("-n", "1", "-p", "no:cacheprovider", plugins=[recorded]).ret == FAILED
    assert sorted(name.split("::")[1] for name in recorded.names) == ["test_dies", "test_fails"] and recorded.whole
