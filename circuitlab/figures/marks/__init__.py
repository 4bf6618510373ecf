"""What can be drawn, as data: nine marks, frozen numpy arrays, no Qt.

Every drawn item has an id (a tuple of whole numbers) which a click gives back. Marks are compared by identity of their
arrays: a mark whose arrays are the same objects as last time is not drawn again.
"""

from circuitlab.figures.marks.common import Axis, Colour, ColourMap, ids
from circuitlab.figures.marks.figure import BETWEEN, Does, Figure, Gesture, Hit, Mark, beyond, empty, joined
from circuitlab.figures.marks.heatmap import Heatmap, Tiles
from circuitlab.figures.marks.plots import Bars, Dials, Edges, Lines, Points
from circuitlab.figures.marks.texts import Prose, RowColumn, Rows, Tokens

__all__ = [
    "BETWEEN", "Axis", "Bars", "Colour", "ColourMap", "Dials", "Does", "Edges", "Figure", "Gesture", "Heatmap", "Hit", "Lines",
    "Mark", "Points", "Prose", "RowColumn", "Rows", "Tiles", "Tokens", "beyond", "empty", "ids", "joined",
]  # fmt: skip
