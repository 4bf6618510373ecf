"""Executes a notebook in a kernel of its own: `python run_notebook.py NOTEBOOK OUTPUT CELL…`, with these cells behind its own.

A program, not a test: threads and sockets of a kernel's client end with it. Then a computation is interrupted in another kernel.
`python run_notebook.py --store NOTEBOOK` (`make notebook`) executes it where it stands, as the repository keeps it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from jupyter_client.manager import start_new_kernel
from nbclient import NotebookClient

LONG = """
import circuitlab.api as lab
model = lab.open("attn-only-2l")
model.compute("head_scores", set={"samples": 3000})
"""
AFTER = 'print(model.compute("token_loss", text="a b a b").result.loss.size, len(vars(model.engine._in_flight)["_holders"]))'


def executed(source: str, output: str, cells: list[str]) -> None:
    notebook = nbformat.read(source, as_version=4)
    notebook.cells += [nbformat.v4.new_code_cell(cell) for cell in cells]
    NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    nbformat.write(notebook, output)


def store(path: Path) -> None:
    """Execute the notebook at an absolute path and keep what its cells show: without times, without the progress of what takes
    long on this machine, and without the page of a report, which repeats all figures.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.ipynb"
        os.chdir(folder)  # what the cells write goes with it
        executed(str(path), str(out), [])
        os.chdir(path.parent)
        notebook = json.loads(out.read_text(encoding="utf-8"))
    notebook["metadata"]["language_info"] = {"name": "python"}
    for cell in notebook["cells"]:
        cell["metadata"] = {}
        if "outputs" in cell:
            cell["outputs"] = [output for output in cell["outputs"] if output["output_type"] != "stream"]
        for output in cell.get("outputs", ()):
            if "<iframe" in "".join(output["data"].get("text/html", "")):
                del output["data"]["text/html"]
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")


def interrupted() -> dict[str, str]:
    """What a kernel says of long work that is interrupted once its progress is shown, and of the work behind it."""
    manager, client = start_new_kernel(kernel_name="python3")
    try:
        request = client.execute(LONG, stop_on_error=False)  # else what comes soon after an error may be dropped with it
        shown = ""
        while "%|" not in shown and "/" not in shown:
            message = client.get_iopub_msg(timeout=120)
            shown += message["content"].get("text", "") if message["msg_type"] == "stream" else ""
            if message["msg_type"] == "error":
                raise SystemExit("\n".join(message["content"]["traceback"]))
        manager.interrupt_kernel()
        began = time.monotonic()
        reply = client.get_shell_msg(timeout=120)
        while reply["parent_header"].get("msg_id") != request:
            reply = client.get_shell_msg(timeout=120)
        waited = time.monotonic() - began
        after: list[str] = []
        reply_after = client.execute_interactive(
            AFTER, timeout=120, output_hook=lambda m: after.append(m["content"].get("text", ""))
        )
        if reply_after["content"]["status"] != "ok":
            after.append(json.dumps(reply_after["content"]))
        return {"shown": shown, "error": reply["content"].get("ename", ""), "after": "".join(after), "waited": f"{waited:.1f}"}
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


if __name__ == "__main__":
    if sys.argv[1] == "--store":
        store(Path(sys.argv[2]).resolve())
        raise SystemExit
    executed(sys.argv[1], sys.argv[2], sys.argv[3:])
    print(json.dumps(interrupted()))
