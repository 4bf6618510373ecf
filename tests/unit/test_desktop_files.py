"""What a Linux desktop reads: the program takes the type of file that is declared for the suffix of sessions."""

from __future__ import annotations

import configparser
from xml.etree import ElementTree

from circuitlab.disk.formats import SESSION
from circuitlab.disk.paths import resource


def test_a_double_click_on_a_session_opens_it() -> None:
    entry = configparser.ConfigParser(interpolation=None)
    entry.read_string(resource("circuitlab.desktop").read_text("utf-8"))
    (declared,) = ElementTree.fromstring(resource("circuitlab-mime.xml").read_text("utf-8"))
    (pattern,) = (child.get("pattern") for child in declared if child.tag.endswith("}glob"))
    assert pattern == f"*{SESSION}"
    assert declared.get("type") in entry["Desktop Entry"]["MimeType"].split(";")
    assert entry["Desktop Entry"]["Exec"].endswith(" %f")
