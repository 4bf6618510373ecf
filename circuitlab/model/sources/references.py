"""Where the files of a `ModelRef` are: a path, a shipped model, or the hub's cache."""

from __future__ import annotations

from pathlib import Path

from circuitlab.disk.paths import model_dir, shipped_models
from circuitlab.errors import BadModel, quoted
from circuitlab.model.origin import Builtin, Catalogue, Constructed, File, Hub, Stored
from circuitlab.model.sources.hub import HubName, in_cache
from circuitlab.model.subject import ModelRef


def resolve(ref: ModelRef) -> Path:
    """The folder or file of a reference; for a constructed model, a path that does not exist. Raises `BadModel`."""
    origin = ref.origin
    if isinstance(origin, Builtin):
        if origin.where not in shipped_models():
            raise BadModel(
                "There is no such shipped model.",
                expected=" ".join(shipped_models()) or "none shipped",
                got=quoted(origin.where),
                remedy="Name a shipped model, a folder, a file, or OWNER/NAME on the hub.",
            )
        return model_dir(origin.where)
    if isinstance(origin, File):
        return Path(origin.where)
    if isinstance(origin, Hub):
        return in_cache(HubName.parse(origin.where))
    if isinstance(origin, Constructed):
        return Path(ref.source)
    if isinstance(origin, Stored):
        raise BadModel(
            "The weights are not on this machine.",
            expected="the model itself",
            got="results of it in a session",
            remedy="Open the session where the model is, or choose the model when the session is opened.",
        )
    if isinstance(origin, Catalogue):
        raise BadModel(
            "There is no such model in the catalogue.",
            expected="a name that circuitlab get lists",
            got=quoted(origin.where),
            remedy="The file may be of a newer version of CircuitLab. Choose the model's own files.",
        )
    expected = "file:PATH, builtin:NAME, hub:NAME or construct:NAME"
    raise BadModel(
        "That is not a model reference.",
        expected=expected,
        got=quoted(ref.source),
        remedy="Name a shipped model, a folder, a file, or OWNER/NAME on the hub.",
    )
