"""The words by which tests know what a figure says, each in this one place: prose changes here and in no assertion.

A test asserts facts (numbers, names, the State). Where only a sentence carries the fact, it asks a function of this module.
"""

from __future__ import annotations

import re

from circuitlab.draw.view.figure_view import STILL
from circuitlab.figures.contracts.pinned import OF_NOW, SAME

# -- differences -----------------------------------------------------------------------------------------------------------


def is_difference(title: str, label: str) -> bool:
    """Whether a title says that its numbers are now's minus those of a reference."""
    return title.startswith(f"now − {label}")


def minus(label: str) -> str:
    """What a caption says of a mark that is a difference to a reference."""
    return f"now minus {label}"


def same_in(label: str) -> str:
    """What is said where nothing differs from a reference."""
    return f"{SAME} {label}"


def not_compared(words: str) -> bool:
    """Whether a reason is given why there is no difference."""
    return "not compared" in words


def but_for_rounding(words: str) -> bool:
    """Whether a change is said to be no larger than rounding."""
    return "rounding" in words


def explained(words: str) -> bool:
    """Whether it is said why something beside a reference stands as it is now."""
    return not_compared(words) or bool(re.search(f"itself sets|is being|{OF_NOW}", words))


def sums_to_one(words: str) -> bool:
    """Whether rows are said to be distributions."""
    return "sum to" in words


# -- empty figures ---------------------------------------------------------------------------------------------------------


def asks_for_text(words: str) -> bool:
    """Whether a text is asked for."""
    return bool(re.search("[Tt]ype (some|a) text", words))


def lacks_series(words: str) -> bool:
    """Whether a checkpoint series is what is missing."""
    return "no checkpoint series" in words


def norm_on_stream(words: str) -> bool:
    """Whether weights cannot be read because a norm stands between the sublayers."""
    return "stream itself" in words


def fault_in_figure(words: str) -> bool:
    """Whether a figure could not be drawn by a fault of ours."""
    return "could not be drawn" in words


def still_of(model: str) -> str:
    """What the title of a picture says that is of another model than the present one, until that is computed."""
    return f"{STILL} {model}"


# -- how a mark is drawn ---------------------------------------------------------------------------------------------------


def negative_cells_marked(words: str) -> bool:
    """Whether cells of a map are said to carry a sign where they are negative."""
    return "− marks negative cells" in words


def negative_tokens_marked(words: str) -> bool:
    """Whether tokens are said to be underlined where they are negative."""
    return "underlined tokens are negative" in words


def columns_left_out(words: str) -> bool:
    """Whether a table is said to have more columns than there is room for."""
    return "columns left out" in words
