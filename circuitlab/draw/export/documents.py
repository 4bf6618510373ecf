"""A PDF of several pages, the same bytes for the same pages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QMarginsF, QUuid
from PySide6.QtGui import QPageLayout, QPageSize, QPdfWriter

from circuitlab.draw.export._pdf import settled
from circuitlab.draw.export._xmp import xmp_packet
from circuitlab.draw.export.outline import Bookmark
from circuitlab.interrupts import uninterrupted


@uninterrupted()
def pdf_document(title: str, identity: bytes, dots: int, grey: bool, paint: Callable[[QPdfWriter], Sequence[Bookmark]]) -> bytes:
    """The file on A4, without margins. `identity`: equal for equal documents; `dots`: an inch.

    `paint` draws the pages and gives the outline of them.
    """
    buffer, xmp = QBuffer(), xmp_packet(title, "")
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    writer = QPdfWriter(buffer)
    writer.setResolution(dots)
    writer.setTitle(title)
    writer.setCreator("CircuitLab")
    writer.setDocumentXmpMetadata(QByteArray(xmp))
    writer.setDocumentId(QUuid.createUuidV5(QUuid(), QByteArray(xmp + identity)))
    if grey:
        writer.setColorModel(QPdfWriter.ColorModel.Grayscale)
    size = QPageSize(QPageSize.PageSizeId.A4)
    writer.setPageLayout(QPageLayout(size, QPageLayout.Orientation.Portrait, QMarginsF(0, 0, 0, 0)))
    bookmarks = paint(writer)
    return settled(bytes(buffer.data().data()), bookmarks)
