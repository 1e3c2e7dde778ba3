"""A file that is exported: it gets its name when it is whole and was checked, so no broken one looks like a good one.

Before: services/cli/runs/history.py, services/cli/admin/backups.py. After: ApiClient.download writes it.
"""

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loomlog.services.cli.errors import CliError, UsageError

PARTIAL_SUFFIX = ".part"


def check_target(path: Path, *, force: bool) -> None:
    """Check that a file may be written to `path`. Raises UsageError for a file without `force`, and always for a device
    or folder.
    """
    if not os.path.lexists(path):
        return
    if not path.is_file():
        raise UsageError(f"{path} is no regular file; an export replaces nothing else.")
    if not force:
        raise UsageError(f"{path} exists. --force replaces it.")


@contextmanager
def partial_export(path: Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`; a file there at the end is renamed to it. Raises
    Failure for an OSError.
    """
    partial = path.with_name(path.name + PARTIAL_SUFFIX)
    try:
        partial.unlink(missing_ok=True)  # left over from an export that was killed
        yield partial
        partial.replace(path)
    except OSError as error:
        raise CliError(f"{path} cannot be written: {error.strerror}.") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
