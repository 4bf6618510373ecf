"""Start-up of the window: environment, probe, torch before Qt, then the window or a picture of it.

`circuitlab.__main__` calls `settle_environment` before any other import; the command line calls `open_or_render`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from circuitlab.errors import BadMachine
from circuitlab.interrupts import starting, uncollected

DEFAULT_MODEL = "builtin:attn-only-2l"
PICTURE = Path("circuitlab.png")

# libgomp threads that wait by spinning are slow beside a busy process: 0.2 s of small matrix products took 9 to 36 s.
# Once tokenizers has worked in parallel, it warns at every new process unless TOKENIZERS_PARALLELISM is set.
_ENVIRONMENT = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "TOKENIZERS_PARALLELISM": "true"}


def settle_environment() -> None:
    """Set variables that torch reads once, on import. Values that the user has set are kept."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def import_torch() -> None:
    """Import torch before Qt (on Windows its libraries do not load after Qt's) and leave one core to the window."""
    try:
        import torch
    except (ImportError, OSError) as error:
        raise BadMachine(
            f"The library torch cannot be imported: {error}",
            remedy="Install the versions in constraints.txt, torch first; `circuitlab doctor` shows what is installed.",
        ) from error
    torch.set_num_threads(max(1, (os.cpu_count() or 1) - 1))


def open_or_render(
    source: str | None = None,
    text: str | None = None,
    picture: Path = PICTURE,
    assume: tuple[tuple[str, str], ...] = (),
    lesson: str = "",
) -> int:
    """Open the window on `source`, None: where one stopped; without a display, paint a window into `picture` and say why.

    `text` None is the sample text; `assume`: values that the model's files do not state; `lesson`: the name of one that is begun.
    Returns the exit status.
    """
    from circuitlab import probe

    settle_environment()
    plan = probe.display_plan()
    if plan.kind == "picture":
        os.environ["QT_QPA_PLATFORM"] = "offscreen"
    probe.require_qt()
    with uncollected():  # also between the imports and the window
        with starting():
            import_torch()
            from circuitlab.gui.shell import main as window

        if plan.kind == "window":
            return window.open_window(source, text, assume, lesson)
    window.render_window(picture, source or DEFAULT_MODEL, text)
    print(f"{plan.reason} The window was painted into {picture.resolve()} instead.", file=sys.stderr)
    return 0


def present(
    session: Path,
    screen: int | None = None,
    windowed: bool = False,
    first: int = 1,
    dark: bool = False,
    minutes: int | None = None,
) -> int:
    """Open the window on a session and present its story; see `gui/shell/present.py`. Returns the exit status.

    Raises `BadMachine` where there is no display.
    """
    from circuitlab import probe

    settle_environment()
    plan = probe.display_plan()
    if plan.kind == "picture":
        raise BadMachine("A talk needs a display.", got=plan.reason, remedy="Present where there is one: `circuitlab doctor`.")
    probe.require_qt()
    with uncollected():
        with starting():
            import_torch()
            from circuitlab.gui.shell import present as presenting

        return presenting.present(session, screen, windowed, first, dark, minutes)
