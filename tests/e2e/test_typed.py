"""CircuitLab's types as a checked program of somebody else meets them: out of the wheel, in the checker's strict mode."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from circuitlab import api
from circuitlab.engine.export_difference import Difference
from circuitlab.engine.request import Answer, Request
from circuitlab.report.picture import Picture
from circuitlab.report.saved_session import SavedSession, SavedStep

ROOT = Path(__file__).parents[2]
KINDS = (api.Model, Answer, Request, Difference, Picture, SavedSession, SavedStep)


def _members() -> str:
    """A program that names everything public in `circuitlab.api` and in what it returns."""
    lines = ["from typing import Any", "import circuitlab.api as lab"]
    lines += [f"print(lab.{name})" for name in api.__all__]
    for kind in KINDS:
        own = f"{kind.__name__}[Any]" if "Generic" in {base.__name__ for base in kind.__mro__} else kind.__name__
        names = [name for name in (*vars(kind), *inspect.get_annotations(kind)) if not name.startswith("_")]
        lines += [f"from {kind.__module__} import {kind.__name__}", f"def of_{kind.__name__}(one: {own}) -> None:"]
        lines += [f"    print(one.{name})" for name in dict.fromkeys(names)]
    return "\n".join(lines)


def _faults(folder: Path, site: Path) -> list[str]:
    settings: dict[str, Any] = {
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "extraPaths": [str(site)],
        "include": [str(folder)],
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    return [
        f"{Path(one['file']).name}:{one['range']['start']['line'] + 1} {one['message']}"
        for one in json.loads(run.stdout)["generalDiagnostics"]
    ]


@pytest.mark.slow
def test_the_wheel_has_types_that_hold_in_strict_mode(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    built = subprocess.run(build, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert "circuitlab/py.typed" in archive.namelist()
        archive.extractall(tmp_path / "site", [n for n in archive.namelist() if n.endswith((".py", ".typed"))])
    client = tmp_path / "client"
    client.mkdir()
    (client / "typed_client.py").write_bytes((ROOT / "tests" / "data" / "typed_client.py").read_bytes())
    (client / "members.py").write_text(_members(), encoding="utf-8")
    assert _faults(client, tmp_path / "site") == []
    (client / "wrong.py").write_text("import circuitlab.api as lab\nn: int = lab.open('m').tokens('a')\n", encoding="utf-8")
    faults = _faults(client, tmp_path / "site")
    assert len(faults) == 1 and faults[0].startswith("wrong.py:2"), "the checker has found the package"
