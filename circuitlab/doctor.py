"""`circuitlab doctor`: libraries, devices and display of this installation, on one page to read or paste into a bug report.

Everything that could fail or abort (importing torch or Qt, loading a platform plugin) runs in subprocesses, so that the page is
complete even if CircuitLab itself cannot start. Standard library only.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

from circuitlab import __version__, plugins, probe
from circuitlab.child_process import finished, python
from circuitlab.counting import number_of
from circuitlab.disk import paths

PACKAGES = ("torch", "numpy", "safetensors", "tokenizers", "PySide6-Essentials", "pyqtgraph")
_MODULES = {"PySide6-Essentials": "PySide6.QtWidgets"}  # modules not named like their package

GIB = 2**30
_TORCH = """
import json, os, torch
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
cuda = [(p.name, p.total_memory) for p in map(torch.cuda.get_device_properties, range(count))]
mps = bool(getattr(torch.backends, "mps", None)) and torch.backends.mps.is_available()
room = torch.mps.recommended_max_memory() if mps else 0
print(json.dumps({"threads": torch.get_num_threads(), "cuda": cuda, "mps": mps, "room": room}))
"""
# Through the registries, as anything else asks for them: a plug-in that ends the process ends this one.
_PLUGIN = """
import sys
from circuitlab.analysis.base import find_analysis
from circuitlab.errors import CircuitLabError
from circuitlab.figures.contracts.panel import find_panel
from circuitlab.plugins import adding, load
for kind, name in {additions!r}:
    try:
        if kind == "families":
            [load(one) for one in adding(kind, name) if str(one.plugin) == {plugin!r}]
        elif str((found := (find_analysis if kind == "analyses" else find_panel)(name)).plugin) != {plugin!r}:
            sys.exit(f"there is another {{name}}, of {{found.plugin or 'CircuitLab itself'}}")
    except CircuitLabError as error:
        sys.exit(f"{{error.what}} {{error.got}}".strip())
"""


@dataclass(frozen=True)
class Package:
    """One library: its installed version ("" if none) and why it cannot be imported ("" if it can)."""

    name: str
    version: str
    problem: str


@dataclass(frozen=True)
class PluginFound:
    """A plug-in: what it adds, as "analysis token_runs", and why it cannot be imported ("" if it can)."""

    name: str
    version: str
    adds: tuple[str, ...]
    problem: str


@dataclass(frozen=True)
class Report:
    """The report of `circuitlab doctor`. `devices` are lines of text; `ok`: a window or a picture of it can be made."""

    circuitlab: str
    python: str
    system: str
    packages: tuple[Package, ...]
    devices: tuple[str, ...]
    plan: probe.Plan
    window: probe.Probe
    models: tuple[str, ...]
    paths: Mapping[str, str]
    plugins: tuple[PluginFound, ...] = ()

    @property
    def ok(self) -> bool:
        return self.window.ok and not any(package.problem for package in self.packages)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "the process ended without a message"


def _child(code: str) -> tuple[bool, str]:
    """Run `code` in a subprocess: whether it succeeded, and its output or the last line of its error."""
    try:
        status, output, errors = finished(python("-c", code), 120)
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, str(error)
    return (True, output) if status == 0 else (False, _last_line(errors))


def _package(name: str) -> Package:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Package(name, "", "not installed")
    succeeded, problem = _child(f"import {_MODULES.get(name, name)}")
    return Package(name, version, "" if succeeded else problem)


def _plugins() -> tuple[PluginFound, ...]:
    """Every plug-in, imported in a process of its own."""
    every: dict[plugins.Plugin, list[plugins.Addition]] = {}
    for one in plugins.declared():
        every.setdefault(one.plugin, []).append(one)
    result = []
    for plugin, additions in every.items():
        succeeded, output = _child(_PLUGIN.format(additions=[(one.kind, one.name) for one in additions], plugin=str(plugin)))
        adds = tuple(f"{plugins.SINGULAR[one.kind]} {one.name}" for one in additions)
        result.append(PluginFound(plugin.name, plugin.version, adds, "" if succeeded else output))
    return (*result, *(PluginFound(problem, "", (), "it cannot be read") for problem in plugins.problems()))


def _main_memory() -> str:
    try:
        return f", {os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / GIB:.1f} GiB"
    except (AttributeError, OSError, ValueError):  # not available on Windows
        return ""


def _devices() -> tuple[str, ...]:
    succeeded, out = _child(_TORCH)
    if not succeeded:
        return (f"unknown, as torch fails: {out}",)
    devices = json.loads(_last_line(out))
    lines = [f"cpu: {number_of(os.cpu_count() or 1, 'core')}, {number_of(devices['threads'], 'torch thread')}{_main_memory()}"]
    lines += [
        f"{'cuda' if i == 0 else f'cuda:{i}'}: {name}, {room / GIB:.1f} GiB" for i, (name, room) in enumerate(devices["cuda"])
    ]
    lines += [f"mps: Apple GPU, {devices['room'] / GIB:.1f} GiB"] if devices["mps"] else []
    return tuple(lines)


def _window(plan: probe.Plan) -> probe.Probe:
    env = dict(os.environ)
    if plan.kind == "picture":
        env["QT_QPA_PLATFORM"] = "offscreen"
    return probe.probe(env, torch=False)


def examine() -> Report:
    """The whole report; takes a few seconds, most of them for importing torch."""
    plan = probe.display_plan()
    with ThreadPoolExecutor(2) as pool:
        devices, window = pool.submit(_devices), pool.submit(_window, plan)
        packages = tuple(pool.map(_package, PACKAGES))
    return Report(
        circuitlab=__version__,
        python=f"{platform.python_version()} ({sys.executable})",
        system=platform.platform(),
        packages=packages,
        devices=devices.result(),
        plan=plan,
        window=window.result(),
        models=paths.shipped_models(),
        paths={
            "resources": str(paths.shipped("resources")),
            "models": str(paths.shipped("models")),
            "settings": str(paths.config_home()),
            "log": str(paths.log_file()),
            "cache": str(paths.cache_home()),
            "fetched": str(paths.data_home()),
        },
        plugins=_plugins(),
    )


def _display_lines(report: Report) -> list[str]:
    kind = "a window" if report.plan.kind == "window" else "no window, a picture instead"
    lines = [f"{kind}. {report.plan.reason}".rstrip(". ") + "."]
    if report.window.ok:
        return [*lines, f"Qt's platform plugin {report.window.platform} works."]
    lines.append(f"Qt's platform plugin cannot be loaded: {report.window.problem}")
    lines += [f"missing libraries: {' '.join(report.window.libraries)}"] if report.window.libraries else []
    return [*lines, f"do: {report.window.error().remedy}"]


def as_text(report: Report) -> str:
    """The page: one fact per line, names in the first column."""
    rows: list[tuple[str, str]] = [
        ("circuitlab", report.circuitlab),
        ("python", report.python),
        ("system", report.system),
    ]
    for package in report.packages:
        fault = f"cannot be imported: {package.problem}" if package.version and package.problem else package.problem
        rows.append((package.name, f"{package.version}  {fault}".strip()))
    rows += [("device", line) for line in report.devices]
    rows += [("display", line) for line in _display_lines(report)]
    for one in report.plugins:
        fault = f"cannot be imported: {one.problem}" if one.problem else ""
        rows.append(("plug-in", "  ".join(filter(None, (f"{one.name} {one.version}".strip(), ", ".join(one.adds), fault)))))
    rows.append(("shipped models", ", ".join(report.models) or f"none in {report.paths['models']}"))
    rows += list(report.paths.items())
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def as_json(report: Report) -> str:
    """The report as JSON; `ok`: whether CircuitLab can run here."""
    return json.dumps({"ok": report.ok, **asdict(report)}, indent=2, ensure_ascii=False)


def run(json_output: bool = False) -> int:
    """Print the page. Exit status 0, or 3 if a library is missing or Qt cannot start."""
    report = examine()
    print(as_json(report) if json_output else as_text(report))
    return 0 if report.ok else 3
