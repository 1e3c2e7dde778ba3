"""The folders of volumes: made once, when a process that runs tools starts; looked at before one is started.

Blocking file calls: main() does this before its event loop, or in a thread.

Before: load.py. After: connectors/tools open files under these folders.
"""

import errno
import os
from pathlib import Path

from connectors.configuration.findings import ConfigurationProblem, Finding
from connectors.configuration.model import Configuration


def prepare_volumes(configuration: Configuration) -> list[Finding]:
    """Makes folders of writable volumes, warns of read-only ones that are missing. Raises ConfigurationProblem."""
    warnings: list[Finding] = []
    problems: list[Finding] = []
    for name, volume in configuration.volumes.items():
        folder = Path(volume.path)
        if volume.mode == "rw":
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                problems.append(_unmade(name, folder, error.strerror or str(error)))
        elif not folder.is_dir():
            warnings.append(_missing(name, folder))
    if problems:
        raise ConfigurationProblem(problems)
    return warnings


def check_volumes(configuration: Configuration) -> list[Finding]:
    """What `prepare_volumes` would warn of; makes nothing. Raises ConfigurationProblem as it would."""
    warnings: list[Finding] = []
    problems: list[Finding] = []
    for name, volume in configuration.volumes.items():
        folder = Path(volume.path)
        if volume.mode == "rw":
            if number := _obstacle(folder):
                problems.append(_unmade(name, folder, os.strerror(number)))
        elif not folder.is_dir():
            warnings.append(_missing(name, folder))
    if problems:
        raise ConfigurationProblem(problems)
    return warnings


def _obstacle(folder: Path) -> int:
    """Why the folder could not be made (errno); 0 when it is there or nothing stands against it."""
    if folder.is_dir():
        return 0
    nearest = next(part for part in (folder, *folder.absolute().parents) if os.path.lexists(part))
    if not nearest.is_dir():
        return errno.EEXIST if nearest == folder else errno.ENOTDIR
    return 0 if os.access(nearest, os.W_OK | os.X_OK) else errno.EACCES


def _unmade(name: str, folder: Path, why: str) -> Finding:
    return Finding(message=f"volumes.{name}: cannot make the folder {folder}: {why}")


def _missing(name: str, folder: Path) -> Finding:
    return Finding(message=f"volumes.{name}: there is no folder {folder}; tools will refuse this volume")
