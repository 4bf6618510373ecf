"""“Open from the hub…”: a name, a revision and the plan of a download; then its progress, with stop and resume.

A repository of several GGUF models shows them in a row to choose from, once the hub or the cache has said which there are.

Everything that uses the network runs on a lane of its own. A model in the cache opens without the network.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import Qt, Slot
from PySide6.QtGui import QCloseEvent
from PySide6.QtWidgets import QComboBox, QFormLayout, QHBoxLayout, QProgressBar, QPushButton, QVBoxLayout, QWidget

from circuitlab.counting import number_of
from circuitlab.errors import Cancelled, CircuitLabError, SeveralModels
from circuitlab.gui.shell.opening import Opening
from circuitlab.gui.widgets.dialog import Dialog
from circuitlab.gui.widgets.form import Field, Form
from circuitlab.gui.widgets.labels import paragraph
from circuitlab.gui.work.job import Job
from circuitlab.gui.work.work_slot import WorkSlot
from circuitlab.model.origin import Hub
from circuitlab.model.sources.hub import HubName, cache_folder, snapshot

REVISION_TIP = "A branch, tag or commit. Training checkpoints are often branches, such as step1000"
UNCHOSEN = {"": "Choose one of its models"}
FIELDS = (
    Field("model", "Model of the hub", placeholder="OWNER/NAME, for instance EleutherAI/pythia-70m", live=True),
    Field("revision", "Revision", tip=REVISION_TIP, choices={"main": "main"}, style="free"),
    Field("form", "Weights", tip="One of the GGUF models of the repository", choices=UNCHOSEN),
)


class HubDialog(Dialog):
    """The dialog. `opening` opens the downloaded model."""

    usual = (520, 0)

    def __init__(self, opening: Opening, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Open from the hub")
        self.opening, self.runner = opening, opening.context.runner
        self.plan: object | None = None
        self._make_fields()
        self._lay_out()
        self._lookup_slot = WorkSlot(self, finished=self._lookup_finished, failed=self._failed)
        self._download_slot = WorkSlot(self, finished=self._download_finished, failed=self._failed)
        self.runner.jobs_changed.connect(self._show_progress)
        self._refresh()

    # -- widgets and layout -------------------------------------------------------------------------------------------

    def _make_fields(self) -> None:
        self.form = Form(FIELDS, self)
        self.form.changed.connect(self._name_changed)
        self.name, self.revision = self.form.widgets["model"], self.form.widgets["revision"]
        self.weights = self.form.widgets["form"]
        self.weights.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)  # names may be long
        self.status = paragraph(self)
        self.status.setMinimumHeight(4 * self.fontMetrics().lineSpacing())
        self.status.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.bar = QProgressBar(self)
        self.bar.setRange(0, 1000)
        self.bar.setTextVisible(False)
        self.look = QPushButton("Look up", self)
        self.look.clicked.connect(self.look_up)
        self.get = QPushButton("Download and open", self)
        self.primary = self.get
        self.get.clicked.connect(self.go)
        self.stop = QPushButton("Stop", self)
        self.stop.clicked.connect(self.cancel)
        self.shut = QPushButton("Close", self)
        self.shut.clicked.connect(self.close)

    def _lay_out(self) -> None:
        first = QHBoxLayout()
        first.addWidget(self.name, 1)
        first.addWidget(self.look)
        self.rows = form = QFormLayout()
        form.setHorizontalSpacing(16)
        form.setVerticalSpacing(8)
        form.addRow("Model", first)
        form.addRow("Revision", self.revision)
        form.addRow("Weights", self.weights)
        form.setRowVisible(self.weights, False)
        buttons = QHBoxLayout()
        buttons.addStretch(1)
        for button in (self.shut, self.stop, self.get):
            buttons.addWidget(button)
        box = QVBoxLayout(self)
        box.setContentsMargins(24, 16, 24, 16)
        box.setSpacing(12)
        box.addLayout(form)
        box.addWidget(self.bar)
        box.addWidget(self.status)
        box.addLayout(buttons)

    # -- looking up and downloading-------------------------------------------------------------------------------------------

    def chosen_name(self) -> HubName | None:
        """The model that the fields name; None while they hold no valid name. What is typed with the name comes first."""
        typed = self.form.value("model").strip()
        revised, colon, form = typed.partition(":")
        repo, at, revision = revised.partition("@")
        revision = revision if at else self.form.value("revision").strip() or "main"
        form = form if colon else self.form.value("form")
        try:
            return HubName.parse(f"{repo}@{revision}:{form}" if colon or form else f"{repo}@{revision}")
        except CircuitLabError:
            return None

    def start(self, name: HubName) -> None:
        """Fill in the fields, then open or download the model."""
        self.name.setText(str(replace(name, revision="main")))
        self.revision.setCurrentText(name.revision)
        self.go()

    @Slot()
    def look_up(self) -> None:
        """Ask the hub for the revisions of the model and the files of the chosen one."""
        name = self.chosen_name()
        if name is None:
            return

        def work(job: Job) -> object:
            from circuitlab.model.sources.hub_download import plan, revisions

            result = revisions(name.repo, job.cancelled.is_set)
            try:
                return result, plan(name, job.cancelled.is_set)
            except SeveralModels as several:
                return result, several

        self.status.setText(f"Asking the hub about {name}…")
        self.runner.do(self._lookup_slot, f"look up {name}", work, "net")
        self._refresh()

    @Slot()
    def go(self) -> None:
        """Open the model, after a download unless it is in the cache."""
        name = self.chosen_name()
        if name is None:
            return
        if snapshot(name) is not None:
            self._open(name)
            return

        def work(job: Job) -> Path:
            from circuitlab.model.sources.hub_download import Progress, fetch, plan

            def report(progress: Progress) -> None:
                share = 1000 * progress.done // max(1, progress.total)
                self.runner.report_progress(job, share, 1000, str(progress))

            return fetch(plan(name, job.cancelled.is_set), report, job.cancelled.is_set)

        self.status.setText(f"Downloading {name} into {cache_folder()}")
        self.runner.do(self._download_slot, f"download {name}", work, "net")
        self._refresh()

    @Slot()
    def cancel(self) -> None:
        """Stop the download; the files and parts fetched so far are kept."""
        self.runner.cancel_slot(self._download_slot)
        self.runner.cancel_slot(self._lookup_slot)
        self._refresh()

    def _open(self, name: HubName) -> None:
        self.opening.open(str(Hub(str(name))))
        self.accept()

    # -- answers ------------------------------------------------------------------------------------------------------

    @Slot(object)
    def _lookup_finished(self, revisions_and_plan: tuple[tuple[str, ...], object]) -> None:
        self._show_plan(*revisions_and_plan)
        self._refresh()

    @Slot()
    def _download_finished(self) -> None:
        if (name := self.chosen_name()) is not None:
            self._open(name)
        self._refresh()

    def _show_plan(self, revisions: tuple[str, ...], plan: object) -> None:
        from circuitlab.model.sources.hub_download import Plan

        self.form.offer_choices("revision", {name: name for name in (*revisions, self.form.value("revision"))})
        if isinstance(plan, SeveralModels):
            self._offer(plan)
            return
        assert isinstance(plan, Plan)
        place = "in the local cache" if snapshot(plan.name) else f"downloads to {cache_folder()}"
        more = f"; {number_of(len(revisions), 'revision')} to choose from" if len(revisions) > 1 else ""
        self.status.setText(f"{plan.name}: {number_of(len(plan.files), 'file')}, {plan.total / 2**20:,.1f} MiB, {place}{more}.")

    def _offer(self, several: SeveralModels) -> None:
        """Show the row of the repository's models, in place of what a name typed with them would say."""
        typed = self.form.value("model")
        self.name.setText(typed.partition(":")[0])
        self.form.offer_choices("form", UNCHOSEN | dict(zip(several.models, several.lines, strict=False)))
        self.rows.setRowVisible(self.weights, True)
        self.status.setText(f"{several.what} Choose one under Weights.")
        self.weights.setFocus()

    def _withdraw(self) -> None:
        """Take the row away: another repository is named."""
        self.form.offer_choices("form", UNCHOSEN)
        self.rows.setRowVisible(self.weights, False)

    @Slot(object)
    def _failed(self, error: object) -> None:
        if isinstance(error, SeveralModels):
            self._offer(error)
            self._refresh()
            return
        stopped = "Stopped. The data so far is kept; “Download and open” resumes the download."
        self.status.setText(stopped if isinstance(error, Cancelled) else str(error))
        self._refresh()

    @Slot()
    def _show_progress(self) -> None:
        job = next((j for j in self.runner.jobs if j.slot is self._download_slot), None)
        if job is not None and job.total and self.isVisible():
            self.bar.setValue(job.done)
            self.status.setText("Stopping…" if job.cancelled.is_set() else job.text)

    @Slot(str)
    def _name_changed(self, field: str = "") -> None:
        if field in ("model", "revision"):
            self._withdraw()
        name = self.chosen_name()
        cached = name is not None and snapshot(name) is not None
        self.status.setText("In the local cache: opens without the network." if cached else "")
        self._refresh()

    def _refresh(self) -> None:
        name, fetching = self.chosen_name(), self.runner.is_busy(self._download_slot)
        cached = name is not None and snapshot(name) is not None
        self.get.setText("Open" if cached else "Download and open")
        unchosen = self.weights.count() > 1 and name is not None and not name.form
        self.get.setEnabled(name is not None and not fetching and not unchosen)
        self.look.setEnabled(name is not None and not fetching and not self.runner.is_busy(self._lookup_slot))
        self.stop.setEnabled(fetching or self.runner.is_busy(self._lookup_slot))
        for field in (self.name, self.revision, self.weights):
            field.setEnabled(not fetching)
        self.bar.setVisible(fetching)

    def closeEvent(self, event: QCloseEvent) -> None:
        """Close the dialog only: a download continues, is listed in the Jobs panel, and reopening the dialog shows it."""
        super().closeEvent(event)
