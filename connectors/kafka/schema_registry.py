"""Schema ids from a registry with Confluent's REST API (Confluent, Redpanda, Apicurio), so that other teams' consumers
find our schemas where they look for all others.

The subject of a record is its full name. Every released version is looked up there; missing ones are registered, oldest
first, after the subject's compatibility was set to BACKWARD_TRANSITIVE (today's reader understands everything ever
written). So only the first start after an upgrade writes, and read-only credentials are enough as long as nothing is
missing. The registry is used at the start only.

The ids of a registry are not those of schemas/ids.json. A log is written with one kind of ids from its first record on:
records that were written without the registry carry ids that mean nothing, or something else, in it.

Before: the settings, once in each main(). After: schemas.codec with the table of ids. Not chosen: looking up unknown
ids while reading (a record of a newer version waits for a newer reader, whatever the registry returns).
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass

import httpx

from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.schemas.codec import HERE, Codec, local_codec

COMPATIBILITY = "BACKWARD_TRANSITIVE"
MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
TIMEOUT_S = 10.0
"""Time limit of one request."""
START_TIMEOUT_S = 60.0
"""Time limit of the whole exchange; about thirty subjects with one request each, or three when all are new."""
MAX_CONCURRENT_SUBJECTS = 4
"""Concurrent subjects; a registry serializes writes anyway."""
MAX_RESPONSE_BYTES = 1024 * 1024
MAX_SHOWN_CHARACTERS = 300
"""Maximum characters of a registry's response in a message."""
MAX_ID = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ReleasedSchema:
    """One released version of a record: its complete JSON text."""

    name: str
    version: int
    text: str


async def load_codec(settings: Settings) -> Codec:
    """Load the codec of this installation: with the registry's ids when one is set, otherwise with the committed lock.

    Raises Transient or Permanent when the registry does not return every id.
    """
    if not settings.schema_registry:
        return local_codec()
    schemas = await asyncio.to_thread(load_released_schemas)
    ids = await register_schemas(settings.schema_registry, schemas)
    return await asyncio.to_thread(Codec, ids)


def load_released_schemas() -> tuple[ReleasedSchema, ...]:
    """Read every version of every record from files; versions of a record in order, oldest first."""
    schemas: list[ReleasedSchema] = []
    for path in (HERE / "released").glob("*/*.avsc"):
        # Without spaces and line ends: this is the text that the registry stores and shows.
        text = json.dumps(json.loads(path.read_text()), separators=(",", ":"), ensure_ascii=False)
        schemas.append(ReleasedSchema(path.parent.name, int(path.stem), text))
    return tuple(sorted(schemas, key=lambda schema: (schema.name, schema.version)))


async def register_schemas(url: str, schemas: tuple[ReleasedSchema, ...]) -> dict[int, tuple[str, int]]:
    """Return the registry's ids of these schemas, registering missing ones: by id, (full record name, our version).

    `url` may contain user and password. Raises Transient or Permanent.
    """
    address = httpx.URL(url)
    names = sorted({schema.name for schema in schemas})
    versions: dict[int, tuple[str, int]] = {}
    slots = asyncio.Semaphore(MAX_CONCURRENT_SUBJECTS)
    async with _client(address) as client:
        registry = _Registry(client, str(address.copy_with(userinfo=b"")).rstrip("/"))

        async def one(name: str) -> dict[int, int]:
            async with slots:
                return await registry.resolve_ids(name, [schema for schema in schemas if schema.name == name])

        try:
            async with asyncio.timeout(START_TIMEOUT_S), asyncio.TaskGroup() as group:
                tasks = {name: group.create_task(one(name)) for name in names}
        except TimeoutError as error:
            raise Transient(
                f"schema registry {registry.address}: not done with {len(names)} subjects in {START_TIMEOUT_S:g} s",
                kind="timeout",
            ) from error
        except ExceptionGroup as failures:
            raise _first_failure(failures) from failures
    for name, task in tasks.items():
        for schema_id, version in task.result().items():
            if schema_id in versions:
                raise Permanent(
                    f"schema registry {registry.address}: gives the id {schema_id} to {versions[schema_id][0]} and to "
                    f"{name}; expected one id for each schema",
                    kind="invalid",
                )
            versions[schema_id] = (name, version)
    return versions


def _client(address: httpx.URL) -> httpx.AsyncClient:
    auth = httpx.BasicAuth(address.username, address.password) if address.userinfo else None
    # No settings from the environment: credentials must not go through a proxy that was not configured.
    return httpx.AsyncClient(auth=auth, timeout=TIMEOUT_S, trust_env=False, headers={"Accept": MEDIA_TYPE})


def _first_failure(failures: ExceptionGroup[Exception]) -> Exception:
    """Return the first failure: the others are mostly equal, or cancellations because of it."""
    for failure in failures.exceptions:
        if isinstance(failure, ConnectorError):
            return failure
    return failures.exceptions[0]


class _Registry:
    """The three requests in use. `address` has no credentials."""

    def __init__(self, client: httpx.AsyncClient, address: str) -> None:
        self.address = address
        self._client = client

    async def resolve_ids(self, name: str, schemas: list[ReleasedSchema]) -> dict[int, int]:
        """Return the version of each registry id, for the versions of one record."""
        ids = {schema.version: await self._look_up(schema) for schema in schemas}
        if None in ids.values():
            what = f"setting the compatibility of {name} to {COMPATIBILITY}"
            await self._request("PUT", f"/config/{name}", {"compatibility": COMPATIBILITY}, what)
        for schema in schemas:
            if ids[schema.version] is None:
                ids[schema.version] = await self._register(schema)
        return {schema_id: version for version, schema_id in ids.items() if schema_id is not None}

    async def _look_up(self, schema: ReleasedSchema) -> int | None:
        what = f"looking up {schema.name} version {schema.version}"
        answer = await self._request("POST", f"/subjects/{schema.name}", _body(schema), what, allow_missing=True)
        return None if answer is None else self._parse_id(answer, what)

    async def _register(self, schema: ReleasedSchema) -> int:
        what = f"registering {schema.name} version {schema.version}"
        answer = await self._request("POST", f"/subjects/{schema.name}/versions", _body(schema), what)
        assert answer is not None
        return self._parse_id(answer, what)

    def _parse_id(self, answer: Mapping[str, object], what: str) -> int:
        schema_id = answer.get("id")
        if type(schema_id) is not int or not 0 < schema_id <= MAX_ID:
            raise Permanent(
                f"schema registry {self.address}: {what} was answered with the id {schema_id!r:.60}; expected a whole "
                f"number from 1 to {MAX_ID}. Is this a schema registry?",
                kind="invalid",
            )
        return schema_id

    async def _request(
        self, method: str, path: str, body: Mapping[str, str], what: str, *, allow_missing: bool = False
    ) -> Mapping[str, object] | None:
        """Return the JSON object of the response; None for 404 where that is allowed."""
        try:
            # Credentials are sent as a header; the address never contains them, so no message can.
            async with self._client.stream(method, self.address + path, json=body) as response:
                data = await self._read_bounded(response, what)
        except httpx.TimeoutException as error:
            raise Transient(
                f"schema registry {self.address}: {what} was not answered in {TIMEOUT_S:g} s", kind="timeout"
            ) from error
        except httpx.HTTPError as error:
            raise Transient(
                f"schema registry {self.address}: {what} failed ({type(error).__name__}: {error}); is it running?",
                kind="network",
            ) from error
        if response.status_code == 404 and allow_missing:
            return None
        if response.status_code != 200:
            raise self._status_error(response.status_code, data, what)
        try:
            answer = json.loads(data)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise Permanent(
                f"schema registry {self.address}: {what} was answered with {data[:60]!r}; expected a JSON object. "
                "Is this a schema registry?",
                kind="invalid",
            )
        return answer

    async def _read_bounded(self, response: httpx.Response, what: str) -> bytes:
        data = bytearray()
        async for chunk in response.aiter_bytes():
            data += chunk
            if len(data) > MAX_RESPONSE_BYTES:
                raise Permanent(
                    f"schema registry {self.address}: {what} was answered with more than {MAX_RESPONSE_BYTES} bytes",
                    kind="invalid",
                )
        return bytes(data)

    def _status_error(self, status: int, data: bytes, what: str) -> ConnectorError:
        body = data.decode(errors="replace")[:MAX_SHOWN_CHARACTERS]
        text = f"schema registry {self.address}: {what} was refused with {status}: {body}"
        if status == 429 or status >= 500:
            return Transient(text, kind="rate_limited" if status == 429 else "unavailable", status=status)
        kind, hint = STATUS_ERRORS.get(
            status, ("invalid", "is LOOMLOG_SCHEMA_REGISTRY the address of a schema registry?")
        )
        return Permanent(f"{text}; {hint}", kind=kind, status=status)


STATUS_ERRORS = {
    401: ("unauthorised", "give user and password in LOOMLOG_SCHEMA_REGISTRY (http://user:password@host:port)"),
    403: ("forbidden", "let this user write the subject and its config, or register the schemas beforehand"),
    404: ("not_found", "is LOOMLOG_SCHEMA_REGISTRY the address of a schema registry?"),
    409: ("refused", "the subject holds a schema that this one cannot read; did another system register it?"),
    422: ("invalid", "the registry does not accept the schema or the compatibility level"),
}


def _body(schema: ReleasedSchema) -> Mapping[str, str]:
    return {"schema": schema.text, "schemaType": "AVRO"}
