"""Memory over HTTP: keys, their past, values at a moment, usage, and what is refused."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import httpx
import pytest
import pytest_asyncio

from loomlog.connectors.errors import Transient
from loomlog.connectors.protocols import ProducerRecord
from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.schemas.generated.memory_commands import SetEntry
from loomlog.schemas.generated.values import CommandEnvelope, MemorySource
from loomlog.services.families.memory import FAMILY
from loomlog.services.families.memory.entry_operations import EntryLimits
from loomlog.services.families.memory.limits import KEY_CHARACTERS_MAX, SCOPE_BYTES_DEFAULT, VALUE_BYTES_DEFAULT
from loomlog.services.families.memory.services import MemoryOptions
from loomlog.services.stream.entities.reads import PositionNotRead
from tests.services.api.serving import Served, served
from tests.services.application.world import ACME, ADMIN_CALLER, GLOBEX
from tests.services.entities import UNANSWERED, MemoryEntities

SCOPES = "/v1/_memory/scopes"
USAGE_HEADER = "x-loomlog-memory-usage"
POSITION_HEADER = "x-loomlog-position"
OLD_MS, NOW_MS, LATER_MS = 1_700_000_000_000, 1_800_000_000_000, 1_800_000_060_000
"""Before every run of the world, after all of them, and a minute later."""


class Clock:
    """The time of the api, and that of the owner of the scopes."""

    def __init__(self, entities: MemoryEntities) -> None:
        self.now_ms = NOW_MS
        self._entities = entities

    def set(self, at_ms: int) -> None:
        self.now_ms = self._entities.now_ms = at_ms


@pytest_asyncio.fixture(loop_scope="session")
async def entities() -> MemoryEntities:
    return MemoryEntities(FAMILY)


@pytest.fixture
def clock(entities: MemoryEntities) -> Clock:
    return Clock(entities)


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path, entities: MemoryEntities, clock: Clock) -> AsyncIterator[Served]:
    more: dict[str, Any] = {"entity_commands": entities, "entity_reads": entities, "clock_ms": lambda: clock.now_ms}
    async with served(tmp_path, **more) as made:
        yield made


def path(key: str, scope: str = "user", scope_id: str = "ada") -> str:
    return f"{SCOPES}/{scope}/{quote(scope_id, safe='')}/keys/{quote(key)}"


async def put(here: Served, key: str, value: Any, caller: Any = ACME, **more: Any) -> httpx.Response:
    scope = {name: more.pop(name) for name in ("scope", "scope_id") if name in more}
    answer = await here.client(caller).put(path(key, **scope), json={"value": value, **more})
    assert answer.status_code == 200, answer.text
    return answer


async def get(here: Served, url: str, caller: Any = ACME, status: int = 200, **query: str) -> Any:
    answer = await here.client(caller).get(url, params=query)
    assert answer.status_code == status, answer.text
    return answer.json()


async def value(here: Served, key: str, caller: Any = ACME, **query: str) -> Any:
    return (await get(here, path(key), caller, 200, **query))["entry"]["value"]


async def set_in_run(entities: MemoryEntities, key: str, text: str, call: int = 1) -> None:
    """Set a key of ada as an agent does."""
    source = MemorySource(origin="agent_explicit", run_id="r_1", turn=2, call=call, agent="helper", user_id="ada")
    envelope = CommandEnvelope(command_id=f"r_1:2.{call}", tenant=ACME.tenant, subject="ada", issued_at_ms=1)
    command = SetEntry(envelope=envelope, scope="user", scope_id="ada", key=key, value=text, source=source)
    await entities.ask(command, wait_s=1.0)


def refusal(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


# --- keys ------------------------------------------------------------------------------------------------------------


async def test_a_key_is_put_read_and_deleted(here: Served) -> None:
    answer = await put(here, "colour", {"name": "red", "n": [1, None]})
    written = {"scope": "user", "scope_id": "ada", "key": "colour", "embedded": False}
    assert answer.json() | written == answer.json()
    assert answer.headers[USAGE_HEADER] == f"bytes=27, quota_bytes={SCOPE_BYTES_DEFAULT}, keys=1"
    assert answer.headers[POSITION_HEADER] == "loom.entity.events/1:1"

    shown = await get(here, path("colour"))
    assert {name: shown[name] for name in ("scope", "scope_id")} == {"scope": "user", "scope_id": "ada"}
    entry = shown["entry"]
    assert (entry["key"], entry["value"], entry["revision"]) == ("colour", {"name": "red", "n": [1, None]}, 1)
    assert entry["source"] == {"origin": "operator", "principal": ACME.subject} | entry["source"]
    assert entry["created_at"] == entry["updated_at"] == format_rfc3339(NOW_MS)
    assert "expires_at" not in entry

    for _ in range(2):
        answer = await here.client(ACME).delete(path("colour"))
        assert (answer.status_code, answer.content) == (204, b"")
    assert refusal(await here.client(ACME).get(path("colour"))) == (404, "not_found")


async def test_a_null_is_a_value(here: Served) -> None:
    await put(here, "nothing", None)
    assert (await get(here, path("nothing")))["entry"]["value"] is None


@pytest.mark.parametrize(
    "key",
    [
        "a/b/c",
        "with space",
        "ünï/漢字",
        "100%",
        "a%2Fb",
        "trailing/",
        "a//b",
        "history",
        "?x=1#y",
        "x" * KEY_CHARACTERS_MAX,
    ],
)
async def test_a_key_may_have_any_characters_that_can_be_printed(here: Served, key: str) -> None:
    await put(here, key, key)
    assert (await get(here, path(key)))["entry"]["key"] == key
    assert await value(here, key) == key
    assert [one["key"] for one in (await get(here, f"{SCOPES}/user/ada/keys"))["entries"]] == [key]
    assert (await get(here, path(key) + "/history"))["key"] == key
    assert (await here.client(ACME).delete(path(key))).status_code == 204
    assert (await get(here, f"{SCOPES}/user/ada/keys"))["entries"] == []


async def test_keys_are_listed_in_pages_by_name(here: Served) -> None:
    for key in ("b", "a/2", "a/1", "é", "c"):
        await put(here, key, key)
    url = f"{SCOPES}/user/ada/keys"
    listed = await get(here, url)
    assert [one["key"] for one in listed["entries"]] == ["a/1", "a/2", "b", "c", "é"]
    assert (listed["scope"], listed["scope_id"], listed["truncated"]) == ("user", "ada", False)
    first = await get(here, url, limit="2")
    assert ([one["key"] for one in first["entries"]], first["truncated"]) == (["a/1", "a/2"], True)
    assert [one["key"] for one in (await get(here, url, after="a/2"))["entries"]] == ["b", "c", "é"]
    assert [one["key"] for one in (await get(here, url, prefix="a/"))["entries"]] == ["a/1", "a/2"]
    for limit in ("0", "1001", "-1", "many"):
        assert (await get(here, url, status=400, limit=limit))["code"] == "bad_request"
    assert (await get(here, f"{SCOPES}/user/unknown/keys"))["entries"] == []


async def test_a_key_expires_at_once_and_keeps_its_time_when_it_is_set_again(here: Served, clock: Clock) -> None:
    await put(here, "brief", 1, ttl_seconds=60)
    await put(here, "brief", 2)
    assert (await get(here, path("brief")))["entry"]["expires_at"] == format_rfc3339(LATER_MS)
    clock.set(LATER_MS - 1)
    assert await value(here, "brief") == 2
    clock.set(LATER_MS)
    assert (await get(here, path("brief"), status=404))["code"] == "not_found"
    assert (await get(here, f"{SCOPES}/user/ada/keys"))["entries"] == []
    shown = await get(here, "/v1/_memory/at", scope_id="ada", key="brief", at=format_rfc3339(LATER_MS - 1))
    assert (shown["existed"], shown["value"]) == (True, 2)
    shown = await get(here, "/v1/_memory/at", scope_id="ada", key="brief", at=format_rfc3339(LATER_MS))
    assert (shown["existed"], shown["value"]) == (False, None)


# --- scopes ----------------------------------------------------------------------------------------------------------


async def test_scopes_are_named_and_listed_with_their_sizes(here: Served) -> None:
    assert [one["name"] for one in (await get(here, SCOPES))["scopes"]] == ["agent", "user", "tenant"]
    await put(here, "k", "v")
    await put(here, "l", "value")
    await put(here, "k", 1, scope_id="bob")
    shown = await get(here, f"{SCOPES}/user")
    at = format_rfc3339(NOW_MS)
    assert shown == {
        "scope": "user",
        "scope_ids": [
            {"scope_id": "ada", "key_count": 2, "bytes": 10, "updated_at": at},
            {"scope_id": "bob", "key_count": 1, "bytes": 1, "updated_at": at},
        ],
    }
    assert (await get(here, f"{SCOPES}/agent"))["scope_ids"] == []
    for unknown in ("run", "galaxy", "USER"):
        assert (await get(here, f"{SCOPES}/{unknown}", status=400))["code"] == "invalid_scope"
        assert refusal(await here.client(ACME).put(path("k", scope=unknown), json={"value": 1})) == (
            400,
            "invalid_scope",
        )


# --- who may ---------------------------------------------------------------------------------------------------------


async def test_tenants_do_not_see_one_another_and_an_administrator_names_one(here: Served) -> None:
    await put(here, "k", "of acme")
    await put(here, "k", "of globex", GLOBEX)
    assert await value(here, "k") == "of acme"
    assert await value(here, "k", GLOBEX) == "of globex"
    assert await value(here, "k", ADMIN_CALLER, tenant="acme") == "of acme"
    assert (await get(here, path("k"), ADMIN_CALLER, status=404))["code"] == "not_found"
    assert await value(here, "k", GLOBEX) == "of globex"


# --- the past --------------------------------------------------------------------------------------------------------


async def test_the_history_names_who_made_each_change(here: Served, entities: MemoryEntities) -> None:
    await put(here, "k", "by hand")
    await set_in_run(entities, "k", '"by an agent"')
    await here.client(ACME).delete(path("k"))
    shown = await get(here, path("k") + "/history")
    assert (shown["scope"], shown["scope_id"], shown["key"], shown["next"]) == ("user", "ada", "k", None)
    last, second, first = shown["versions"]
    assert (last["op"], last["revision"], last["previous_revision"], "value" in last) == ("delete", 3, 2, False)
    assert (second["op"], second["value"], second["revision"]) == ("set", "by an agent", 2)
    agent = {"origin": "agent_explicit", "run_id": "r_1", "turn": 2, "call": 1, "agent": "helper", "user_id": "ada"}
    assert second["source"] == agent
    assert (first["value"], first["source"]) == ("by hand", {"origin": "operator", "principal": ACME.subject})
    assert (first["at"], first["position"]) == (format_rfc3339(NOW_MS), "loom.entity.events/1:1")


async def test_the_history_comes_in_pages(here: Served, clock: Clock) -> None:
    for number in range(5):
        clock.set(NOW_MS + number)
        await put(here, "k", number)
    values, cursor = list[int](), ""
    for _ in range(3):
        page = await get(here, path("k") + "/history", limit="2", cursor=cursor)
        values += [version["value"] for version in page["versions"]]
        cursor = page["next"] or ""
    assert (values, cursor) == ([4, 3, 2, 1, 0], "")
    assert (await get(here, path("k") + "/history", status=400, limit="101"))["code"] == "bad_request"


async def test_a_key_that_was_never_set_has_an_empty_history(here: Served) -> None:
    assert (await get(here, path("never") + "/history"))["versions"] == []


async def test_a_key_that_ends_in_history_is_read_while_it_exists(here: Served) -> None:
    await put(here, "a", "the key")
    assert (await get(here, path("a/history")))["versions"][0]["value"] == "the key"
    await put(here, "a/history", "another key")
    assert (await get(here, path("a/history")))["entry"]["value"] == "another key"
    assert (await get(here, path("a/history/history")))["versions"][0]["value"] == "another key"
    assert (await here.client(ACME).delete(path("a/history"))).status_code == 204
    assert (await get(here, path("a/history")))["versions"][0]["value"] == "the key"
    assert await value(here, "a") == "the key"


async def test_only_history_is_the_key_of_that_name(here: Served) -> None:
    assert (await get(here, path("history"), status=404))["code"] == "not_found"
    assert (await get(here, path("/history"), status=404))["code"] == "not_found"


async def test_a_value_at_a_time_and_at_an_event(here: Served, clock: Clock) -> None:
    async def at(**query: str) -> tuple[bool, Any]:
        shown = await get(here, "/v1/_memory/at", ACME, 200, scope_id="ada", key="k", **query)
        assert (shown["scope"], shown["scope_id"], shown["key"]) == ("user", "ada", "k")
        return shown["existed"], shown["value"]

    first = (await put(here, "k", "one")).headers[POSITION_HEADER]
    clock.set(LATER_MS)
    second = (await put(here, "k", "two")).headers[POSITION_HEADER]
    clock.set(LATER_MS + 1000)
    third = (await here.client(ACME).delete(path("k"))).headers[POSITION_HEADER]
    assert await at(at=format_rfc3339(NOW_MS - 1)) == (False, None)
    assert await at(at=format_rfc3339(NOW_MS)) == (True, "one")
    assert await at(at=format_rfc3339(LATER_MS)) == (True, "two")
    assert await at(at=format_rfc3339(LATER_MS + 1000)) == (False, None)
    assert await at(event=first) == (True, "one")
    assert await at(event=second) == (True, "two")
    assert await at(event=third) == (False, None)
    assert await at(event="loom.entity.events/1:0") == (False, None)


async def test_a_value_before_a_run_started(here: Served, clock: Clock) -> None:
    frames = await here.run(caller=ACME)
    run_id = next(frame.data["run_id"] for frame in frames if frame.event == "agent")
    clock.set(OLD_MS)
    await put(here, "k", "before")
    clock.set(NOW_MS)
    await put(here, "k", "after")
    shown = await get(here, "/v1/_memory/at", scope_id="ada", key="k", before_run=run_id)
    assert (shown["existed"], shown["value"]) == (True, "before")
    assert shown["version"]["revision"] == 1
    answer = await here.client(GLOBEX).get(f"/v1/_memory/at?scope_id=ada&key=k&before_run={run_id}")
    assert refusal(answer) == (404, "not_found"), "a run of another tenant"


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"at": "2030-01-01", "event": "loom.entity.events/1:1"},
        {"at": "tomorrow"},
        {"event": "loom.entity.events"},
        {"event": "loom.entity.events/1:-4"},
        {"at": "2030-01-01", "scope": "run"},
    ],
)
async def test_a_moment_that_is_none_is_refused(here: Served, query: Mapping[str, str]) -> None:
    answer = await here.client(ACME).get("/v1/_memory/at", params={"scope_id": "ada", "key": "k", **query})
    assert answer.status_code == 400, answer.text
    assert answer.json()["code"] in ("bad_request", "invalid_scope")


# --- usage and limits ------------------------------------------------------------------------------------------------


async def test_usage_says_what_a_scope_holds_and_how_much_it_may(here: Served) -> None:
    usage = await get(here, "/v1/_memory/usage", scope_id="ada")
    assert usage == {
        "scope": "user",
        "scope_id": "ada",
        "usage": {"bytes": 0, "quota_bytes": SCOPE_BYTES_DEFAULT, "keys": 0},
        "keys_max": 10_000,
    }
    await put(here, "k", "four")
    usage = await get(here, "/v1/_memory/usage", scope="user", scope_id="ada")
    assert usage["usage"] == {"bytes": 6, "quota_bytes": SCOPE_BYTES_DEFAULT, "keys": 1}
    for number in range(13):
        await put(here, f"large{number}", "x" * (VALUE_BYTES_DEFAULT - 2))
    usage = await get(here, "/v1/_memory/usage", scope_id="ada")
    assert "delete what is not needed" in usage["usage_warning"]


async def test_a_value_over_the_limit_is_refused_and_one_at_the_limit_is_kept(here: Served) -> None:
    await put(here, "k", "x" * (VALUE_BYTES_DEFAULT - 2))
    for size in (VALUE_BYTES_DEFAULT - 1, 3_000_000):
        answer = await here.client(ACME).put(path("k"), json={"value": "x" * size})
        assert refusal(answer) == (413, "memory_value_too_large")
    assert len(await value(here, "k")) == VALUE_BYTES_DEFAULT - 2
    # A character that JSON escapes counts as what is stored of it.
    await put(here, "k", "ä" * (VALUE_BYTES_DEFAULT // 2 - 1))


async def test_a_scope_over_its_quota_is_refused(tmp_path: Path, entities: MemoryEntities, clock: Clock) -> None:
    limits = EntryLimits(value_bytes_max=50, scope_bytes_max=100)
    async with served(
        tmp_path, entity_commands=entities, entity_reads=entities, family_options=[MemoryOptions(limits=limits)]
    ) as here:
        warned = [(await put(here, key, "x" * 38)).json() for key in ("a", "b")]
        assert ["usage_warning" in one for one in warned] == [False, True]
        answer = await here.client(ACME).put(path("c"), json={"value": "x" * 38})
        assert refusal(answer) == (413, "memory_quota_exceeded")
        assert "100" in answer.json()["error"]
        await put(here, "c", "y" * 18)
        await put(here, "a", 1)
        assert refusal(await here.client(ACME).put(path("d"), json={"value": "x" * 49})) == (
            413,
            "memory_value_too_large",
        )


# --- dropping a scope ------------------------------------------------------------------------------------------------


async def test_a_scope_is_dropped_only_when_that_is_asked_for(here: Served, entities: MemoryEntities) -> None:
    for number in range(3):
        await put(here, f"k{number}", number)
    await put(here, "k", "bob's", scope_id="bob")
    url = f"{SCOPES}/user/ada"
    for query in ("", "?dry_run=true", "?dry_run=1"):
        answer = await here.client(ACME).delete(url + query)
        assert answer.json() == {"scope": "user", "scope_id": "ada", "dry_run": True, "keys": 3, "bytes": 3}
        assert (answer.status_code, POSITION_HEADER in answer.headers) == (200, False)
    assert refusal(await here.client(ACME).delete(url + "?dry_run=maybe")) == (400, "bad_request")
    assert entities.offset == 4
    answer = await here.client(ACME).delete(f"{url}?dry_run=false&reason=asked+for")
    assert answer.json() == {"scope": "user", "scope_id": "ada", "dry_run": False, "keys": 3}
    assert answer.headers[POSITION_HEADER] == "loom.entity.events/1:5"
    assert (await get(here, f"{url}/keys"))["entries"] == []
    assert await get(here, path("k", scope_id="bob"))
    dropped = (await get(here, path("k1") + "/history"))["versions"][0]
    assert (dropped["op"], dropped["reason"], dropped["source"]["principal"]) == ("drop", "asked for", ACME.subject)
    assert (await here.client(ACME).delete(f"{url}?dry_run=false")).json()["keys"] == 0


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b'{"value":NaN}', 400, "invalid_value"),
        (b'{"value":"\\ud800"}', 400, "invalid_value"),
        (b'{"value":"a\\u0000b"}', 400, "invalid_value"),
        (b'{"value":{"a\\u0000b":1}}', 400, "invalid_value"),
        (b'{"value":' + b"[" * 102 + b"]" * 102 + b"}", 400, "invalid_value"),
        (b"[1]", 400, "invalid_value"),
        (b"{}", 400, "missing_value"),
        (b'{"value":1,"ttl_seconds":-1}', 400, "bad_request"),
        (b'{"value":1,"ttl_seconds":253370764800}', 400, "bad_request"),
        (b'{"value":1,"if_revision":-2}', 400, "bad_request"),
        (b'{"value":"' + b"x" * 100_000 + b'"}', 413, "memory_value_too_large"),
        (b'{"value":1' + b" " * 5_000_000 + b"}", 413, "memory_value_too_large"),
    ],
)
async def test_a_body_that_cannot_be_kept_is_refused(
    here: Served, entities: MemoryEntities, body: bytes, status: int, code: str
) -> None:
    headers = {"content-type": "application/json"}
    answer = await here.client(ACME).put(path("k"), content=body, headers=headers)
    assert refusal(answer) == (status, code), answer.text[:300]
    assert len(answer.json()["error"]) > 10
    assert entities.asked == []


# --- what is away ----------------------------------------------------------------------------------------------------


async def test_without_an_owner_or_rows_it_says_so_and_when_to_come_again(
    here: Served, entities: MemoryEntities
) -> None:
    client = here.client(ACME)
    entities.error = UNANSWERED
    answer = await client.put(path("k"), json={"value": 1})
    assert refusal(answer) == (503, "command_pending")
    assert int(answer.headers["retry-after"]) >= 1
    entities.is_owner = False
    for error in (Transient("the database is away", kind="unavailable"), PositionNotRead("not read yet")):
        entities.error = cast(Any, error)
        for url in (path("k"), f"{SCOPES}/user/ada/keys", f"{SCOPES}/user", path("k") + "/history"):
            answer = await client.get(url)
            assert refusal(answer) == (503, "memory_unavailable"), url
        assert refusal(await client.delete(f"{SCOPES}/user/ada")) == (503, "memory_unavailable")
    entities.error = None
    await put(here, "k", 1)


async def test_a_read_waits_for_what_its_caller_has_written(here: Served, entities: MemoryEntities) -> None:
    position = (await put(here, "k", 1)).headers[POSITION_HEADER]
    urls = (path("k"), f"{SCOPES}/user/ada/keys", path("k") + "/history", "/v1/_memory/usage?scope_id=ada")
    for url in urls:
        assert (await here.client(ACME).get(url, headers={POSITION_HEADER: position})).status_code == 200
        assert (position,) in entities.waited
        entities.waited.clear()
    here.world.log.put(entities.topic, 1, [ProducerRecord(key=None, value=b"")] * 2)
    entities.unread = frozenset({position})
    for url in urls:
        answer = await here.client(ACME).get(url, headers={POSITION_HEADER: position})
        assert refusal(answer) == (503, "not_yet"), url


async def test_ids_with_escaped_slashes_are_ids(here: Served) -> None:
    client = here.client(ACME)
    path = "/v1/_memory/scopes/agent/memory%2Fconsolidator/keys"
    for key in ("a/keys/b", "c/history"):
        assert (await client.put(f"{path}/{key}", json={"value": key})).status_code == 200
    listed = (await client.get(path)).json()
    assert listed["scope_id"] == "memory/consolidator"
    assert [entry["key"] for entry in listed["entries"]] == ["a/keys/b", "c/history"]
    assert (await client.get(f"{path}/a/keys/b")).json()["entry"]["value"] == "a/keys/b"
    assert (await client.get("/v1/_memory/scopes/agent/memory/keys")).json()["entries"] == []
    assert [one["op"] for one in (await client.get(f"{path}/c/history?history=1")).json()["versions"]] == ["set"]
