"""Tokens that `loomlog login` got, in a file of the person, by the address of the API.

    $XDG_CONFIG_HOME/loomlog/tokens.json, or ~/.config/loomlog/tokens.json      only its owner may read it (0600)

A token that is about to expire is refreshed before it is used. If that fails the old one is sent, and the API's answer
says what to do: a command that needs no token then works without the provider.

Before: services/cli/settings.py, services/cli/admin/login.py. After: connectors/identity_providers/device_login.py.
"""

import contextlib
import os
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from loomlog.connectors.storage.private_files import FOLDER_MODE, create_file, make_folders
from loomlog.services.cli.errors import UsageError

REFRESH_BEFORE_S = 60.0
"""Seconds before its expiry from which a token is refreshed."""
FILE_BYTES_MAX = 4 * 1024 * 1024
OTHERS = 0o077
"""Permissions of others than the owner."""


class StoredToken(msgspec.Struct, frozen=True, kw_only=True):
    """What a sign-in leaves. The addresses are those of the provider; `revocation_url` is empty where it has none."""

    bearer: str
    refresh_token: str
    expires_at_s: float
    client_id: str
    token_url: str
    revocation_url: str = ""


class _File(msgspec.Struct, kw_only=True):
    tokens: dict[str, StoredToken] = {}


def tokens_path(environ: Mapping[str, str]) -> Path:
    """Return the file of the person."""
    folder = environ.get("XDG_CONFIG_HOME", "").strip() or os.path.join(environ.get("HOME", "~"), ".config")
    return Path(folder).expanduser() / "loomlog" / "tokens.json"


def find_token(path: Path, api_url: str) -> StoredToken | None:
    """Return the token for an API. Raises UsageError for a file that others may read, or that cannot be read."""
    return _read(path).tokens.get(_key(api_url))


def usable_bearer(path: Path, api_url: str) -> str:
    """Return the token to send to an API, refreshed if it is time; empty without one. Raises UsageError."""
    token = find_token(path, api_url)
    if token is None:
        return ""
    if token.refresh_token and token.expires_at_s - time.time() < REFRESH_BEFORE_S:
        token = _refreshed(path, api_url, token)
    return token.bearer


def store_token(path: Path, api_url: str, token: StoredToken | None) -> None:
    """Keep a token for an API, or forget it. Raises UsageError and OSError."""
    content = _read(path)
    if token is None:
        content.tokens.pop(_key(api_url), None)
    else:
        content.tokens[_key(api_url)] = token
    make_folders(path.parent)
    path.parent.chmod(FOLDER_MODE)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        new.unlink()
    with create_file(new) as file:
        file.write(msgspec.json.encode(content))
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


def _refreshed(path: Path, api_url: str, token: StoredToken) -> StoredToken:
    """Return the token after a refresh, which is kept; the same where the provider does not give another one."""
    from loomlog.connectors.errors import ConnectorError
    from loomlog.connectors.identity_providers.device_login import refresh_tokens
    from loomlog.connectors.identity_providers.oauth import ProviderRefused

    try:
        tokens = refresh_tokens(token.token_url, token.client_id, token.refresh_token)
    except (ConnectorError, ProviderRefused):
        # Another command may have been faster, and a refresh token often counts once.
        return find_token(path, api_url) or token
    refreshed = msgspec.structs.replace(
        token,
        bearer=tokens.bearer,
        refresh_token=tokens.refresh_token,
        expires_at_s=time.time() + tokens.lifetime_s,
    )
    store_token(path, api_url, refreshed)
    return refreshed


def _read(path: Path) -> _File:
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_mode & OTHERS:
                raise UsageError(f"{path} has tokens, and others may read it: chmod 600 {path}")
            return msgspec.json.decode(file.read(FILE_BYTES_MAX), type=_File)
    except FileNotFoundError:
        return _File()
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"{path} cannot be read ({error}): remove it, and use `loomlog login` again") from error


def _key(api_url: str) -> str:
    return api_url.rstrip("/").lower()
