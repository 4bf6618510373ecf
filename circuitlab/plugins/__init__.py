"""Plug-ins: analyses, panels and families of models that other packages and single files add to CircuitLab.

`declared` says which there are without importing any, `load` imports one when it is first used, `guarded` stands between the
program and the functions of one. The registries know the rest (`docs/plugins.md`). Standard library only, and nothing here is
imported before a name is asked for that CircuitLab itself does not have.
"""

from circuitlab.plugins.declaring import PATHS, Addition, Kind, Plugin, adding, declared, owner, problems, requested
from circuitlab.plugins.guarding import guarded
from circuitlab.plugins.listing import listed
from circuitlab.plugins.loading import SINGULAR, blamed, failures, load

__all__ = [
    "PATHS",
    "SINGULAR",
    "Addition",
    "Kind",
    "Plugin",
    "adding",
    "blamed",
    "declared",
    "failures",
    "guarded",
    "listed",
    "load",
    "owner",
    "problems",
    "requested",
]
