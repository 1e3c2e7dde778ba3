"""Files that hold what people, models and tools said: only the user who runs us may read them, whatever the umask says.

Before: blobs.py, state_files.py, exports and logs of the command line.
"""

import os
from pathlib import Path
from typing import IO

FILE_MODE = 0o600
FOLDER_MODE = 0o700


def create_file(path: Path) -> IO[bytes]:
    """A new file to write. Raises OSError, FileExistsError among them."""
    return open(path, "xb", opener=_opener)


def open_for_append(path: Path) -> IO[bytes]:
    """A file to write behind what it has, unbuffered; made when there is none. One that is there keeps its mode."""
    return open(path, "ab", buffering=0, opener=_opener)


def _opener(name: str, flags: int) -> int:
    return os.open(name, flags, FILE_MODE)


def make_folders(folder: Path) -> list[Path]:
    """Makes the folder and those above it that are missing; which were, innermost first. Raises OSError."""
    missing = [part for part in (folder, *folder.parents) if not part.exists()]
    for part in reversed(missing):
        part.mkdir(mode=FOLDER_MODE, exist_ok=True)
    return missing
