"""Credentials in folders, Vault, AWS and the environment: read at use, kept for seconds, each tenant its own."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from loomlog.connectors.configuration.credential_block import CredentialStoreBlock
from loomlog.connectors.configuration.secret_registry import Purpose, SecretRegistry, SecretUse
from loomlog.connectors.credentials.outside_stores import OutsideStores
from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from tests.connectors.credentials.peer import Answer, Peer, Request

SECRET = "hunter2-hunter2"
TOKENS = {
    "VAULT_TOKEN": "hvs.token",
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI",
}


class Clock:
    def __init__(self) -> None:
        self.at = 0.0

    def __call__(self) -> float:
        return self.at


def stores(clock: Clock | None = None, environ: dict[str, str] | None = None, **block: Any) -> OutsideStores:
    made = CredentialStoreBlock(**{"tenants": ("*",), "prefix": "{tenant}", **block})
    uses = [SecretUse("GIT_TOKEN", Purpose.CREDENTIAL, "acme", "*", ("secrets", "GIT_TOKEN"))]
    uses += [SecretUse(name, Purpose.CREDENTIAL_STORE, "*", "*", (key,)) for key, name in made.variables]
    variables = {**TOKENS, "GIT_TOKEN": SECRET, "OTHER": SECRET} if environ is None else environ
    return OutsideStores({"box": made}, SecretRegistry(uses, variables), now_s=clock or Clock())


def vault_answer(request: Request) -> Answer:
    known = {
        "/v1/kv/data/acme/team/git": {"token": SECRET, "port": 8200, "deep": {}},
        "/v1/kv/data/acme/one": {"any": SECRET},
        "/v1/kv/data/acme/two": {"value": SECRET, "other": "x"},
    }
    if request.headers["x-vault-token"] != "hvs.token":
        return 403, {"errors": [SECRET]}
    if request.path not in known:
        return 404, {"errors": [], "data": SECRET}
    return 200, {"data": {"data": known[request.path], "metadata": {"version": 3}}}


@pytest.mark.parametrize(
    ("locator", "value"),
    [("team/git#token", SECRET), ("team/git#port", "8200"), ("one", SECRET), ("two", SECRET)],
)
async def test_a_field_of_vault(locator: str, value: str) -> None:
    async with Peer(vault_answer) as peer:
        store = stores(type="vault", url=peer.url, mount="kv", namespace="team")
        assert await store.read("acme", "box", locator) == value
        assert peer.requests[0].headers["x-vault-namespace"] == "team"


@pytest.mark.parametrize(
    ("tenant", "locator", "error"),
    [
        ("globex", "team/git#token", "box:team/git#token: Vault has no such secret"),
        ("acme", "team/git#none", "no text in the field none; name one with #field"),
        ("acme", "team/git", "no text in the field value"),
        ("acme", "team/git#deep", "no text in the field deep"),
        ("acme", "../globex/git", "expected path/to/secret"),
        ("acme", "./git", "expected path/to/secret"),
        ("acme", "git?version=1", "expected path/to/secret"),
        ("acme", "", "expected path/to/secret"),
        ("acme", "x" * 513, "expected path/to/secret"),
    ],
)
async def test_what_vault_does_not_have_is_named_and_nothing_shows(tenant: str, locator: str, error: str) -> None:
    async with Peer(vault_answer) as peer:
        store = stores(type="vault", url=peer.url, mount="kv")
        with pytest.raises(Permanent) as caught:
            await store.read(tenant, "box", locator)
    assert error in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "kind", "error"),
    [
        (403, Permanent, "the token of the installation may not read the path"),
        (302, Permanent, "Vault did not give it (status 302)"),
        (503, Transient, "127.0.0.1 answered 503"),
        (429, Transient, "127.0.0.1 answered 429"),
    ],
)
async def test_a_refusal_says_which_and_repeats_no_body(status: int, kind: type[ConnectorError], error: str) -> None:
    async with Peer(lambda request: (status, {"errors": [SECRET]})) as peer:
        store = stores(type="vault", url=peer.url)
        with pytest.raises(kind) as caught:
            await store.read("acme", "box", "git")
        assert len(peer.requests) == 1
    assert error in str(caught.value)
    assert SECRET not in str(caught.value)


async def test_a_store_that_is_away_is_an_error_and_not_yesterdays_value() -> None:
    clock = Clock()
    async with Peer(vault_answer) as peer:
        store = stores(clock, type="vault", url=peer.url, mount="kv", cache_seconds=30)
        assert await store.read("acme", "box", "one") == SECRET
    clock.at = 29.0
    assert await store.read("acme", "box", "one") == SECRET
    clock.at = 30.0
    with pytest.raises(Transient, match=r"box:one: 127\.0\.0\.1 does not answer"):
        await store.read("acme", "box", "one")


async def test_a_value_is_read_once_for_all_that_wait_for_it() -> None:
    async with Peer(vault_answer) as peer:
        peer.held.clear()
        store = stores(type="vault", url=peer.url, mount="kv", cache_seconds=0)
        reads = [asyncio.create_task(store.read("acme", "box", "one")) for _ in range(5)]
        while not peer.requests:
            await asyncio.sleep(0)
        peer.held.set()
        assert await asyncio.gather(*reads) == [SECRET] * 5
        assert len(peer.requests) == 1
        await store.read("acme", "box", "one")
        assert len(peer.requests) == 2


async def test_the_token_of_vault_may_be_a_file_that_changes(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("hvs.token\n")
    async with Peer(vault_answer) as peer:
        store = stores(type="vault", url=peer.url, mount="kv", token_file=str(token), cache_seconds=0)
        assert await store.read("acme", "box", "one") == SECRET
        token.write_text("another")
        with pytest.raises(Permanent, match="may not read"):
            await store.read("acme", "box", "one")


def aws_answer(request: Request) -> Answer:
    assert request.headers["x-amz-target"] == "secretsmanager.GetSecretValue"
    assert request.headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
    known: dict[str, Answer] = {
        "acme/git": (200, {"SecretString": SECRET}),
        "acme/json": (200, {"SecretString": f'{{"token": "{SECRET}"}}'}),
        "acme/binary": (200, {"SecretBinary": "aHVudGVyMi1odW50ZXIy"}),
        "acme/denied": (400, {"__type": "com.amazonaws#AccessDeniedException", "Message": SECRET}),
        "acme/busy": (400, {"__type": "ThrottlingException"}),
    }
    return known.get(request.json["SecretId"], (400, {"__type": "ResourceNotFoundException", "Message": SECRET}))


@pytest.mark.parametrize(
    ("locator", "value"),
    [
        ("git", SECRET),
        ("json#token", SECRET),
        ("binary", SECRET),
        ("none", "box:none: AWS has no such secret"),
        ("denied", "may not read it"),
        ("busy", "AWS is busy (ThrottlingException)"),
        ("git#token", "it is not a JSON object"),
    ],
)
async def test_a_secret_of_aws(locator: str, value: str) -> None:
    async with Peer(aws_answer) as peer:
        store = stores(type="aws", url=peer.url, region="eu-central-1")
        if value == SECRET:
            assert await store.read("acme", "box", locator) == value
            return
        with pytest.raises(ConnectorError) as caught:
            await store.read("acme", "box", locator)
    assert value in str(caught.value)
    assert isinstance(caught.value, Transient) is (locator == "busy")
    assert SECRET not in str(caught.value)


async def test_keys_that_are_not_set_are_named() -> None:
    store = stores(environ={}, type="aws", region="eu-central-1")
    with pytest.raises(Permanent, match="the variable AWS_ACCESS_KEY_ID is not set"):
        await store.read("acme", "box", "git")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as Kubernetes mounts it, with links that lead out of it."""
    now = tmp_path / "secrets" / "..2026"
    (now / "acme" / "team").mkdir(parents=True)
    (now / "globex").mkdir()
    (now / "acme" / "team" / "git").write_text(SECRET + "\n")
    (now / "acme" / "json").write_text(f'{{"token": "{SECRET}"}}')
    (now / "acme" / "large").write_text("x" * 16_385)
    (now / "acme" / "latin").write_bytes(b"\xff")
    (now / "acme" / "empty").write_text("")
    (now / "globex" / "git").write_text("of globex")
    (tmp_path / "outside").write_text("outside")
    (now / "acme" / "out").symlink_to(tmp_path / "outside")
    (now / "acme" / "other").symlink_to(now / "globex" / "git")
    (now / "acme" / "up").symlink_to("..")
    (now / "acme" / "loop").symlink_to("loop")
    os.mkfifo(now / "acme" / "pipe")
    for name in ("acme", "globex"):
        (tmp_path / "secrets" / name).symlink_to(f"..2026/{name}")
    return tmp_path / "secrets"


@pytest.mark.parametrize(
    ("locator", "value"),
    [
        ("team/git", SECRET),
        ("json#token", SECRET),
        ("none", "there is no such file"),
        ("team", "it is not a file"),
        ("out", "outside of its folder"),
        ("other", "outside of its folder"),
        ("up/globex/git", "outside of its folder"),
        ("loop", "leads to itself"),
        ("pipe", "it is not a file"),
        ("large", "more than 16384 bytes"),
        ("latin", "not UTF-8"),
        ("empty", "expected a text of 1 to 16384 bytes"),
        ("../globex/git", "expected path/to/secret"),
    ],
)
async def test_a_file(locator: str, value: str, folder: Path) -> None:
    store = stores(type="file", directory=str(folder))
    if value == SECRET:
        assert await store.read("acme", "box", locator) == value
        return
    with pytest.raises(Permanent, match=value) as caught:
        await store.read("acme", "box", locator)
    assert str(folder) not in str(caught.value)


async def test_a_tenant_reads_what_it_was_given() -> None:
    store = stores(type="vault", url="https://vault.example", tenants=("acme",))
    assert await store.read("acme", "env", "GIT_TOKEN") == SECRET
    for tenant, backend, locator, error in (
        ("globex", "env", "GIT_TOKEN", "GIT_TOKEN is not set, or the tenant globex may not use it"),
        ("acme", "env", "OTHER", "list it in the block secrets with the use credential"),
        ("acme", "env", "VAULT_TOKEN", "may not use it"),
        ("globex", "box", "git", "there is no store 'box' for the tenant globex: expected one of env"),
        ("acme", "bag", "git", "there is no store 'bag' for the tenant acme: expected one of env, box"),
    ):
        with pytest.raises(Permanent, match=error):
            store.require(tenant, backend, locator)
        with pytest.raises(Permanent, match=error):
            await store.read(tenant, backend, locator)
