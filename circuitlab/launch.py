"""From a command to a window: the environment, the probe, torch before Qt, then the window or its picture.

`circuitlab.__main__` calls `settle_environment` before anything else is imported; the command line calls `open_or_render`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

DEFAULT_MODEL = "builtin:attn-only-2l"
PICTURE = Path("circuitlab.png")

# A libgomp thread that waits by spinning makes many small products wait for a busy neighbour: 0.2 s of work took 9 to 36 s.
# tokenizers warns at every process that is started after it has worked in parallel, unless it was told that it may.
_ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "TOKENIZERS_PARALLELISM": "true"}


def settle_environment() -> None:
    """Set what torch reads once, when it is imported. What the person has set stays."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def import_torch() -> None:
    """Torch before Qt (on Windows its libraries do not load after Qt's), with one core left for the window."""
    from circuitlab.errors import BadMachine

    try:
        import torch
    except (ImportError, OSError) as error:
        raise BadMachine(
            f"The library torch cannot be imported: {error}",
            remedy="install what constraints.txt pins, torch first; `circuitlab doctor` says what is there",
        ) from error
    torch.set_num_threads(max(1, (os.cpu_count() or 1) - 1))


def open_or_render(
    source: str = DEFAULT_MODEL, text: str | None = None, picture: Path = PICTURE, assume: tuple[tuple[str, str], ...] = ()
) -> int:
    """Open the window on `source`; where there is no display, paint the same window into `picture` and say why.

    `text` None is the sample text; `assume` what the model's files leave open. Returns the exit status.
    """
    from circuitlab import probe

    settle_environment()
    plan = probe.display_plan()
    if plan.kind == "picture":
        os.environ["QT_QPA_PLATFORM"] = "offscreen"
    probe.require_qt()
    import_torch()
    from circuitlab.gui.shell import main as window

    if plan.kind == "window":
        return window.open_window(source, text, assume) if assume else window.open_window(source, text)
    window.render_window(picture, source, text)
    print(f"{plan.reason} The window was painted into {picture.resolve()} instead.", file=sys.stderr)
    return 0
