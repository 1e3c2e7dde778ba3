"""Files with content of people, models and tools: only the user of this process may read them, whatever the umask.

Before: blobs.py, state_files.py, exports and logs of the command line.
"""

import os
from pathlib import Path
from typing import IO

FILE_MODE = 0o600
FOLDER_MODE = 0o700


def create_file(path: Path) -> IO[bytes]:
    """Create a file for writing. Raises OSError, FileExistsError among them."""
    return open(path, "xb", opener=_opener)


def open_for_append(path: Path) -> IO[bytes]:
    """Open a file for appending, unbuffered; created when missing. An existing file keeps its mode."""
    return open(path, "ab", buffering=0, opener=_opener)


def _opener(name: str, flags: int) -> int:
    return os.open(name, flags, FILE_MODE)


def make_folders(folder: Path) -> list[Path]:
    """Create the folder and its missing parents; return those created, innermost first. Raises OSError."""
    missing = [part for part in (folder, *folder.parents) if not part.exists()]
    for part in reversed(missing):
        part.mkdir(mode=FOLDER_MODE, exist_ok=True)
    return missing
