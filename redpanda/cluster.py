"""Administrative requests to a Kafka-compatible cluster, with every error made visible.

aiokafka's admin client returns errors inside its responses and raises only some; each response is checked here, so a
caller gets either the result or a `ClusterProblem`. The client logs an ERROR line per refused connection; `ask`
therefore opens a plain socket first, so that waiting for a starting broker is quiet.

Not chosen: a second client library for administration. What aiokafka lacks (incremental alter) is not needed, because
the full set of settings is sent.

Before: loomlog.redpanda.apply, loomlog.services.cli.stack.broker (is it ready?).  After: the broker.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code

from loomlog.connectors.kafka import KafkaOptions
from loomlog.redpanda.topics import ExistingTopic, TopicChange

LEADER_POLL_S = 0.05
# DescribeConfigs source of a value that is set on the topic itself, not inherited from broker or default.
SET_ON_THE_TOPIC = 1


class ClusterProblem(Exception):
    """The cluster did not answer or refused; str() names the request, the address and the error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAnswer:
    """Identity of a cluster: its id (None from very old brokers) and its unfenced brokers as host:port."""

    cluster_id: str | None
    brokers: tuple[str, ...]


async def ask(where: str | KafkaOptions, *, timeout_s: float) -> ClusterAnswer:
    """Sends one metadata request. Raises ClusterProblem when no broker answers in time."""
    await _require_listener(_options(where).bootstrap, timeout_s)
    async with connect(where, timeout_s=timeout_s) as cluster:
        return await cluster.describe()


@asynccontextmanager
async def connect(where: str | KafkaOptions, *, timeout_s: float) -> AsyncIterator["Cluster"]:
    """A connection for a few requests, each bounded by `timeout_s`. `where`: bootstrap servers, or all options."""
    options = _options(where)
    async with _translate_errors(f"reading the certificates for {options.bootstrap}", timeout_s):
        arguments = await asyncio.to_thread(options.client_arguments)
    client = AIOKafkaAdminClient(**{**arguments, "request_timeout_ms": max(1, int(timeout_s * 1000))})
    try:
        async with _translate_errors(f"connecting to {options.bootstrap}", timeout_s):
            await client.start()
        yield Cluster(client, options.bootstrap, timeout_s)
    finally:
        await client.close()


class Cluster:
    """An open connection. Every method raises ClusterProblem, naming what was tried."""

    def __init__(self, client: Any, bootstrap: str, timeout_s: float) -> None:
        self._client = client
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s

    async def describe(self) -> ClusterAnswer:
        async with self._asking("for its brokers"):
            description = await self._client.describe_cluster()
        return ClusterAnswer(
            cluster_id=description.get("cluster_id"),
            brokers=tuple(f"{broker['host']}:{broker['port']}" for broker in description["brokers"]),
        )

    async def existing(self, names: Sequence[str]) -> dict[str, ExistingTopic]:
        """Those of `names` that exist."""
        # All topics are listed instead of asking for ours: a metadata request that names a topic may create it.
        async with self._asking("for its topics"):
            descriptions = await self._client.describe_topics()
        existing = {topic["topic"]: topic for topic in descriptions if topic["topic"] in names}
        for name, topic in existing.items():
            self._check(topic["error_code"], None, f"describing topic {name}")
        if not existing:
            return {}
        resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in existing]
        async with self._asking("for the settings of its topics"):
            responses = await self._client.describe_configs(resources)
        topics = {}
        for response in responses:
            for code, message, _, name, entries in response.resources:
                self._check(code, message, f"reading the settings of topic {name}")
                partitions = existing[name]["partitions"]
                topics[name] = ExistingTopic(
                    name=name,
                    partitions=len(partitions),
                    replicas=min((len(partition["replicas"]) for partition in partitions), default=0),
                    settings={entry[0]: entry[1] for entry in entries if entry[1] is not None},
                    own={entry[0]: entry[1] for entry in entries if _set_on_the_topic(entry)},
                )
        return topics

    async def create(self, changes: Sequence[TopicChange]) -> None:
        """Create topics and wait until each partition has a leader. An existing topic is an error."""
        if not changes:
            return
        new = [
            NewTopic(
                name=change.topic,
                num_partitions=change.partitions,
                replication_factor=change.replicas,
                topic_configs=dict(change.settings),
            )
            for change in changes
        ]
        async with self._asking("to create topics"):
            response = await self._client.create_topics(new, timeout_ms=int(self._timeout_s * 1000))
        for name, code, *message in response.topic_errors:
            self._check(code, message[0] if message else None, f"creating topic {name}")
        await self._wait_for_leaders({change.topic: change.partitions for change in changes})

    async def grow(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic whose records have no keys."""
        async with self._asking(f"to give topic {topic} {partitions} partitions"):
            await self._client.create_partitions({topic: NewPartitions(partitions)})
        await self._wait_for_leaders({topic: partitions})

    async def alter(self, topic: str, settings: Mapping[str, str]) -> None:
        """Replace all of the topic's own settings by `settings`."""
        async with self._asking(f"to change the settings of topic {topic}"):
            responses = await self._client.alter_configs(
                [ConfigResource(ConfigResourceType.TOPIC, topic, dict(settings))]
            )
        for response in responses:
            for code, message, *_ in response.resources:
                self._check(code, message, f"changing the settings of topic {topic}")

    async def _wait_for_leaders(self, partitions: Mapping[str, int]) -> None:
        """Wait until every partition has a leader, so that the first producer does not meet an unknown topic."""
        async with self._asking(f"for the leaders of {', '.join(partitions)}"):
            while True:
                topics = await self._client.describe_topics()
                led = {
                    topic["topic"]: sum(1 for partition in topic["partitions"] if partition["leader"] >= 0)
                    for topic in topics
                }
                if all(led.get(name, 0) >= count for name, count in partitions.items()):
                    return
                await asyncio.sleep(LEADER_POLL_S)

    @asynccontextmanager
    async def _asking(self, request: str) -> AsyncIterator[None]:
        async with _translate_errors(f"asking {self._bootstrap} {request}", self._timeout_s):
            yield

    def _check(self, code: int, message: str | None, action: str) -> None:
        if code:
            error = for_code(code)
            detail = message or getattr(error, "description", "")
            raise ClusterProblem(f"{action} at {self._bootstrap}: {error.__name__} (code {code}): {detail}")


@asynccontextmanager
async def _translate_errors(action: str, timeout_s: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError as error:
        raise ClusterProblem(f"{action}: no answer within {timeout_s:g} s") from error
    except (KafkaError, OSError) as error:
        raise ClusterProblem(f"{action}: {type(error).__name__}: {error}") from error


def _options(where: str | KafkaOptions) -> KafkaOptions:
    return KafkaOptions(bootstrap=where, client_id="loomlog-admin") if isinstance(where, str) else where


async def _require_listener(bootstrap: str, timeout_s: float) -> None:
    refused = []
    for address in bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        if not host or not port.isdigit():
            raise ClusterProblem(f"broker address {address!r} is not HOST:PORT")
        try:
            async with asyncio.timeout(timeout_s):
                _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
        except (OSError, TimeoutError) as error:
            refused.append(f"{address}: {error or type(error).__name__}")
            continue
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        return
    raise ClusterProblem(f"no broker listens ({'; '.join(refused)})")


def _set_on_the_topic(entry: Sequence[Any]) -> bool:
    name, value, read_only, source, *_ = entry
    # Version 0 of the response has `is_default` (a bool) where later ones have the source (an int).
    is_own = not source if isinstance(source, bool) else source == SET_ON_THE_TOPIC
    return bool(name) and value is not None and not read_only and is_own
