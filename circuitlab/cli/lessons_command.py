"""`circuitlab lessons`: lists the lessons, or reports what is wrong with their files."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from circuitlab.counting import number_of
from circuitlab.errors import BadInput, stated
from circuitlab.figures.contracts.panel import view_types
from circuitlab.gui.places.arrangements import ARRANGEMENTS
from circuitlab.lessons.check import check
from circuitlab.lessons.lesson import files as shipped_files
from circuitlab.lessons.lesson import lessons
from circuitlab.terminal import on_one_line


def problems(path: Path) -> tuple[str, ...]:
    """Problems of one file, () if it parses and all its panels, controls, analyses, parameters and values exist."""
    return check(path, view_types(), tuple(ARRANGEMENTS))


def run(checked: bool, files: tuple[str, ...] = ()) -> int:
    """List the lessons, or check these files (by default all lessons). Exit status 3 if something is wrong."""
    if not checked:
        shipped, failed = lessons()
        for lesson in shipped:
            length = number_of(len(lesson.steps), "step") + (f", {lesson.minutes} min" if lesson.minutes else "")
            print(on_one_line(f"{lesson.name}  {lesson.title} ({length})"))
            if lesson.about:
                print(f"    {on_one_line(lesson.about)}")
        for error in failed:
            print(error, file=sys.stderr)
        return 3 if failed else 0
    paths = tuple(map(Path, files)) or shipped_files()
    wrong = 0
    for path in paths:
        if not os.path.isfile(path):  # a name may be too long to be asked about
            raise BadInput("The file does not exist.", expected="a lesson", got=stated(str(path)), remedy="Check the path.")
        complaints = problems(path)
        wrong += len(complaints)
        print("\n".join(map(on_one_line, complaints or (f"{path.name}: no problems",))))
    return 3 if wrong else 0


if __name__ == "__main__":
    sys.exit(run("--check" in sys.argv, tuple(a for a in sys.argv[1:] if not a.startswith("-"))))
