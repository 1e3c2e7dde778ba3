"""Against a registry of our own on loopback that behaves as Confluent's does, as far as we use it."""

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.connectors.kafka import schema_registry
from loomlog.connectors.kafka.schema_registry import (
    COMPATIBILITY,
    MAX_RESPONSE_BYTES,
    ReleasedSchema,
    load_codec,
    load_released_schemas,
    register_schemas,
)
from loomlog.schemas.codec import HERE, UnknownSchema, local_codec
from loomlog.schemas.generated.run_commands import CancelRun, StartRun
from loomlog.schemas.generated.values import CommandEnvelope

Answer = tuple[int, Any]
COMMAND = CancelRun(envelope=CommandEnvelope(command_id="c"), run_id="r_1")


@dataclass
class FakeRegistry:
    """Subjects with their versions. Ids begin at 1000 and belong to the schema's text, whatever its subject."""

    subjects: dict[str, list[str]] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    compatibility: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    credentials: set[str] = field(default_factory=set)
    instead: Callable[[str, str], Answer | bytes | None] = lambda method, path: None
    """Answers first when it gives something; bytes are sent as they are."""
    url: str = ""

    def answer(self, method: str, path: str, body: Any) -> Answer:
        self.asked.append(f"{method} {path}")
        first, *rest = path.strip("/").split("/")
        match method, first, rest:
            case "PUT", "config", [subject]:
                self.compatibility[subject] = body["compatibility"]
                return 200, body
            case "POST", "subjects", [subject]:
                if subject not in self.subjects:
                    return 404, {"error_code": 40401, "message": "Subject not found"}
                if body["schema"] not in self.subjects[subject]:
                    return 404, {"error_code": 40403, "message": "Schema not found"}
                return 200, {"subject": subject, "id": self.ids[body["schema"]], "schema": body["schema"]}
            case "POST", "subjects", [subject, "versions"]:
                assert self.compatibility.get(subject) == COMPATIBILITY, "registered before the level was set"
                assert body["schemaType"] == "AVRO"
                versions = self.subjects.setdefault(subject, [])
                if body["schema"] not in versions:
                    versions.append(body["schema"])
                return 200, {"id": self.ids.setdefault(body["schema"], 1000 + len(self.ids))}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                line, *fields = head.split("\r\n")
                method, path, _ = line.split(" ")
                headers = {name.lower(): value for name, _, value in (f.partition(": ") for f in fields)}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                self.credentials.add(headers.get("authorization", ""))
                found = self.instead(method, path)
                if isinstance(found, bytes):
                    writer.write(found)
                    await writer.drain()
                    break
                status, said = found or self.answer(method, path, json.loads(body))
                data = said if isinstance(said, bytes) else json.dumps(said).encode()
                writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
                await writer.drain()
        writer.close()


@pytest.fixture
async def registry() -> AsyncIterator[FakeRegistry]:
    found = FakeRegistry()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield found
    server.close()


def instead(status: int, said: Any = "no", *, of: str = "") -> Callable[[str, str], Answer | None]:
    return lambda method, path: (status, said) if f"{method} {path}".startswith(of) else None


async def test_without_a_registry_the_committed_lock_is_used() -> None:
    assert await load_codec(Settings()) is local_codec()


async def test_every_schema_is_registered_and_the_codec_writes_its_ids(registry: FakeRegistry) -> None:
    codec = await load_codec(Settings(schema_registry=registry.url))
    names = set(json.loads((HERE / "ids.json").read_text()))
    assert set(registry.subjects) == names
    assert registry.compatibility == dict.fromkeys(names, COMPATIBILITY)
    value = codec.encode(COMMAND)
    assert int.from_bytes(value[1:5], "big") == codec.schema_id_of(CancelRun.SCHEMA) >= 1000
    assert codec.decode(value).record == COMMAND
    with pytest.raises(UnknownSchema):
        local_codec().decode(value)


async def test_the_second_start_asks_and_writes_nothing(registry: FakeRegistry) -> None:
    first = await register_schemas(registry.url, load_released_schemas())
    registry.asked.clear()
    assert await register_schemas(registry.url, load_released_schemas()) == first
    assert not [line for line in registry.asked if line.startswith("PUT") or line.endswith("/versions")]


async def test_all_versions_of_a_record_get_their_ids_oldest_first(registry: FakeRegistry) -> None:
    versions = (ReleasedSchema("loom.X", 1, '"string"'), ReleasedSchema("loom.X", 2, '"bytes"'))
    ids = await register_schemas(registry.url, versions)
    assert registry.subjects["loom.X"] == ['"string"', '"bytes"']
    assert sorted(ids.values()) == [("loom.X", 1), ("loom.X", 2)]
    third = (*versions, ReleasedSchema("loom.X", 3, '"long"'))
    registry.asked.clear()
    assert len(await register_schemas(registry.url, third)) == 3
    assert sum(line.endswith("/versions") for line in registry.asked) == 1


def test_the_released_schemas_are_those_of_the_lock_and_stand_alone() -> None:
    lock = json.loads((HERE / "ids.json").read_text())
    found = load_released_schemas()
    assert {(s.name, s.version) for s in found} == {(name, v["version"]) for name, vs in lock.items() for v in vs}
    for schema in found:
        plain = json.loads(schema.text)
        assert f"{plain['namespace']}.{plain['name']}" == schema.name
    assert StartRun.SCHEMA in {schema.name for schema in found}


async def test_user_and_password_of_the_address_are_sent_and_never_shown(registry: FakeRegistry) -> None:
    url = registry.url.replace("http://", "http://us%40er:s%2Fecret@")
    await register_schemas(url, load_released_schemas()[:1])
    assert registry.credentials == {"Basic " + base64.b64encode(b"us@er:s/ecret").decode()}
    registry.instead = instead(403)
    with pytest.raises(Permanent) as failure:
        await register_schemas(url, load_released_schemas()[:1])
    assert "ecret" not in str(failure.value)
    assert registry.url in str(failure.value)


@pytest.mark.parametrize(
    ("status", "kind", "hint"),
    [
        (401, "unauthorised", "user:password"),
        (403, "forbidden", "beforehand"),
        (409, "refused", "cannot read"),
        (422, "invalid", "does not accept"),
        (400, "invalid", "address of a schema registry"),
        (302, "invalid", "address of a schema registry"),
    ],
)
async def test_a_refusal_is_permanent_and_says_what_to_do(
    registry: FakeRegistry, status: int, kind: str, hint: str
) -> None:
    registry.instead = instead(status, {"message": "the registry's own words"}, of="POST /subjects/loom.X/versions")
    with pytest.raises(Permanent, match=hint) as failure:
        await register_schemas(registry.url, (ReleasedSchema("loom.X", 1, '"string"'),))
    assert (failure.value.kind, failure.value.status) == (kind, status)
    assert "registering loom.X version 1" in str(failure.value)
    assert "the registry's own words" in str(failure.value)


@pytest.mark.parametrize(("status", "kind"), [(500, "unavailable"), (503, "unavailable"), (429, "rate_limited")])
async def test_a_registry_in_trouble_is_transient(registry: FakeRegistry, status: int, kind: str) -> None:
    registry.instead = instead(status)
    with pytest.raises(Transient) as failure:
        await register_schemas(registry.url, load_released_schemas())
    assert (failure.value.kind, failure.value.status) == (kind, status)


@pytest.mark.parametrize(
    "said",
    [b"<html>", b"[]", b'{"id": "7"}', b'{"id": 0}', b'{"id": true}', b'{"id": 4294967296}', b"{}", b"\xff"],
)
async def test_an_answer_that_no_registry_gives_is_permanent(registry: FakeRegistry, said: bytes) -> None:
    registry.instead = instead(200, said)
    with pytest.raises(Permanent, match="registry"):
        await register_schemas(registry.url, load_released_schemas()[:1])


async def test_an_answer_without_end_is_cut(registry: FakeRegistry) -> None:
    registry.instead = instead(200, b" " * (MAX_RESPONSE_BYTES + 1))
    with pytest.raises(Permanent, match="more than"):
        await register_schemas(registry.url, load_released_schemas()[:1])


async def test_one_id_for_two_records_is_refused(registry: FakeRegistry) -> None:
    same = (ReleasedSchema("loom.X", 1, '"string"'), ReleasedSchema("loom.Y", 1, '"string"'))
    with pytest.raises(Permanent, match=r"loom\.X and to loom\.Y"):
        await register_schemas(registry.url, same)


async def test_a_registry_that_is_not_there_or_hangs_up_is_transient(registry: FakeRegistry) -> None:
    registry.instead = lambda method, path: b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"
    with pytest.raises(Transient, match="is it running"):
        await register_schemas(registry.url, load_released_schemas()[:1])
    with pytest.raises(Transient, match="is it running"):
        await register_schemas("http://127.0.0.1:1", load_released_schemas()[:1])


async def test_a_registry_that_does_not_answer_is_left_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry, "START_TIMEOUT_S", 0.05)
    server = await asyncio.start_server(lambda reader, writer: asyncio.sleep(60), "127.0.0.1", 0)
    with pytest.raises(ConnectorError, match="subjects in") as failure:
        await register_schemas(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", load_released_schemas())
    assert isinstance(failure.value, Transient)
    monkeypatch.setattr(schema_registry, "START_TIMEOUT_S", 5)
    monkeypatch.setattr(schema_registry, "TIMEOUT_S", 0.05)
    with pytest.raises(Transient, match=r"not answered in 0\.05 s"):
        await register_schemas(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", load_released_schemas()[:1])
    server.close()
