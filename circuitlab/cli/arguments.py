"""What all commands' options share: an option is said once."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any


class _Once(argparse.Action):
    """Stores a value; a second one is refused instead of taking the first one's place."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option: str | None = None,
    ) -> None:
        said = getattr(namespace, "_said", frozenset[str]())
        if option is not None and self.dest in said:
            raise argparse.ArgumentError(self, "given twice")
        namespace._said = said | {self.dest}
        setattr(namespace, self.dest, values)


class Parser(argparse.ArgumentParser):
    """A parser all of whose options are said once, those of its commands too."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.register("action", None, _Once)
        self.register("action", "store", _Once)
