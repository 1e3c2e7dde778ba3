"""auth.env: the token of the administrator of a project, and the pepper under which its other tokens are hashed.

    LOOMLOG_AUTH_TOKEN=lct_...                `loomlog init --with-token` writes it once; only its owner may read it
    LOOMLOG_OPERATOR_TOKEN_PEPPER=...         (0600)

Every command in its folder has these variables, and so do the services that `loomlog up` starts. A variable of the real
environment counts before one of the file. With LOOMLOG_BASE_URL the file is not read: its token belongs to the
installation of this folder, and would be shown to another one.

Before: services/cli/main.py, admin/init.py. After: connectors/storage/private_files.py.
"""

import os
from collections.abc import MutableMapping
from pathlib import Path

from loomlog.connectors.storage.private_files import create_file
from loomlog.services.cli.errors import UsageError

FILE = "auth.env"
TOKEN, PEPPER = "LOOMLOG_AUTH_TOKEN", "LOOMLOG_OPERATOR_TOKEN_PEPPER"
ELSEWHERE = "LOOMLOG_BASE_URL"
OTHERS = 0o077
"""Permissions of others than the owner."""
BYTES_MAX = 64 * 1024


def create_auth_file(path: Path) -> None:
    """Write a file with a new token and a new pepper, which git ignores. Raises OSError, FileExistsError among them."""
    from loomlog.connectors.crypto.operator_tokens import new_text

    with create_file(path) as file:
        file.write(f"{TOKEN}={new_text()}\n{PEPPER}={new_text()}\n".encode())
        file.flush()
        os.fsync(file.fileno())
    if any((parent / ".git").exists() for parent in path.absolute().parents):
        ignored = path.with_name(".gitignore")
        before = ignored.read_text("utf-8") if ignored.exists() else ""
        if FILE not in before.split():
            ignored.write_text(f"{before}{'' if not before or before.endswith(chr(10)) else chr(10)}{FILE}\n", "utf-8")


def load_auth_file(folder: Path, environ: MutableMapping[str, str]) -> None:
    """Set the variables of a folder's file that an environment does not have. Raises UsageError."""
    path = folder / FILE
    if environ.get(ELSEWHERE):
        return
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & OTHERS:
                raise UsageError(f"{path} has a token, and others may read it: chmod 600 {path}")
            text = file.read(BYTES_MAX).decode()
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read ({error}). `loomlog init --with-token` writes a new one.") from error
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, sign, value = line.partition("=")
        if name not in (TOKEN, PEPPER) or not sign or not value.strip():
            raise UsageError(f"{path}:{number}: expected {TOKEN}=... or {PEPPER}=...; other settings belong elsewhere")
        environ.setdefault(name, value.strip())
