"""What is said once of models that lie in another place than their session says: where they were opened from."""

from __future__ import annotations

from pathlib import Path

from circuitlab.errors import bounded
from circuitlab.gui.sessions.file_work import Staged
from circuitlab.gui.sessions.recovery_dialog import shown_path
from circuitlab.model.origin import File


def elsewhere_words(staged: Staged) -> str:
    """A sentence for each of these models; "" for none, and for a picture, which says no place."""
    models = {} if staged.of_picture else {name: staged.session.models[name] for name in staged.elsewhere}
    sentences = []
    for name, entry in models.items():
        origin = entry.ref.origin
        place = shown_path(Path(origin.where)) if isinstance(origin, File) else str(origin)
        same = ", the same weights" if entry.sha256 else ""
        others = "; other weights lie in its old place" if staged.elsewhere[name] else ""
        sentences.append(f"{bounded(name, 40)}: opened from {place}{same}{others}.")
    return " ".join(sentences)
