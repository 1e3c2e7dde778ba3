"""A small loomlog in memory: the log's twin, an owner with the real rules, the read models' twin, and a command layer.

The owner takes commands at once and does what the name of the agent says:

    soaker   answers "ok" and is done       parker   answers and parks until it gets input
    silent   starts and then does nothing   deaf     its commands are not even read
    teller   as silent, with rules for its calls

Tests write any other event with `world.happen`. `world.projecting = False` stops the read models where they are.
"""

import asyncio
import contextlib
import hashlib
import itertools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from loomlog.connectors.configuration.principals import Principal, TokenTable
from loomlog.connectors.crypto.content_encryption import KeyEncryptionKeys, key_encryption_key_id
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ConsumerRecord
from loomlog.connectors.storage.blobs import MemoryBlobs
from loomlog.projections.engine.positions import WaitResult
from loomlog.schemas.codec import local_codec
from loomlog.schemas.conversation import Message
from loomlog.schemas.ids import fresh_token
from loomlog.schemas.position import Position
from loomlog.services.application.application import Application
from loomlog.services.application.authentication import Authenticator
from loomlog.services.application.resources import TOPICS, ApplicationResources, Waits
from loomlog.services.application.streaming.event_hub import EventHub, HubStart
from loomlog.services.application.streaming.items import StreamChunk
from loomlog.services.application.streaming.run_stream import RunStream
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.scopes import ADMIN, RUNS_CREATE, RUNS_READ, TENANT, USER
from loomlog.services.core.families import Family
from loomlog.services.core.refusals import Refused
from loomlog.services.core.run.state import State
from loomlog.services.families.ports.entity_ends import EntityEnds
from loomlog.services.stream.encryption.subject_keys import SubjectKeys
from tests.projections.twin import Twin
from tests.services.application.entity_owner import entity_parts
from tests.services.application.entity_owner import follow as follow_entities
from tests.services.application.entity_owner import own as own_entities
from tests.services.application.log.memory_access import memory_access
from tests.services.application.owner import NOW_MS, PARTITIONS, WAIT_S, RunOwner
from tests.services.application.tables import TwinProjection
from tests.services.log_entities import LogEntities

KEK = b"k" * 32
ADMIN_CALLER = Caller(name="shared", tenant="default", subject="default", scopes=frozenset({ADMIN}), legacy=True)
ACME = Caller(name="acme", tenant="acme", subject="acme-op", scopes=frozenset({TENANT}))
GLOBEX = Caller(name="globex", tenant="globex", subject="globex-op", scopes=frozenset({TENANT}))
IVY = Caller(name="ivy", tenant="acme", subject="ivy", scopes=frozenset({USER}))
READER = Caller(
    name="rob", tenant="acme", subject="rob", scopes=frozenset({RUNS_READ}), isolated_users=frozenset({"ivy"})
)
STARTER = Caller(
    name="mem", tenant="acme", subject="mem", scopes=frozenset({RUNS_CREATE}), isolated_users=frozenset({"ivy"})
)
CALLERS = (ADMIN_CALLER, ACME, GLOBEX, IVY, READER, STARTER)


def tokens() -> TokenTable:
    """Everybody's token is `<name>-token`."""
    return TokenTable(
        rows=tuple(
            (
                hashlib.sha256(f"{caller.name}-token".encode()).digest(),
                Principal(
                    name=caller.name,
                    tenant=caller.tenant,
                    subject=caller.subject,
                    scopes=caller.scopes,
                    legacy=caller.legacy,
                ),
            )
            for caller in CALLERS
        )
    )


class World(RunOwner):
    """See the module. Use `async with world() as w`."""

    def __init__(
        self,
        *,
        projecting: bool = True,
        encrypted: bool = False,
        waits: Mapping[str, float] = MappingProxyType({}),
        families: Sequence[Family[Any, Any, Any]] | None = None,
        **layer: Any,
    ) -> None:
        self.log = MemoryLog(
            dict.fromkeys((TOPICS.commands, TOPICS.events, TOPICS.previews), PARTITIONS)
            | {TOPICS.subjects: 1, TOPICS.providers: 1, TOPICS.ingress: PARTITIONS}
        )
        self.codec = local_codec()
        self.twin = Twin()
        self.projecting = projecting
        self.now_ms = NOW_MS
        """When answers of people are decided."""
        self.said = ""
        """What the model has said so far when a turn is stopped."""
        self.unfoldable = ""
        """Why a released run cannot be folded; empty when it can."""
        self.postgres_is_away = False
        self.summary = "they talked"
        """What a model makes of any conversation; with `summary_error` it makes none."""
        self.summary_error = ""
        self.blobs = MemoryBlobs()
        self.hub = EventHub(self.codec, {partition: HubStart() for partition in range(PARTITIONS)})
        self.states: dict[str, State] = {}
        self.tenants: dict[str, str] = {}
        self.histories: dict[str, tuple[Message, ...]] = {}
        """What forks begin with."""
        self.cascaded: dict[str, tuple[str, ...]] = {}
        self.owner_is_busy = False
        """Commands are read and ignored."""
        """Handles of the descendants of runs, for those that have any."""
        self.seqs: dict[str, int] = {}
        self.terms: dict[int, int] = {}
        self._digests: dict[str, bytes] = {}
        self._projected = dict.fromkeys(range(PARTITIONS), 0)
        self._counter = itertools.count(1)
        self.keys = self.keys_of_a_process() if encrypted else None
        entities = LogEntities()
        ends = EntityEnds(read=partial(self.log.end_offsets, TOPICS.entities.events, PARTITIONS))
        options = [*layer.pop("family_options", ()), ends]
        resources = ApplicationResources(
            **{
                "authenticator": Authenticator(tokens()),
                "hub": self.hub,
                "appender": self.log,
                "ranges": self.log,
                "projection": TwinProjection(self),
                "positions": self,
                "blobs": self.blobs,
                "codec": self.codec,
                "keepalive_s": 30.0,
                "clock_ms": lambda: NOW_MS,
                "new_token": self.token,
                "waits": Waits(**{"publish_s": 0.4, "decision_s": 0.4, "control_s": 2.0, **waits}),
                "keys": self.keys,
                "entities": entity_parts(self.log, PARTITIONS),
                "entity_commands": entities,
                "entity_reads": entities,
                "log_access": memory_access(self.log),
                "family_options": options,
                **layer,
            }
        )
        self.layer = Application(resources, families)
        entities.attach(self.log, self.layer.resources.entities)
        for partition in range(PARTITIONS):
            self.claim(partition)

    def token(self) -> str:
        return fresh_token(NOW_MS, next(self._counter).to_bytes(8, "big") + b"\0\0")

    def keys_of_a_process(self) -> SubjectKeys:
        """What another process knows of the keys of subjects: nothing yet."""
        keys = KeyEncryptionKeys(current=key_encryption_key_id(KEK), keys={key_encryption_key_id(KEK): KEK})
        return SubjectKeys(self.codec, self.log, self.log, keys, topic=TOPICS.subjects, clock_ms=lambda: NOW_MS)

    # --- the owner ---------------------------------------------------------------------------------------------------

    # --- the read models ---------------------------------------------------------------------------------------------

    def project(self) -> None:
        """Brings the read models up to the end of the log."""
        for partition in range(PARTITIONS):
            records: Sequence[ConsumerRecord] = self.log.records[TOPICS.events, partition][self._projected[partition] :]
            if records:
                self.twin.apply(records)
                self._projected[partition] += len(records)

    async def wait(self, position: Position, *, timeout_s: float) -> WaitResult:
        """Protocol Positions."""
        if self.projecting:
            self.project()
        known = self._projected[position.partition]
        return WaitResult(is_reached=known > position.offset, lag=max(0, position.offset + 1 - known))

    # --- looking on --------------------------------------------------------------------------------------------------

    def commands(self) -> list[Any]:
        """Every command in the log."""
        return [
            self.codec.decode(record.value or b"").record
            for partition in range(PARTITIONS)
            for record in self.log.records[TOPICS.commands, partition]
        ]


@contextlib.asynccontextmanager
async def world(*, owner: bool = True, entity_owner: bool = True, **more: Any) -> AsyncIterator[World]:
    """A World whose hub, publisher and owners are at work."""
    made = World(**more)
    await made.layer.publisher.open()
    events = made.log.tail(TOPICS.events, dict.fromkeys(range(PARTITIONS), 0))
    previews = made.log.tail(TOPICS.previews, dict.fromkeys(range(PARTITIONS), 0))
    providers = made.log.tail(TOPICS.providers, {0: 0})
    beside = [
        *([lambda: own_entities(made.log, PARTITIONS, lambda: NOW_MS)] if entity_owner else []),
        lambda: follow_entities(made.layer.resources.entities, made.log),
        lambda: made.layer.provider_table.follow(providers),
        *([made.own] if owner else []),
    ]
    if made.keys is not None:
        beside.append(partial(made.keys.global_table.follow, made.log.tail(TOPICS.subjects, {0: 0})))
    work = asyncio.create_task(made.layer.run(events, previews, *beside))
    try:
        await asyncio.sleep(0)
        yield made
    finally:
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work


async def pieces_of(stream: RunStream) -> list[StreamChunk]:
    """Everything a stream gives until its end."""
    result: list[StreamChunk] = []
    async with asyncio.timeout(WAIT_S):
        while (pieces := await stream.next()) is not None:
            result += pieces
    return result


async def until_type(stream: RunStream, kind: str) -> list[StreamChunk]:
    """What a stream gives up to a frame of that type."""
    result: list[StreamChunk] = []
    async with asyncio.timeout(WAIT_S):
        while not any(piece.type == kind for piece in result):
            pieces = await stream.next()
            assert pieces is not None, f"the stream ended ({stream.end_reason}) before {kind}: {types_of(result)}"
            result += pieces
    return result


def types_of(pieces: Sequence[StreamChunk]) -> list[str]:
    return [piece.type for piece in pieces]


async def declined(asked: Any) -> Refused:
    """What a use case was declined with."""
    try:
        async with asyncio.timeout(WAIT_S):
            values = await asked
    except Refused as found:
        return found
    raise AssertionError(f"it was not declined but gave {values!r}")


async def until(check: Callable[[], object]) -> None:
    """Until it is so; lets the others work meanwhile."""
    async with asyncio.timeout(WAIT_S):
        while not check():
            await asyncio.sleep(0)
