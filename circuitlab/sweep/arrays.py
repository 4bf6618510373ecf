"""The arrays that a sweep has kept, out of its archives."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np

from circuitlab.errors import BadInput, cause
from circuitlab.sweep.journal import lines_in


def arrays_of(folder: Path, cell: str) -> dict[str, np.ndarray]:
    """The arrays of a cell by name, and `about` as text. Raises `BadInput` where none are kept."""
    try:
        where = [line["arrays"] for line in lines_in(folder) if line["cell"] == cell and "arrays" in line]
        if where:
            with zipfile.ZipFile(folder / where[-1]) as archive:
                return dict(np.load(io.BytesIO(archive.read(f"{cell}.npz"))))
        why = "none of this cell"
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        why = cause(error)
    remedy = "Declare arrays = true, and run the sweep again."
    raise BadInput("The sweep has not kept these arrays.", expected="a cell with arrays", got=why, remedy=remedy)
