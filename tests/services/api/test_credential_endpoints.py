"""Stored credentials over HTTP: never read back, found where they are used, gone when they are removed."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from loomlog.connectors.configuration.credential_block import CredentialStoreBlock
from loomlog.connectors.credentials.outside_stores import NO_STORES, OutsideStores
from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.storage.stored_credentials import MemoryStoredCredentialRows, StoredCredentials
from loomlog.schemas.position import Position
from loomlog.schemas.records import replace
from loomlog.services.core.access.decide import Caller
from loomlog.services.families.identity.credential_uses import CredentialUses
from loomlog.services.families.identity.credentials import LEFT_OVER_MS, CredentialMissing, CredentialReader, rewrap
from loomlog.services.families.identity.limits import CREDENTIAL_BYTES_MAX
from loomlog.services.families.identity.services import IdentityOptions
from loomlog.services.families.ports.credentials import CredentialUser
from tests.connectors.storage.memory import MemoryRequestKeys
from tests.services.api.serving import Served, served
from tests.services.application.world import ACME, ADMIN_CALLER, GLOBEX

ROUTE = "/v1/_credentialdef"
VALUE = "hunter2-hunter2"
KEY = SecretKey(keys=(bytes(32),))


class Here:
    """A served API, the sealed rows, and what a runtime reads."""

    def __init__(self, made: Served, rows: MemoryStoredCredentialRows, stores: OutsideStores) -> None:
        self.served = made
        self.rows = rows
        self.store = StoredCredentials(rows, KEY)
        directory = made.service.application.authenticator.directory
        assert directory is not None
        self.directory = directory
        self.reader = CredentialReader(directory, self.store, stores=stores)

    async def ask(self, op: str, *, caller: Caller = ACME, key: str = "", **fields: Any) -> httpx.Response:
        headers = {"idempotency-key": key} if key else {}
        return await self.served.client(caller).post(ROUTE, json={"op": op, **fields}, headers=headers)

    async def set(self, value: str = VALUE, **fields: Any) -> dict[str, Any]:
        answer = await self.ask("create", **{"name": "git", "value": value, **fields})
        assert answer.status_code == 200, answer.text
        assert value not in answer.text
        row: dict[str, Any] = answer.json()
        return row

    async def value(self, name: str = "git", **whose: str) -> str:
        try:
            return (await self.reader.resolve(f"$cred:{name}", CredentialUser(tenant="acme", **whose))).value
        except CredentialMissing:
            return ""


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path) -> AsyncIterator[Here]:
    rows = MemoryStoredCredentialRows()
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme" / "git").write_text("of a file\n")
    folder = CredentialStoreBlock(type="file", tenants=("*",), prefix="{tenant}", directory=str(tmp_path))
    options = IdentityOptions(secret=KEY, rows=rows, stores=OutsideStores({"files": folder}))
    async with served(tmp_path, family_options=[options], request_keys=MemoryRequestKeys()) as made:
        yield Here(made, rows, options.stores)


async def test_a_value_is_used_and_never_read_back(here: Here) -> None:
    row = await here.set(expires_at="2020-01-01T00:00:00Z")
    assert (row["name"], row["scope"], row["backend"]) == ("git", "tenant", "inline")
    assert row["note"]
    for op in ("get", "list"):
        answer = await here.ask(op, **({"name": "git"} if op == "get" else {}))
        assert answer.status_code == 200
        assert "git" in answer.text
        assert VALUE not in answer.text
    assert not any(
        VALUE.encode() in (one.value or b"") for log in here.served.world.log.records.values() for one in log
    )
    assert await here.value() == VALUE


async def test_a_run_that_is_started_after_a_change_is_decided_by_an_owner_that_has_read_it(here: Here) -> None:
    changed = []
    for name in ("one", "two", "three"):
        answer = await here.ask("create", name=name, value=VALUE)
        changed.append(answer.headers["x-loomlog-position"])
    changed.append((await here.ask("delete", name="two")).headers["x-loomlog-position"])
    await here.served.run(caller=ACME)
    newest = {position.rpartition(":")[0]: position for position in sorted(changed, key=_place)}
    assert set(newest.values()) <= set(here.served.world.commands()[-1].after)
    await here.served.run(caller=GLOBEX)
    assert not set(changed) & set(here.served.world.commands()[-1].after)


async def test_it_is_shown_who_uses_a_credential_for_what(here: Here) -> None:
    await here.set()
    client = here.served.world.layer.resources.entities.client
    uses = CredentialUses(client, clock_ms=lambda: 1, first_after_s=0.0)
    reader = CredentialReader(here.directory, here.store, uses=uses)
    for run_id in ("r_1", "r_2"):
        user = CredentialUser(tenant="acme", user="ada", agent="helper", purpose="tool mcp__git__push", run_id=run_id)
        assert (await reader.resolve("$cred:git", user)).value == VALUE
    await uses.close()
    async with asyncio.timeout(30):
        while "uses" not in (shown := (await here.ask("get", name="git")).json()):
            await asyncio.sleep(0)
    (use,) = shown["uses"]
    assert use.pop("last_used_at") == shown["last_used_at"]
    assert use == {"purpose": "tool mcp__git__push", "agent": "helper", "user": "ada", "run_id": "r_2", "count": 2}
    (listed,) = (await here.ask("list")).json()["credentials"]
    assert (listed["use_count"], "uses" in listed) == (2, False)
    positions = here.directory.credential_positions("acme")
    await here.set("another")
    assert positions != here.directory.credential_positions("acme")


async def test_a_reference_is_stored_and_its_value_is_not(here: Here) -> None:
    await here.set()
    answer = await here.ask("create", name="git", backend="files", reference="git")
    assert answer.status_code == 200, answer.text
    listed = (await here.ask("list")).json()["credentials"]
    assert [(row["backend"], row["reference"]) for row in listed] == [("files", "git")]
    assert here.rows.rows == {}
    assert await here.value() == "of a file"
    assert (await here.ask("delete", name="git")).json()["deleted"] is True


async def test_a_new_value_replaces_the_old_one_and_its_row(here: Here) -> None:
    first = await here.set()
    second = await here.set("another-value", key="once")
    again = await here.set("another-value", key="once")
    assert (second["created_at"], again["updated_at"]) == (first["created_at"], second["updated_at"])
    assert await here.value() == "another-value"
    assert len(here.rows.rows) == 1


async def test_the_agent_goes_before_the_user_and_the_user_before_the_tenant(here: Here) -> None:
    await here.set("of the tenant")
    await here.set("of the user", scope="user", scope_id="ada")
    await here.set("of the agent", scope="agent", scope_id="helper")
    assert await here.value(user="bob", agent="other") == "of the tenant"
    assert await here.value(user="ada", agent="other") == "of the user"
    assert await here.value(user="ada", agent="helper") == "of the agent"
    listed = (await here.ask("list", scope="user", scope_id="ada")).json()
    assert [row["scope_id"] for row in listed["credentials"]] == ["ada"]


async def test_a_credential_that_is_removed_is_gone_with_its_row(here: Here) -> None:
    await here.set()
    assert (await here.ask("delete", name="git")).json() == {"name": "git", "scope": "tenant", "deleted": True}
    assert (await here.ask("delete", name="git")).json()["deleted"] is False
    assert (await here.value(), here.rows.rows) == ("", {})
    assert (await here.ask("get", name="git")).status_code == 422


async def test_an_erasure_takes_the_credentials_of_its_subject_along(tmp_path: Path) -> None:
    rows = MemoryStoredCredentialRows()
    async with served(tmp_path, encrypted=True, family_options=[IdentityOptions(secret=KEY, rows=rows)]) as made:
        here = Here(made, rows, NO_STORES)
        await here.set(scope="user", scope_id="ada")
        await here.set(name="crm", scope="user", scope_id="ada", value="another")
        await here.set(scope="user", scope_id="bob")
        await here.set(scope="agent", scope_id="helper")
        ((key, version), *_) = sorted(rows.rows)
        left_over = replace(key, scope="user", scope_id="ada", name="died")
        await here.store.put(left_over, version, "the process died before its event")
        place = "/v1/_erasure?tenant=acme"
        client = made.client()
        for subject, known in (("ada", ["crm", "git"]), ("(tenant)", ["git"])):
            report = (await client.get(f"{place}&subject={subject}")).json()
            assert report["tier1_covered"]["counts"]["credentials"] == len(known)
            dry = (await client.post(place, json={"subject": subject})).json()
            assert [one["name"] for one in dry["credentials"]] == known
            assert dry["known"] is True
            body = {"subject": subject, "dry_run": False, "confirm": subject}
            done = (await client.post(place, json=body)).json()
            assert (done["deleted"]["credentials"], done["receipt"]["deleted"]["credentials"]) == (len(known),) * 2
            assert done["incomplete"] == []
            assert (await client.get(f"{place}&subject={subject}")).json()["credentials"] == []
        assert [place[0].scope_id for place in rows.rows] == ["bob"]
        assert await here.value(user="ada", agent="helper") == ""
        assert await here.value(user="bob") == VALUE


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": "no spaces"}, "name"),
        ({"name": "x" * 65}, "name"),
        ({"value": ""}, "value"),
        ({"value": "ä" * (CREDENTIAL_BYTES_MAX // 2 + 1)}, "value"),
        ({"scope": "planet"}, "scope"),
        ({"scope_id": "ada"}, "scope_id"),
        ({"scope": "agent"}, "scope_id"),
        ({"backend": "vault"}, "backend vault: expected reference, and no value"),
        ({"backend": "vault", "value": "", "reference": "a"}, "no store 'vault' for the tenant acme"),
        ({"backend": "files", "value": "", "reference": "../a"}, "reference: expected path/to/secret"),
        ({"backend": "env", "value": "", "reference": "HOME"}, "reference: HOME is not set, or the tenant acme"),
        ({"reference": "a"}, "backend inline: expected value, and no reference"),
        ({"backend": "oauth"}, "value: expected a JSON object with the fields token_url"),
        ({"backend": "github_app"}, "value: expected a JSON object with app_id"),
        ({"expires_at": "soon"}, "expires_at"),
        ({"secret": "x"}, "secret"),
    ],
)
async def test_what_cannot_be_stored_is_refused_without_the_value(
    fields: dict[str, Any], words: str, here: Here
) -> None:
    answer = await here.ask("create", **{"name": "git", "value": VALUE, **fields})
    assert (answer.status_code, answer.json()["code"]) == (422, "tool_refused"), answer.text
    assert words in answer.json()["error"]
    assert VALUE not in answer.text
    assert here.rows.rows == {}


async def test_without_a_secret_key_nothing_is_stored(tmp_path: Path) -> None:
    async with served(tmp_path, family_options=[IdentityOptions()]) as made:
        body = {"op": "create", "name": "git", "value": VALUE}
        answer = await made.client(ACME).post(ROUTE, json=body)
        assert (answer.status_code, answer.json()["code"]) == (503, "credentials_off")


class Killed(Exception):
    """The process is gone at this place."""


@pytest.mark.parametrize("by_the_same_request", [True, False])
@pytest.mark.parametrize("step", ["put", "delete"])
async def test_an_api_that_is_killed_between_row_and_event_leaves_nothing_half_done(
    step: str, by_the_same_request: bool, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    await here.set("first")
    method = getattr(here.rows, step)

    async def killed(*args: Any, **more: Any) -> None:
        if step == "put":
            await method(*args, **more)
        raise Killed

    monkeypatch.setattr(here.rows, step, killed)
    died = await here.ask("create", name="git", value="second", key="once")
    assert died.status_code == 500
    monkeypatch.setattr(here.rows, step, method)
    assert len(here.rows.rows) == 2
    assert await here.value() == ("first" if step == "put" else "second"), "a row counts once its event is there"
    again = await here.ask("create", name="git", value="second", key="once" if by_the_same_request else "")
    assert again.status_code == 200, again.text
    assert await here.value() == "second"
    assert len(here.rows.rows) == 1


async def test_a_removal_that_is_killed_after_its_event_is_done(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    await here.set()

    async def killed(*args: Any, **more: Any) -> None:
        raise Killed

    monkeypatch.setattr(here.rows, "delete", killed)
    assert (await here.ask("delete", name="git")).status_code == 500
    monkeypatch.undo()
    assert await here.value() == ""
    assert (await here.ask("delete", name="git")).json()["deleted"] is False
    ((_, version),) = here.rows.rows
    assert await rewrap(here.store, here.directory, now_ms=version + LEFT_OVER_MS + 1) == (0, 1)
    await here.set("again")
    assert await here.value() == "again"


async def test_a_row_that_no_event_names_is_deleted_later_and_others_are_encrypted_again(here: Here) -> None:
    await here.set()
    ((key, version),) = here.rows.rows
    await here.store.put(key, version + 1, "the process died before its event")
    assert await rewrap(here.store, here.directory, now_ms=version + 1) == (1, 0)
    assert await rewrap(here.store, here.directory, now_ms=version + LEFT_OVER_MS + 2) == (1, 1)
    answer = await here.served.client(ADMIN_CALLER).post(f"{ROUTE}/rewrap", json={})
    assert answer.json() == {"rewrapped": 1, "deleted": 0}
    assert await here.value() == VALUE


def _place(position: str) -> tuple[int, int]:
    parsed = Position.parse(position)
    return parsed.partition, parsed.offset
