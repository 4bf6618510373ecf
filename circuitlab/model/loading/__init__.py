"""Opening a model: which family it is is seen from its files, never from its folder's name.

A family is one file in this package with a module-level `FAMILY = Family(...)`; the registry is found by walking.
"""

from circuitlab.model.loading.family import Family, Keep, Opened, families, open_model
from circuitlab.model.sources.references import resolve

__all__ = ["Family", "Keep", "Opened", "families", "open_model", "resolve"]
