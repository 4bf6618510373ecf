"""Which tests compare numbers, and on which processors they are run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from tests.processors.plugin import NUMBER

ROOT = Path(__file__).parents[2]
FOLDERS = ("tests/unit", "tests/figures")
COMPARES = re.compile(r"assert_(allclose|close|agrees|array_equal)|array_equal|torch\.equal|approx\(|isclose|tests\.rounding")

# These compare pixels, and lengths on paper.
OF_PICTURES = (
    "export film_files mark_heatmap mark_plots paper paper_measured sheets stage_theme stroke table_scales visible_parts"
)
LEFT_OUT = frozenset(f"tests/figures/test_{name}.py" for name in OF_PICTURES.split())


class Processor(NamedTuple):
    """How pytest is run to be on it: further arguments, and variables that libraries read when they are loaded."""

    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


# These hold their own process to the bits of one that they start, in which there is no plug-in.
WITH_PROCESSES = (
    "tests/unit/test_sweep.py::test_processes_write_the_same_table",
    "tests/unit/test_training_bits.py::test_two_hundred_steps_again_and_after_a_kill_are_bit_equal",
)
# These measure memory, of which the plug-in takes some of its own.
OF_MEMORY = ("tests/unit/test_odd_models.py::test_what_a_basis_costs_is_near_what_is_said",)
PLUG_IN = ("-p", "tests.processors.plugin", *(f"--deselect={test}" for test in (*WITH_PROCESSES, *OF_MEMORY)))
PRETENDED = {f"pretended {n}": Processor(PLUG_IN, ((NUMBER, str(n)),)) for n in range(3)}
REAL = {
    "OpenBLAS for Haswell": Processor(environment=(("OPENBLAS_CORETYPE", "Haswell"),)),
    "OpenBLAS for Nehalem": Processor(environment=(("OPENBLAS_CORETYPE", "Nehalem"),)),
    "torch without vectors": Processor(environment=(("ATEN_CPU_CAPABILITY", "default"),)),
    "MKL for any processor": Processor(environment=(("MKL_CBWR", "COMPATIBILITY"),)),
}
PROCESSORS = PRETENDED | REAL
AT_ONCE = ("pretended 0", "OpenBLAS for Haswell")  # part of `make test-slow`; all of them are `make processors`


def numeric_files() -> list[str]:
    """The files whose tests compare numbers that were computed, as paths from the root."""
    paths = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("test_*.py")))
    result = [path.relative_to(ROOT).as_posix() for path in paths if COMPARES.search(path.read_text(encoding="utf-8"))]
    return [name for name in result if name not in LEFT_OUT]
