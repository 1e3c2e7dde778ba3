"""Making the folders of volumes ready, once, when a process that runs tools starts.

Blocking file calls: main() does this before its event loop, or in a thread.

Before: load.py. After: connectors/tools open files under these folders.
"""

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
                problems.append(Finding(message=f"volumes.{name}: cannot make the folder {folder}: {error.strerror}"))
        elif not folder.is_dir():
            warnings.append(
                Finding(message=f"volumes.{name}: there is no folder {folder}; tools will refuse this volume")
            )
    if problems:
        raise ConfigurationProblem(problems)
    return warnings
