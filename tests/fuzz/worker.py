"""The warm process that opens mutated models: one request a line on a pipe, one outcome a line back.

Its standard output and error go to a file of their own, whose growth is reported: a console stays quiet, whatever a file holds.
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
import time
import traceback
from pathlib import Path
from typing import Any

GIB = 2**30
PROCESSOR = 60  # s of the processor for one file: no clock, so that a busy machine is no failure
_NAMES = re.compile(r"[\w.-]+\.(?:json|safetensors|bin|pth?|py)\b|\b\w+(?:\.\w+)+\b|\b\d+\b")


def _status(field: str) -> int:
    """Bytes of one line of /proc/self/status."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return 1024 * int(line.split()[1])
    return 0


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _cut(path: Path) -> None:
    """Cut every weight file below `path` short in place, as a writer would."""
    for file in path.rglob("*") if path.is_dir() else (path,):
        if file.is_file() and file.suffix in (".safetensors", ".bin", ".pt", ".pth", ".gguf"):
            os.truncate(file, file.stat().st_size // 3)


def _tried(path: Path, mapped: bool, cut: bool) -> str:
    """Open it and answer three tokens. Raises what comes."""
    import torch

    from circuitlab.engine.store import ModelStore
    from circuitlab.model.forward import forward
    from circuitlab.model.subject import Conventions, ModelRef

    store = ModelStore(largest_copy=0 if mapped else GIB)
    model = store.open(ModelRef(f"file:{path}"))
    if cut:
        with torch.inference_mode():
            forward(model.opened.weights, (0,))  # so that it is mapped by now
        _cut(path)
    with torch.inference_mode():
        weights = model.weights(Conventions())
        config = weights.config
        tokens = tuple(i % config.d_vocab for i in range(min(3, config.n_ctx)))
        logits = forward(weights, tokens).logits()
    assert logits.shape == (len(tokens), config.d_vocab_out)
    return "opened" if bool(torch.isfinite(logits).all()) else "opened, but finite weights give logits that are not"


def _outcome(path: Path, mapped: bool, cut: bool) -> dict[str, Any]:
    from circuitlab.errors import CircuitLabError

    try:
        return {"kind": _tried(path, mapped, cut)}
    except CircuitLabError as error:
        text = str(error)
        kind = f"{type(error).__name__}: {_NAMES.sub('…', error.what)}"
        faults = [] if error.expected and error.got else ["says not what was expected or what came"]
        faults += ["is no text"] if any(0xD800 <= ord(c) < 0xE000 or (c < " " and c != "\n") for c in text) else []
        faults += ["is endless"] if len(text) > 4000 else []
        return {"kind": kind, "text": text, **({"failed": f"the error {', '.join(faults)}"} if faults else {})}
    except BaseException as error:
        return {"kind": f"crash: {type(error).__name__}", "failed": traceback.format_exc()[-3000:]}


def main() -> None:
    requests, answers, noise = os.fdopen(int(sys.argv[1]), "rb"), os.fdopen(int(sys.argv[2]), "wb"), Path(sys.argv[3])
    console = os.open(noise, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(console, 1)
    os.dup2(console, 2)
    import torch

    import circuitlab.engine.store
    import circuitlab.model.forward  # noqa: F401

    torch.set_num_threads(1)
    limit = _status("VmSize") + 6 * GIB  # beyond what is judged below: so that nothing takes the machine with it
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    answers.write(b'{"ready": true}\n')
    answers.flush()
    for line in requests:
        request = json.loads(line)
        heard = noise.stat().st_size
        _forget_peak()
        before, began = _status("VmRSS"), time.process_time()
        most = int(began) + PROCESSOR  # where it is not over by then, the system ends this process
        resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))
        path = Path(os.fsdecode(bytes.fromhex(request["path"])))
        outcome = _outcome(path, request["mapped"], request["cut"])
        outcome |= {"seconds": time.process_time() - began, "bytes": max(0, _status("VmHWM") - before)}
        if noise.stat().st_size > heard:
            with noise.open("rb") as file:
                file.seek(heard)
                outcome.setdefault("failed", "noise on the console: " + file.read(500).decode("utf-8", "replace"))
        answers.write(json.dumps(outcome).encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
