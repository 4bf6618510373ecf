"""The Jobs panel: each job with its progress, its time and a button that cancels it; processes that outlive the window; and the
memory in use.
"""

from __future__ import annotations

import time

from PySide6.QtCore import QTimer, Slot
from PySide6.QtWidgets import QDockWidget, QFrame, QHBoxLayout, QScrollArea, QToolButton, QVBoxLayout, QWidget

from circuitlab.counting import number_of
from circuitlab.draw.look.plain_text import PlainLabel
from circuitlab.engine.memory_report import holding, size
from circuitlab.gui.docks.process_row import ProcessRow
from circuitlab.gui.panel.title_bar import TitleBar
from circuitlab.gui.widgets.labels import ShortLabel
from circuitlab.gui.work.app_context import AppContext
from circuitlab.gui.work.job import Job


class JobRow(QWidget):
    """A job, and the button that cancels it."""

    def __init__(self, context: AppContext, parent: QWidget) -> None:
        super().__init__(parent)
        self.context, self.job = context, None  # type: ignore[var-annotated]
        self.label = ShortLabel(self, fills=True)
        self.stop = QToolButton(self)
        self.stop.setText("Cancel")
        self.stop.setProperty("role", "primary")
        self.stop.clicked.connect(self._cancel)
        box = QHBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.addWidget(self.label, 1)
        box.addWidget(self.stop)

    def show_job(self, job: Job) -> None:
        """Show a job's progress, time and memory."""
        self.job = job
        progress = f" {job.done}/{job.total}" if job.total else ""
        age = f" · {time.monotonic() - job.started_at:.1f} s" if job.started_at else " · waiting"
        needs = f" · needs {job.memory / 2**20:,.0f} MiB" if job.memory else ""
        self.stop.setAccessibleName(f"Cancel {job.title}")
        self.label.setText(f"{job.title}{progress} {job.text}{age}{needs}")

    @Slot()
    def _cancel(self) -> None:
        if self.job is not None:
            self.context.runner.cancel(self.job)


class JobsDock(QDockWidget):
    """See the module."""

    def __init__(self, context: AppContext, parent: QWidget | None = None) -> None:
        super().__init__("Jobs", parent)
        self.setObjectName("dock.jobs")
        self.context = context
        body = QWidget(self)
        self.box = QVBoxLayout(body)
        self.box.setContentsMargins(8, 8, 8, 8)
        self.memory = PlainLabel(body)
        self.memory.setProperty("role", "caption")
        self.memory.setWordWrap(True)
        self.idle = PlainLabel("Nothing is running.", body)
        self.rows: list[JobRow] = []
        self.processes: list[ProcessRow] = []
        self.box.addWidget(self.idle)
        self.box.addStretch(1)
        self.box.addWidget(self.memory)
        scroll = QScrollArea(self)  # many jobs must not push the other docks about
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        scroll.setWidgetResizable(True)
        scroll.setAccessibleName(self.windowTitle())
        scroll.setMinimumHeight(60)
        scroll.setWidget(body)
        self.setWidget(scroll)
        self.bar = TitleBar(self, context)
        self.refresh_timer = QTimer(self)
        self.refresh_timer.setSingleShot(True)
        self.refresh_timer.setInterval(100)
        self.refresh_timer.timeout.connect(self.refresh)
        context.runner.jobs_changed.connect(self._changed)
        context.processes.changed.connect(self._changed)
        self.refresh()

    @Slot()
    def _changed(self) -> None:
        if not self.refresh_timer.isActive():
            self.refresh_timer.start()

    @Slot()
    def refresh(self) -> None:
        """List the present jobs."""
        jobs = self.context.runner.jobs
        while len(self.rows) > len(jobs):
            row = self.rows.pop()
            self.box.removeWidget(row)
            row.deleteLater()
        while len(self.rows) < len(jobs):
            self.rows.append(JobRow(self.context, self))
            self.box.insertWidget(len(self.rows) - 1, self.rows[-1])
        for row, job in zip(self.rows, jobs, strict=True):
            row.show_job(job)
        self._refresh_processes()
        self.idle.setVisible(not jobs and not self.processes)
        engine = self.context.engine
        held = holding(engine)
        prepared = f" · prepared or stored: {size(held.prepared)}" if held.prepared else ""
        self.memory.setText(
            f"{number_of(held.n_models, 'model')} open: {size(held.models)}"
            f" · cached results and runs: {size(held.cached)} of {size(engine.cache.limit)}{prepared} · "
            f"budget {engine.memory / 2**30:.1f} GiB"
        )

    def _refresh_processes(self) -> None:
        """List the processes of their own below the jobs."""
        there = self.context.processes.all
        for row in [row for row in self.processes if row.process not in there]:
            self.processes.remove(row)
            self.box.removeWidget(row)
            row.deleteLater()
        known = [row.process for row in self.processes]
        for process in there:
            if process not in known:
                self.processes.append(ProcessRow(process, self.context, self))
                self.box.insertWidget(len(self.rows) + len(self.processes) - 1, self.processes[-1])
        for row in self.processes:
            row.refresh()
