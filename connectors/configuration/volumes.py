"""Folders of volumes: created when a process that runs tools starts; checked before one is started.

Blocking file calls: main() does this before its event loop, or in a thread.

Before: load.py. After: connectors/tools open files under these folders.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path

from loomlog.connectors.configuration.findings import ConfigurationError, ConfigurationFinding
from loomlog.connectors.configuration.model import Configuration


def prepare_volumes(configuration: Configuration) -> list[ConfigurationFinding]:
    """Create folders of writable volumes, warn of missing read-only ones. Raises ConfigurationError."""
    return _check_folders(configuration, _try_make_folder)


def check_volumes(configuration: Configuration) -> list[ConfigurationFinding]:
    """Return the warnings of `prepare_volumes` without creating anything. Raises ConfigurationError as it would."""
    return _check_folders(configuration, _find_obstacle)


def _check_folders(configuration: Configuration, folder_problem: Callable[[Path], str]) -> list[ConfigurationFinding]:
    """Return warnings. `folder_problem` returns why a writable volume's folder is not available; empty when it is."""
    warnings: list[ConfigurationFinding] = []
    problems: list[ConfigurationFinding] = []
    for name, volume in configuration.volumes.items():
        folder = Path(volume.path)
        if volume.mode == "rw":
            if why := folder_problem(folder):
                problems.append(ConfigurationFinding(message=f"volumes.{name}: cannot make the folder {folder}: {why}"))
        elif not folder.is_dir():
            warnings.append(
                ConfigurationFinding(
                    message=f"volumes.{name}: there is no folder {folder}; tools will refuse this volume"
                )
            )
    if problems:
        raise ConfigurationError(problems)
    return warnings


def _try_make_folder(folder: Path) -> str:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _find_obstacle(folder: Path) -> str:
    """Return why the folder could not be created; empty when it exists or nothing prevents it."""
    if folder.is_dir():
        return ""
    nearest = next(part for part in (folder, *folder.absolute().parents) if os.path.lexists(part))
    if not nearest.is_dir():
        return os.strerror(errno.EEXIST if nearest == folder else errno.ENOTDIR)
    return "" if os.access(nearest, os.W_OK | os.X_OK) else os.strerror(errno.EACCES)
