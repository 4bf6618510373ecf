"""Text documents that load nothing: a picture in a text of another's would be read from any disk, device or host it names."""

from __future__ import annotations

from PySide6.QtCore import QObject, Qt, QUrl
from PySide6.QtGui import QImage, QTextDocument


def nothing() -> QImage:
    """What stands for a picture: one point that is not seen. For a value of none, Qt would look for the file itself."""
    image = QImage(1, 1, QImage.Format.Format_ARGB32)
    image.fill(Qt.GlobalColor.transparent)
    return image


class ClosedDocument(QTextDocument):
    """A document in which every picture, style sheet and page that is named is nothing."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)

    def loadResource(self, type: int, name: QUrl | str) -> object:
        """Never what it names."""
        return nothing() if type == QTextDocument.ResourceType.ImageResource.value else ""
