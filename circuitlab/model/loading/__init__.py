"""Opening a model: its family is recognised by its files, never by its folder's name.

A family is one module of this package with a module-level `FAMILY = Family(...)`; no list of them is kept elsewhere.
"""

from circuitlab.model.loading.family import Family, Keep, Opened, families, open_model
from circuitlab.model.sources.references import resolve

__all__ = ["Family", "Keep", "Opened", "families", "open_model", "resolve"]
