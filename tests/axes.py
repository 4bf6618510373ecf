"""What every result says of its arrays: the checks of the kit that plug-ins are tested by, too."""

from circuitlab.testing.arrays import check_axes, check_columns, undeclared

__all__ = ["check_axes", "check_columns", "undeclared"]
