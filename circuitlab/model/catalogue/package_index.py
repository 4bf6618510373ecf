"""Where a package index has one wheel: by its simple interface (PEP 691 as JSON, PEP 503 as HTML), of the indexes that pip uses.

What an index says is an address and nothing more: the bytes that come from there are compared with the hash of the catalogue.
"""

from __future__ import annotations

import http.client
import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from circuitlab import __version__
from circuitlab.errors import BadMachine, CircuitLabError, UsageError, cause, printable
from circuitlab.model.archives.address import need_address
from circuitlab.model.archives.transfer import TIMEOUT, opener
from circuitlab.model.catalogue.entries import Package
from circuitlab.model.catalogue.pip_settings import PipSettings

LARGEST_PAGE = 2**25  # bytes of an index's page of one project
_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.01"


def file_here(package: Package, settings: PipSettings) -> Path | None:
    """The wheel in a folder that pip is configured to look into, None where none has it."""
    for folder in settings.folders:
        for place in (folder, folder / _normal(package.project)):
            if (path := place / package.zip.name).is_file():
                return path
    return None


def address_of(package: Package, settings: PipSettings) -> str:
    """The address of the wheel, by the first index that has it. Raises `BadMachine` with what each of them said."""
    problems: list[str] = []
    for index in settings.indexes:
        try:
            address = next(_addresses(package, f"{index}/{_normal(package.project)}/"), None)
        except UsageError as error:
            problems.append(f"an index that cannot be asked: {error.got}")
            continue
        except urllib.error.HTTPError as error:
            with error:
                problems.append(f"{error.code} {error.reason}")
            continue
        except (http.client.HTTPException, OSError, ValueError, RecursionError) as error:  # of urllib, too
            inner = getattr(error, "reason", None)
            problems.append(cause(inner if isinstance(inner, Exception) else error))
            continue
        if address is not None:
            return address
        problems.append(f"an index without {package.zip.name}")
    raise BadMachine(
        f"The package index cannot be reached, or does not have {package.project} {package.version}.",
        expected=f"{package.zip.name} by an index that pip is configured to use",
        got=printable("; ".join(problems) or "no index in pip’s configuration", 300),
        remedy=f"Check the network and `pip config list`. Or bring the file: circuitlab get {package.model} --from FILE.whl.",
    )


def _normal(project: str) -> str:
    """A project's name in the addresses of an index (PEP 503)."""
    return re.sub(r"[-_.]+", "-", project).lower()


def _addresses(package: Package, page: str) -> Iterator[str]:
    """The addresses under which a page lists the wheel. Raises errors of the network, `ValueError`, `UsageError`."""
    need_address(page)
    request = urllib.request.Request(page, headers={"User-Agent": f"circuitlab/{__version__}", "Accept": _ACCEPT})
    with opener().open(request, timeout=TIMEOUT) as response:
        kind, base = response.headers.get_content_type(), response.url
        data = response.read(LARGEST_PAGE + 1)
    if len(data) > LARGEST_PAGE:
        raise ValueError("a page of more than 32 MiB")
    links = _links_of_json(data) if kind.endswith("json") else _links_of_html(data)
    for name, link, sha256 in links:
        if name == package.zip.name and sha256 in ("", package.zip.sha256):
            address = urldefrag(urljoin(base, link)).url
            try:
                need_address(address)
            except CircuitLabError:
                continue
            yield address


def _links_of_json(data: bytes) -> Iterator[tuple[str, str, str]]:
    """(name, address, sha256 or "") of each file. Raises `ValueError`."""
    page = json.loads(data)
    files = page.get("files") if isinstance(page, dict) else None
    for one in files if isinstance(files, list) else ():
        if isinstance(one, dict) and isinstance(one.get("filename"), str) and isinstance(one.get("url"), str):
            hashes = one.get("hashes")
            sha256 = hashes.get("sha256", "") if isinstance(hashes, dict) else ""
            yield one["filename"], one["url"], str(sha256).lower()


def _links_of_html(data: bytes) -> Iterator[tuple[str, str, str]]:
    """(name, address, sha256 or "") of each link."""
    reader = _Links()
    reader.feed(data.decode("utf-8", "replace"))
    for link in reader.links:
        address, fragment = urldefrag(link)
        yield (
            unquote(address.rpartition("/")[2]),
            link,
            fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else "",
        )


class _Links(HTMLParser):
    """The addresses of a page's links."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        """Note the address of a link."""
        if tag == "a":
            self.links += [value for name, value in attrs if name == "href" and value]
