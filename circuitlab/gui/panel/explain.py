"""The Explain dialog: what a panel shows, its equation, the shapes of its symbols in this model, its source."""

from __future__ import annotations

import re

from PySide6.QtCore import Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QDialogButtonBox, QGridLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from circuitlab.counting import number_of
from circuitlab.draw.look.theme import Theme
from circuitlab.figures.contracts.panel import Facts, Panel
from circuitlab.gui.widgets.dialog import Dialog
from circuitlab.gui.widgets.labels import paragraph

# The symbols of the panels' equations: what each is, and its shape in the names of the configuration.
SYMBOLS = {
    "x": ("residual stream", "n × d_model"),
    "W_Q": ("query weights, each head", "d_model × d_head"),
    "W_K": ("key weights, each key head", "d_model × d_head"),
    "W_V": ("value weights, each key head", "d_model × d_head"),
    "W_O": ("output weights, each head", "d_head × d_model"),
    "W_OV": ("W_V W_O, what a head moves, of rank d_head", "d_model × d_model"),
    "W_QK": ("W_Q W_Kᵀ, what a head looks for, of rank d_head", "d_model × d_model"),
    "A": ("attention pattern, each head", "n × n"),
    "W_E": ("embedding", "d_vocab × d_model"),
    "W_U": ("unembedding", "d_model × d_vocab_out"),
}


def shapes(panel: Panel, facts: Facts, n_tokens: int) -> tuple[tuple[str, str, str, str], ...]:
    """(symbol, what it is, its shape in names, its shape in numbers) of each symbol in the panel's equation."""
    c = facts.config
    numbers = {"n": n_tokens, "d_model": c.d_model, "d_head": c.d_head, "d_vocab": c.d_vocab, "d_vocab_out": c.d_vocab_out}
    rows = []
    for symbol, (meaning, names) in SYMBOLS.items():
        if re.search(rf"(?<![A-Za-z_]){symbol}(?![A-Za-z_])", panel.equation):
            rows.append((symbol, meaning, names, " × ".join(f"{numbers[name]:,}" for name in names.split(" × "))))
    return tuple(rows)


def explanation(panel: Panel, facts: Facts, n_tokens: int, caption: str = "") -> str:
    """The content of the dialog as plain text."""
    c = facts.config
    lines = [panel.title, "", panel.help, "", panel.equation, ""]
    lines += [f"{s}: {meaning}, {names} = {numbers}" for s, meaning, names, numbers in shapes(panel, facts, n_tokens)]
    lines += [f"{number_of(c.n_layers, 'layer')} × {number_of(c.n_heads, 'head')} · score scale {c.score_scale:.4g}"]
    lines += ["", f"Conventions: {caption}"] if caption else []
    return "\n".join([*lines, "", f"Source: {panel.source}"])


class ExplainDialog(Dialog):
    """See the module; all its text can be selected and copied."""

    usual = (480, 0)

    def __init__(self, panel: Panel, facts: Facts, n_tokens: int, caption: str, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle(f"Explain: {panel.title}")
        self.text = explanation(panel, facts, n_tokens, caption)
        c = facts.config
        box = QVBoxLayout(self)
        box.setContentsMargins(24, 16, 24, 16)
        box.setSpacing(12)
        box.addWidget(self._paragraph(panel.help))
        equation = self._paragraph(panel.equation, "equation")
        equation.setFont(theme.font(mono=True))
        box.addWidget(equation)
        grid = QGridLayout()
        grid.setHorizontalSpacing(16)
        for row, cells in enumerate(shapes(panel, facts, n_tokens)):
            for column, cell in enumerate(cells):
                label = self._paragraph(cell, "caption" if column in (1, 2) else "")
                label.setWordWrap(False)
                if column in (0, 3):
                    label.setFont(theme.font(mono=True))
                grid.addWidget(label, row, column)
        grid.setColumnStretch(3, 1)
        box.addLayout(grid)
        scale = f"{number_of(c.n_layers, 'layer')} × {number_of(c.n_heads, 'head')} · score scale {c.score_scale:.4g}"
        box.addWidget(self._paragraph(f"{facts.name}: {scale}", "caption"))
        if caption:
            box.addWidget(self._paragraph(f"Conventions: {caption}", "caption"))
        box.addWidget(self._paragraph(f"Source: {panel.source}", "caption"))
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Close, self)
        buttons.rejected.connect(self.accept)
        copy = QPushButton("Copy", self)
        copy.clicked.connect(self.copy)
        buttons.addButton(copy, QDialogButtonBox.ButtonRole.ActionRole)
        box.addWidget(buttons)

    def _paragraph(self, text: str, role: str = "") -> QLabel:
        label = paragraph(self, role)
        label.setText(text)
        return label

    @Slot()
    def copy(self) -> None:
        """Copy the content as plain text."""
        QGuiApplication.clipboard().setText(self.text)
