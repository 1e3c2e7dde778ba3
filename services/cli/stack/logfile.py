"""A child's output in a bounded file, written by the child itself.

The child gets the file as its standard output and error, opened for appending. So it continues to write when the
supervisor is gone, and no output passes through our event loop. When the file has grown over its limit it is copied to
`<name>.1` and truncated in place; a line written between the two is lost, which is the price of needing no pipe. Logs
quote callers and models, so only their owner may read them.

Before: children.  After: `loomlog logs`, and the last lines in the message of a child that failed.
"""

import os
import shutil
from pathlib import Path
from typing import IO

from loomlog.connectors.storage import private_files

# One file and one older one per child: with eight children at most 160 MiB.
MAX_LOG_BYTES = 10 * 1024**2
TAIL_LINES = 15
# Enough for TAIL_LINES lines of readable length.
TAIL_BYTES = 16 * 1024


def open_log(path: Path) -> IO[bytes]:
    """Open the file for a child's output. O_APPEND is what makes `rotate_log` safe."""
    private_files.make_folders(path.parent)
    return private_files.open_for_append(path)


def rotate_log(path: Path, *, max_bytes: int = MAX_LOG_BYTES) -> bool:
    """Move a log over its limit to `<name>.1`. True when it did."""
    try:
        if path.stat().st_size <= max_bytes:
            return False
    except FileNotFoundError:
        return False
    try:
        older = path.with_name(path.name + ".1")
        older.unlink(missing_ok=True)
        with open(path, "rb") as log, private_files.create_file(older) as aside:
            shutil.copyfileobj(log, aside)
    finally:
        os.truncate(path, 0)  # also when the disk is too full for the copy: the limit matters more than the old lines
    return True


def read_tail(path: Path, *, lines: int = TAIL_LINES, start: int = 0) -> str:
    """Return the last lines of a log, of those after the byte `start`; empty when there is none.

    A log that is shorter than `start` was rotated since: all of it counts.
    """
    try:
        with open(path, "rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(0, end - TAIL_BYTES, start if start <= end else 0))
            text = file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.rstrip().splitlines()[-lines:])
