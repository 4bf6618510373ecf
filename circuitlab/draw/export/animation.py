"""Frames as one file that plays: WebP without loss, or GIF, by Pillow (the extra `film`), which is imported when needed."""

from __future__ import annotations

import io
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from PySide6.QtGui import QImage

from circuitlab.draw.export._xmp import xmp_packet
from circuitlab.draw.look.slide import Slide
from circuitlab.errors import BadMachine

if TYPE_CHECKING:
    from PIL.Image import Image

# How hard WebP looks for a smaller file. 25 frames of 1280 × 720: 1.2 s and 334 kB; with 4, 100 and `minimize_size` 15 s, 323 kB.
EFFORT, QUALITY = 2, 50  # of 6, of 100
NO_KEY_FRAMES = {"kmin": 9_999, "kmax": 10_000}  # each frame is its difference from the one before
COLOURS, EXACT = 255, 160  # of a GIF, one more is its transparency; of these the most frequent ones of the frames


def need_pillow() -> None:
    """Raises `BadMachine` where films cannot be written. Before the work, not behind it."""
    _pillow()


def _pillow() -> ModuleType:
    try:
        from PIL import Image, features
    except ImportError as error:
        raise BadMachine(
            "Writing a film needs a library that is not installed.",
            expected="Pillow",
            got="not installed",
            remedy='pip install "circuitlab[film]"',
        ) from error
    if not features.check("webp"):
        raise BadMachine(
            "This Pillow cannot write WebP.",
            expected="Pillow with WebP",
            got="one that was built without it",
            remedy="Install Pillow from a wheel: pip install --force-reinstall pillow",
        )
    return Image


def animation(frames: Sequence[bytes], suffix: str, slide: Slide, title: str, about: str) -> bytes:
    """The bytes of a film. `frames`: RGB of `slide.width` × `slide.height`, as `rgb_bytes` gives it. `title`, `about`:
    what it shows, for its own description. Raises `BadMachine` without Pillow. For a worker thread.
    """
    image, size = _pillow(), (slide.width, slide.height)
    pictures = [image.frombytes("RGB", size, data) for data in frames]
    durations = slide.durations(len(frames))
    stream = io.BytesIO()
    if suffix == ".gif":
        pictures = _in_colours(image, pictures)
        loops = {"loop": 0} if slide.loop else {}
        pictures[0].save(
            stream,
            "GIF",
            save_all=True,
            append_images=pictures[1:],
            duration=durations,
            comment=f"{title}\n{about}".encode("utf-8", "replace")[:60_000],
            disposal=1,
            optimize=False,  # which would give each frame its own palette
            **loops,
        )
    else:
        pictures[0].save(
            stream,
            "WEBP",
            save_all=True,
            append_images=pictures[1:],
            duration=durations,
            loop=0 if slide.loop else 1,
            lossless=True,
            quality=QUALITY,
            method=EFFORT,
            xmp=xmp_packet(title, about),
            **NO_KEY_FRAMES,
        )
    return stream.getvalue()


def rgb_bytes(image: QImage) -> bytes:
    """The dots of an image, row by row, three bytes each."""
    plain = image.convertToFormat(QImage.Format.Format_RGB888)
    line, data = 3 * plain.width(), bytes(plain.constBits())
    if plain.bytesPerLine() == line:
        return data
    return b"".join(data[i * plain.bytesPerLine() :][:line] for i in range(plain.height()))


def _in_colours(image: ModuleType, pictures: Sequence[Image]) -> list[Image]:
    """The pictures in one palette for all of them, so that no colour flickers: the most frequent colours as they are, the others
    as the nearest of these and of some that stand for them.
    """
    packed = [_packed(picture) for picture in pictures]
    colours, counts = np.unique(np.concatenate(packed), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    palette = _rgb(colours[order[:COLOURS]])
    if len(colours) > COLOURS:
        rest = _rgb(colours[order[EXACT:]])
        strip = image.frombytes("RGB", (len(rest), 1), rest.tobytes())
        reduced = strip.quantize(COLOURS - EXACT, method=image.Quantize.MEDIANCUT, dither=image.Dither.NONE)
        stands = np.array(reduced.getpalette("RGB"), dtype=np.uint8).reshape(-1, 3)[: COLOURS - EXACT]
        palette = np.concatenate([palette[:EXACT], stands])
    nearest = np.concatenate([_nearest(_rgb(part), palette) for part in np.array_split(colours, -(-len(colours) // 4096))])
    paletted = []
    for picture, dots in zip(pictures, packed, strict=True):
        one = image.frombytes("P", picture.size, nearest[np.searchsorted(colours, dots)].tobytes())
        one.putpalette(palette.tobytes())
        paletted.append(one)
    return paletted


def _packed(picture: Image) -> np.ndarray:
    """[dots] uint32, a colour in one number."""
    red, green, blue = np.frombuffer(picture.tobytes(), np.uint8).reshape(-1, 3).T.astype(np.uint32)
    return red << 16 | green << 8 | blue


def _rgb(colours: np.ndarray) -> np.ndarray:
    """[n, 3] uint8 of such numbers."""
    return np.stack([colours >> 16 & 255, colours >> 8 & 255, colours & 255], axis=1).astype(np.uint8)


def _nearest(colours: np.ndarray, palette: np.ndarray) -> np.ndarray:
    """[n] uint8: for each colour the index of the nearest one."""
    away = colours[:, None].astype(np.int32) - palette[None].astype(np.int32)
    return (away**2).sum(axis=2).argmin(axis=1).astype(np.uint8)
