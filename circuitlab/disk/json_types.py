"""What a JSON file holds, by name: objects whose values are of any kind until whoever reads one has checked it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

JsonObject: TypeAlias = Mapping[str, Any]  # to be read
JsonDict: TypeAlias = dict[str, Any]  # to be filled, or one's own
