"""Configurations with one field wrong, or left out: whatever stands there, a family opens or raises a typed error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from circuitlab.errors import BadModel
from circuitlab.model.files.tensors import ResidentTensors
from circuitlab.model.loading import families
from circuitlab.model.loading.checkpoint import Checkpoint
from tests.unit.families import test_alibi, test_decoders, test_experts, test_llama

NASTY: tuple[Any, ...] = (None, -1, 0, 3, "x", [], {}, [[1]], {"a": 1}, ["sliding_attention"], True, 10**30, float("nan"), 0.3)
MODULES = (test_alibi, test_decoders, test_experts, test_llama)
# the first case of each kind
CASES = list({case[0]: (module, name) for module in MODULES for name, case in reversed(module.CASES.items())}.values())


def changed(config: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(what was changed, the configuration with it)."""
    for field in set(config) - {"model_type", "architectures", "transformers_version"}:
        yield f"without {field}", {name: value for name, value in config.items() if name != field}
        for value in NASTY:
            yield f"{field} {value!r}", {**config, field: value}


@pytest.mark.parametrize(("module", "name"), CASES, ids=[name for _, name in CASES])
def test_no_value_of_a_field_is_an_unhandled_error(module: Any, name: str) -> None:
    config = module.made(name).to_dict()
    here = lambda changes: Checkpoint(Path(), Path(), changes, tensors=ResidentTensors({}))
    claiming = next(f for f in families() if f.claims(here(config)))
    for what, config_changed in changed(config):
        with pytest.raises(BadModel):  # at the latest that the tensors are not there
            claiming.load(here(config_changed), "resident")
            pytest.fail(what)
