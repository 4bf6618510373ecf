"""The text of one element of XML, read without following anything that the XML declares.

Python's expat neither opens what lies outside nor, here, any entity: a file that declares one is refused at its declaration, so
that nothing can be expanded, and so is one that declares attributes, which every element would have then. Elements inside one
another, their number and the length of a tag are bounded, and reading ends with the element.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn
from xml.parsers import expat

from circuitlab.session_files.in_pictures.limits import ELEMENT, LARGEST, NAMESPACE, damaged, too_large

DEEPEST = 200  # elements inside one another
MOST = 2**20  # elements before the text
LONGEST = LARGEST  # bytes of one tag or comment
_NAME = f"{NAMESPACE} {ELEMENT}"  # as expat says it


class _Found(Exception):
    """The element has been read."""


class _Reader:
    def __init__(self) -> None:
        self.parts: list[str] = []
        self.depth = self.count = self.size = 0
        self.inside = False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.depth, self.count = self.depth + 1, self.count + 1
        if self.depth > DEEPEST or self.count > MOST:
            damaged(f"at most {DEEPEST} elements inside one another, {MOST} in all", "more")
        if self.inside:
            damaged("a text without elements in it", name)
        if _NAME in attributes:  # XMP may be rewritten so
            self.text(attributes[_NAME])
            raise _Found
        self.inside = name == _NAME

    def end(self, name: str) -> None:
        self.depth -= 1
        if self.inside:
            raise _Found

    def text(self, text: str) -> None:
        self.size += len(text)
        if self.size > LARGEST:
            too_large()
        self.parts.append(text)

    def characters(self, text: str) -> None:
        if self.inside:
            self.text(text)

    def entity(self, *_: object) -> NoReturn:
        damaged("XML without entities of its own", "an entity")

    def attributes(self, *_: object) -> NoReturn:
        damaged("XML without attributes of its own", "a list of attributes")


def _parse(parser: expat.XMLParserType, pieces: Iterable[bytes]) -> None:
    """Parse XML, in time that grows with its length alone: what expat has not seen the end of it reads anew each time, so that it
    is given at least as much again."""
    fed = size = 0
    waiting: list[bytes] = []
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        unread = fed - parser.CurrentByteIndex
        if size < unread and unread + size <= LONGEST:
            continue
        parser.Parse(b"".join(waiting), False)
        fed, size, waiting = fed + size, 0, []
        if fed - parser.CurrentByteIndex > LONGEST:
            damaged(f"tags of at most {LONGEST} bytes", "a longer one")
    parser.Parse(b"".join(waiting), True)


def element_text(pieces: Iterable[bytes]) -> bytes | None:
    """The text of the first element of a view, as UTF-8; None if there is none.

    Raises `BadInput` where the XML is damaged before it, declares an entity, or is larger than any view.
    """
    reader, parser = _Reader(), expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
    parser.CharacterDataHandler, parser.EntityDeclHandler = reader.characters, reader.entity
    parser.AttlistDeclHandler = reader.attributes
    try:
        _parse(parser, pieces)
    except _Found:
        return "".join(reader.parts).encode("utf-8", "surrogatepass")
    except (expat.ExpatError, ValueError, LookupError) as error:  # also an encoding that Python does not have
        damaged("well-formed XML", error)
    return None
