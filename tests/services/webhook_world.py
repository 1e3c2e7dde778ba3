"""Webhooks over a log in memory: an api, real owners of webhooks, the reader of loom.ingress, and an owner of runs.

async with webhook_world(tmp_path, files={"issues": WebhookBlock(...)}) as here:
    answer = await here.send("issues", {"goal": "x"})
"""

import asyncio
import contextlib
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import httpx

from loomlog.connectors.configuration.model import Configuration
from loomlog.connectors.configuration.secret_registry import SecretRegistry, build_secret_registry
from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.configuration.webhook_block import WebhookAuth, WebhookBlock
from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.definitions import KINDS
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import LogRecord, ProducerRecord
from loomlog.connectors.storage.stored_credentials import StoredCredentials
from loomlog.schemas.codec import local_codec
from loomlog.services.core.refusals import Refused
from loomlog.services.families.channel.api import ChannelPublish
from loomlog.services.families.channel.caller import ChannelCaller, Declaration
from loomlog.services.families.channel.limits import VALUE_BYTES_DEFAULT
from loomlog.services.families.channel.message_cache import MessageCache
from loomlog.services.families.channel.operations import ChannelOperations
from loomlog.services.families.channel.services import ChannelOptions
from loomlog.services.families.channel.store import ChannelStore
from loomlog.services.families.definition.services import DefinitionOptions
from loomlog.services.families.definition.table import FileDefinition, file_definition
from loomlog.services.families.identity.credentials import CredentialReader
from loomlog.services.families.identity.services import IdentityOptions
from loomlog.services.families.webhook.api import RECEIVE
from loomlog.services.families.webhook.definition import WebhookDefinitions
from loomlog.services.families.webhook.deliveries import DeliveryRows
from loomlog.services.families.webhook.delivery_builder import DeliveryBuilder
from loomlog.services.families.webhook.ingress import WebhookOptions
from loomlog.services.families.webhook.ingress_reader import IngressReader
from loomlog.services.runtime.content.encryption import ContentEncryption
from loomlog.services.stream.dead_letters import DeadLetters
from tests.services.api.serving import Served, served
from tests.services.application.owner import NOW_MS, PARTITIONS
from tests.services.application.world import ADMIN_CALLER
from tests.services.log_entities import LogEntities

INGRESS = "loom.ingress"
DEAD_LETTERS = "loom.dead-letter"
SECRET = "hush"
ENVIRON = {"LOOMLOG_HOOK": SECRET, "LOOMLOG_KEY": "from the environment"}
HMAC = WebhookAuth(kind="hmac", signing_secret_env="LOOMLOG_HOOK", delivery_id_header="X-Delivery-Id")
DECLARED = {
    "feed": Declaration(name="feed", scope="global"),
    "wall": Declaration(name="wall", scope="global", publisher="any"),
    "beats": Declaration(name="beats", scope="global", publisher="system"),
}
ISSUES = WebhookBlock(agent="soaker", auth=HMAC, payload_mapping={"goal": "$.goal"})


def registry_of(files: Mapping[str, WebhookBlock]) -> SecretRegistry:
    """What the variables of ENVIRON may be used for, with these webhooks of the files."""
    return build_secret_registry(Configuration(webhooks=files), Settings(), ENVIRON)


class MemoryGroup:
    """Protocol GroupReader: one member that has all partitions. `committed` outlives a reader."""

    def __init__(self, log: MemoryLog, committed: dict[int, int]) -> None:
        self.committed = committed
        self._log = log
        self._next = dict.fromkeys(range(PARTITIONS), 0) | committed

    async def poll(self, *, timeout_s: float, max_records: int) -> Mapping[int, Sequence[LogRecord]]:
        grown = self._log._appended
        polled = self._take()
        if not polled:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await grown.wait()
            polled = self._take()
        return polled

    def _take(self) -> dict[int, Sequence[LogRecord]]:
        polled: dict[int, Sequence[LogRecord]] = {
            number: self._log.records[INGRESS, number][at:] for number, at in self._next.items()
        }
        polled = {number: records for number, records in polled.items() if records}
        self._next |= {number: records[-1].offset + 1 for number, records in polled.items()}
        return polled

    async def commit(self, offsets: Mapping[int, int]) -> None:
        self.committed |= offsets


class Channels:
    """Protocol ChannelPublisher: messages by command id, of declared channels; they are in their queues too."""

    def __init__(self, entities: LogEntities) -> None:
        self.declared = dict(DECLARED)
        self.messages: dict[str, tuple[str, Any, ChannelCaller]] = {}
        self.error: Exception | None = None
        store = ChannelStore(
            entities,
            cast(Any, entities),
            MessageCache(local_codec(), topic=entities.topic),
            clock_ms=lambda: NOW_MS,
            decrypt=_plain,
        )
        self._operations = ChannelOperations(self, store, clock_ms=lambda: NOW_MS)

    @property
    def declarations(self) -> "Channels":
        return self

    def find(self, tenant: str, name: str) -> Declaration | None:
        return self.declared.get(name)

    async def publish(self, asked: ChannelPublish, caller: ChannelCaller) -> None:
        if self.error is not None:
            raise self.error
        self.messages.setdefault(caller.command_id, (asked.channel, asked.value, caller))
        try:
            await self._operations.publish(asked, caller)
        except Refused:
            del self.messages[caller.command_id]
            raise

    def values(self, channel: str = "feed") -> list[Any]:
        return [value for name, value, _ in self.messages.values() if name == channel]

    def list(self, tenant: str) -> Sequence[Declaration]:
        return [*self.declared.values()]


async def _plain(value: Any, tenant: str) -> Any:
    return value


class CredentialBox:
    """Protocol CredentialWriter."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], Mapping[str, str]] = {}

    async def put(self, tenant: str, run_id: str, credentials: Mapping[str, str]) -> None:
        self.values[tenant, run_id] = credentials


class WebhookWorld:
    """See the module."""

    def __init__(
        self, here: Served, entities: LogEntities, files: dict[str, WebhookBlock], identity: IdentityOptions
    ) -> None:
        self.here = here
        self.world = here.world
        self.log = here.world.log
        self.entities = entities
        self.files = files
        self.channels = Channels(entities)
        self.credentials = CredentialBox()
        self.committed: dict[int, int] = {}
        assert identity.secret is not None
        self._secret = identity.secret
        self._identity = identity
        self.reading: asyncio.Task[None] | None = None
        codec = local_codec()
        self.dead_letters = DeadLetters(codec, self.log, topic=DEAD_LETTERS, service="test", clock_ms=lambda: NOW_MS)

    @property
    def webhooks(self) -> Any:
        """What takes the requests of senders."""
        endpoints: Any = self.here.service.application.endpoints[RECEIVE]
        return endpoints.__self__.receiver

    def reader(self) -> IngressReader:
        """A reader that goes on where the committed offsets are."""
        encryption, directory = (
            ContentEncryption(self.world.keys),
            self.here.service.application.authenticator.directory,
        )
        assert directory is not None
        builder = DeliveryBuilder(
            blobs=self.world.blobs,
            encryption=encryption,
            secrets=registry_of(self.files),
            channel_value_bytes=VALUE_BYTES_DEFAULT,
            credentials=self.credentials,
            secret=self._secret,
            stored=CredentialReader(directory, StoredCredentials(self._identity.rows, self._secret)),
        )
        parts = self.world.layer.resources.entities
        return IngressReader(
            MemoryGroup(self.log, self.committed),
            local_codec(),
            self.entities,
            definitions=WebhookDefinitions(self.here.service.application.runnable_agents._table, self.files),
            builder=builder,
            rows=DeliveryRows(self.entities),
            replicas=parts.replicas,
            channels=self.channels,
            dead_letters=self.dead_letters,
            clock_ms=lambda: NOW_MS,
        )

    def read(self) -> None:
        """Let a reader work."""
        self.reading = asyncio.create_task(self.reader().run())

    async def stop_reading(self) -> None:
        if self.reading is not None:
            self.reading.cancel()
            await asyncio.wait({self.reading})
            self.reading = None

    async def send(
        self, address: str, payload: Any, *, delivery: str = "", secret: str = SECRET, caller: Any = None, **query: str
    ) -> httpx.Response:
        """Post a signed request."""
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        headers = {"Content-Type": "application/json"}
        headers["X-Loomcycle-Signature"] = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        if delivery:
            headers["X-Delivery-Id"] = delivery
        client = self.here.client(caller)
        return await client.post(f"/v1/_webhooks/{address}", content=body, headers=headers, params=query or None)

    async def recent(self, address: str, *, caller: Any = ADMIN_CALLER) -> list[dict[str, Any]]:
        answer = await self.here.client(caller).get(f"/v1/_webhooks/{address}/recent-deliveries")
        assert answer.status_code == 200, answer.text
        deliveries: list[dict[str, Any]] = answer.json()["deliveries"]
        return deliveries

    def put(self, value: bytes, headers: Mapping[str, str] = {}, partition: int = 0) -> None:
        """Append a record of anything else to loom.ingress."""
        pairs = tuple((name, text.encode()) for name, text in headers.items())
        self.log.put(INGRESS, partition, [ProducerRecord(key=b"k", value=value, headers=pairs)])

    def parked(self) -> list[str]:
        """The reasons of the dead letters."""
        return [local_codec().decode(record.value or b"").record.error for record in self.log.records[DEAD_LETTERS, 0]]

    def parked_offsets(self) -> list[int]:
        """Their offsets in loom.ingress."""
        return [local_codec().decode(one.value or b"").record.offset for one in self.log.records[DEAD_LETTERS, 0]]

    async def until(self, holds: Any) -> None:
        async with asyncio.timeout(30):
            while not holds():
                await asyncio.sleep(0.001)

    def starts(self) -> list[Any]:
        """The commands that start runs."""
        return [command for command in self.world.commands() if type(command).__name__ == "StartRun"]


def _file(name: str, block: WebhookBlock) -> FileDefinition:
    return file_definition("webhook", name, KINDS["webhook"].content_of(block))


@contextlib.asynccontextmanager
async def webhook_world(
    folder: Path, files: dict[str, WebhookBlock], *, options: Mapping[str, Any] | None = None, **more: Any
) -> AsyncIterator[WebhookWorld]:
    """The world at work, its reader too."""
    entities, secret = LogEntities(), SecretKey(keys=(b"s" * 32,))
    identity = IdentityOptions(secret=secret)
    webhooks = WebhookOptions(files=files, secrets=registry_of(files), **(options or {}))
    parts: dict[str, Any] = {"entity_commands": entities, "entity_reads": entities}
    parts["secrets"] = registry_of(files)
    parts |= {
        "installation_key": secret,
        "family_options": (
            ChannelOptions(files=DECLARED),
            DefinitionOptions(files={("webhook", name): _file(name, block) for name, block in files.items()}),
            webhooks,
            identity,
        ),
    }
    async with served(folder, **parts, **more) as here:
        entities.attach(here.world.log, here.world.layer.resources.entities)
        made = WebhookWorld(here, entities, files, identity)
        await made.world.layer.ingress_publisher.open()
        parking = asyncio.create_task(made.dead_letters.run())
        made.read()
        try:
            yield made
        finally:
            await made.stop_reading()
            parking.cancel()
