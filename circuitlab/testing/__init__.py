"""The kit by which analyses and panels are tested, CircuitLab's own and those of plug-ins. It needs no test framework.

    from circuitlab.testing import Bench, check_analysis, check_panel

    def test_my_analysis(tmp_path):
        check_analysis("my_analysis", tmp_path)           # every kind of model, short and long prompts, bit-equal, stored
        found = Bench.on(tmp_path / "m").result("my_analysis", MyParams(), (1, 2, 3))
        …                                                 # against a closed form or another library

Each check raises `AssertionError` with what does not hold. A test that compares numbers with something that was not written here
is still yours to write.
"""

from circuitlab.testing.analyses import Bench, check_afresh, check_analysis, check_answer, check_remainder, check_stored
from circuitlab.testing.arrays import check_axes, check_columns, undeclared
from circuitlab.testing.models import CONFIGS, FULL, TINY, byte_tokenizer, directory, weights_of
from circuitlab.testing.panels import check_explained, check_figure, check_gestures, check_panel, check_same_arrays, drawn

__all__ = [
    "CONFIGS",
    "FULL",
    "TINY",
    "Bench",
    "byte_tokenizer",
    "check_afresh",
    "check_analysis",
    "check_answer",
    "check_axes",
    "check_columns",
    "check_explained",
    "check_figure",
    "check_gestures",
    "check_panel",
    "check_remainder",
    "check_same_arrays",
    "check_stored",
    "directory",
    "drawn",
    "undeclared",
    "weights_of",
]
