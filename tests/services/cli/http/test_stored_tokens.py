"""The file with the tokens of `loomlog login`."""

import time
from pathlib import Path

import pytest

from loomlog.services.cli.errors import UsageError
from loomlog.services.cli.http.stored_tokens import StoredToken, store_token, tokens_path, usable_bearer
from loomlog.services.cli.settings import load_cli_settings
from tests.identity_server import DEVICE_CLIENT, serve_identity

URL = "http://127.0.0.1:8787"


def token(**changes: object) -> StoredToken:
    given = {"bearer": "the-token", "refresh_token": "", "client_id": "c", "token_url": "http://127.0.0.1:1/token"}
    return StoredToken(**{**given, "expires_at_s": time.time() + 600, **changes})


def test_only_its_owner_may_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "tokens.json"
    store_token(path, URL, token())
    store_token(path, "https://other.example", token(bearer="other"))
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert [usable_bearer(path, one) for one in (URL, f"{URL}/", "https://other.example")] == [
        "the-token",
        "the-token",
        "other",
    ]
    store_token(path, URL, None)
    assert (usable_bearer(path, URL), usable_bearer(path, "https://other.example")) == ("", "other")
    assert list(path.parent.iterdir()) == [path]


def test_a_file_that_others_may_read_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    store_token(path, URL, token())
    path.chmod(0o640)
    with pytest.raises(UsageError, match="chmod 600"):
        usable_bearer(path, URL)


@pytest.mark.parametrize("content", [b"", b"{", b'{"tokens": []}', b'{"tokens": {"a": {}}}'])
def test_a_file_that_is_none_of_ours_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokens.json"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(UsageError, match=r"tokens\.json cannot be read"):
        usable_bearer(path, URL)


def test_a_token_that_expires_soon_is_refreshed_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    with serve_identity() as identity:
        refresh = identity.tokens(DEVICE_CLIENT)["refresh_token"]
        near = token(refresh_token=refresh, token_url=f"{identity.issuer}/token", expires_at_s=time.time() + 30)
        store_token(path, URL, near)
        bearer = usable_bearer(path, URL)
        assert bearer.startswith("eyJ")
        assert usable_bearer(path, URL) == bearer
        assert len(identity.requests) == 1


def test_without_the_provider_the_old_token_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    store_token(path, URL, token(refresh_token="r", expires_at_s=0.0))
    assert usable_bearer(path, URL) == "the-token"


def test_a_token_of_the_environment_comes_first_and_the_shared_one_last(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path), "LOOMLOG_AUTH_TOKEN": "shared", "LOOMLOG_BASE_URL": URL}

    def sent(**more: str) -> str:
        return load_cli_settings({**environ, **more}, working_directory=tmp_path).token

    assert sent() == "shared"
    store_token(tokens_path(environ), URL, token())
    assert sent() == "the-token"
    assert sent(LOOMLOG_BASE_URL="https://other.example") == "shared"
    assert sent(LOOMLOG_TOKEN="named") == "named"


def test_the_file_is_in_the_folder_of_the_person() -> None:
    assert tokens_path({"HOME": "/home/ann"}) == Path("/home/ann/.config/loomlog/tokens.json")
    assert tokens_path({"HOME": "/home/ann", "XDG_CONFIG_HOME": "/x"}) == Path("/x/loomlog/tokens.json")
