"""Files whose bytes or modes change while their times do not, as a copy or a backup leaves them. POSIX only."""

from __future__ import annotations

import os
from pathlib import Path


def copied_with_times(data: bytes, file: Path) -> None:
    """These bytes are in the file, in its old inode and of its old time: `cp -p` from a folder whose files are all of one time,
    as archives that are built reproducibly unpack them."""
    before = file.stat()
    while file.stat().st_ctime_ns == before.st_ctime_ns:  # its clock has ticks of some milliseconds
        with file.open("r+b") as same:
            same.write(data)
            same.truncate()
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def touched(file: Path) -> None:
    """Only the file's ctime is another."""
    before = file.stat()
    while file.stat().st_ctime_ns == before.st_ctime_ns:
        file.chmod(before.st_mode ^ 0o040)
        file.chmod(before.st_mode)
