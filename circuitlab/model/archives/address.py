"""Whether words are an address on the web that can be asked: before the first attempt, and where a server sends on to another."""

from __future__ import annotations

from urllib.parse import urlsplit

from circuitlab.errors import UsageError, printable


def is_url(text: str) -> bool:
    """Whether a word names an address on the web."""
    return text.lower().startswith(("http://", "https://"))


def need_address(text: str) -> None:
    """Raise `UsageError` for what no server can be asked by: another scheme, no host or port, letters that have to be escaped."""
    problem = _problem(text)
    if problem:
        raise UsageError(
            "That is not an address on the web.",
            expected=f"http:// or https://, {problem}",
            got=printable(text),
            remedy="Check the address. A file is named by its path.",
        )


def _problem(text: str) -> str:
    """What an address would have that this one lacks, "" for an address."""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname or "", parts.port  # which is a number
        host.encode("idna")  # no empty label, none over 63 letters
    except ValueError:
        return "a host, perhaps with a port: https://example.org:8000/file.zip"
    if not is_url(text) or not host or "@" in parts.netloc:
        return "a host, and neither user nor password"
    rest = text.replace(parts.netloc, "", 1)
    if not (rest.isascii() and parts.netloc.isprintable() and rest.isprintable()) or " " in text:
        return "other letters and spaces escaped: %20 for a space"
    return ""
