"""From what a plug-in declares to its entry in a registry: all of what its module registers, or nothing of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from circuitlab.errors import PluginError
from circuitlab.plugins.declaring import Addition, Plugin
from circuitlab.plugins.loading import load


class Registered(Protocol):
    """An entry of a registry; `plugin` None: one of CircuitLab's own."""

    @property
    def plugin(self) -> Plugin | None: ...


Entry = TypeVar("Entry", bound=Registered)


def load_into(registry: dict[str, Entry], addition: Addition, made_in: Callable[[Entry], str]) -> None:
    """Import what an addition names, which registers itself under that name.

    `made_in`: the module of an entry. Raises `PluginError`; then nothing stays of what a module registered that is not there.
    """
    if _of(registry, addition):
        return
    try:
        load(addition)
    except PluginError:
        for name in [name for name, one in registry.items() if one.plugin == addition.plugin]:
            if made_in(registry[name]) not in sys.modules:
                del registry[name]
        raise
    if not _of(registry, addition):
        other = registry.get(addition.name)
        whose = "" if other is None else f", as there is one of {other.plugin or 'CircuitLab itself'}"
        raise PluginError(
            f"The plug-in {addition.plugin} does not register {addition.name}{whose}.",
            got=f"{addition.name} = {addition.module}",
            remedy="Tell its authors: its module has to register each name that it declares.",
            plugin=str(addition.plugin),
        )


def _of(registry: Mapping[str, Registered], addition: Addition) -> bool:
    """Whether what stands under the name is of this plug-in."""
    entry = registry.get(addition.name)
    return entry is not None and entry.plugin == addition.plugin
