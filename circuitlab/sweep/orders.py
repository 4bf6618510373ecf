"""From a cell of the plan to the order that a worker gets."""

from __future__ import annotations

from circuitlab.sweep.plan import Cell
from circuitlab.sweep.work import Order


def order_of(cell: Cell) -> Order:
    """The order for a cell that can be asked."""
    assert cell.request is not None and cell.point.identity is not None
    return Order(cell.key, cell.request, cell.point.identity.weights, cell.grid.metrics, cell.grid.arrays)
