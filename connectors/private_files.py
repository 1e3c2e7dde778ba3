"""Files that hold what people, models and tools said: only the user who runs us may read them, whatever the umask says.

Before: blobs.py, state_files.py, exports of the command line.
"""

import os
from pathlib import Path
from typing import IO

FILE_MODE = 0o600
FOLDER_MODE = 0o700


def create(path: Path) -> IO[bytes]:
    """A new file to write. Raises OSError, FileExistsError among them."""
    return open(path, "xb", opener=lambda name, flags: os.open(name, flags, FILE_MODE))


def make_folders(folder: Path) -> list[Path]:
    """Makes the folder and those above it that are missing; which were, innermost first. Raises OSError."""
    missing = [part for part in (folder, *folder.parents) if not part.exists()]
    for part in reversed(missing):
        part.mkdir(mode=FOLDER_MODE, exist_ok=True)
    return missing
