"""The few administrative questions and orders we have for a Kafka-compatible cluster, with every error made visible.

aiokafka's admin client returns errors inside its responses and raises only for some; each answer is checked here, so
a caller sees either the result or a `ClusterProblem`. Its client logs an ERROR line per refused connection; `ask`
therefore opens a plain socket first, so that waiting for a broker that is still starting stays quiet.

Not chosen: a second client library for administration only. What it lacks (incremental alter) we do not need, because
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
# DescribeConfigs: the value was set on the topic itself (config source 1), not inherited from broker or default.
SET_ON_THE_TOPIC = 1


class ClusterProblem(Exception):
    """The cluster did not answer or refused; str() says what was asked of whom and what came back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAnswer:
    """Who answered: the cluster's id (None from very old brokers) and its unfenced brokers as host:port."""

    cluster_id: str | None
    brokers: tuple[str, ...]


async def ask(where: str | KafkaOptions, *, timeout_s: float) -> ClusterAnswer:
    """One metadata request. Raises ClusterProblem when nobody, or not a broker, answers in time."""
    await _someone_listens(_options(where).bootstrap, timeout_s)
    async with connect(where, timeout_s=timeout_s) as cluster:
        return await cluster.describe()


@asynccontextmanager
async def connect(where: str | KafkaOptions, *, timeout_s: float) -> AsyncIterator["Cluster"]:
    """A connection for a few requests, each bounded by `timeout_s`. `where`: bootstrap servers, or all options."""
    options = _options(where)
    async with _translated(f"reading the certificates for {options.bootstrap}", timeout_s):
        arguments = await asyncio.to_thread(options.client_arguments)
    client = AIOKafkaAdminClient(**{**arguments, "request_timeout_ms": max(1, int(timeout_s * 1000))})
    try:
        async with _translated(f"connecting to {options.bootstrap}", timeout_s):
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
            found = await self._client.describe_cluster()
        return ClusterAnswer(
            cluster_id=found.get("cluster_id"),
            brokers=tuple(f"{broker['host']}:{broker['port']}" for broker in found["brokers"]),
        )

    async def existing(self, names: Sequence[str]) -> dict[str, ExistingTopic]:
        """Those of `names` that exist."""
        # All topics are listed instead of asking for ours: a metadata request that names a topic may create it.
        async with self._asking("for its topics"):
            found = {topic["topic"]: topic for topic in await self._client.describe_topics() if topic["topic"] in names}
        for name, topic in found.items():
            self._check(topic["error_code"], None, f"describing topic {name}")
        if not found:
            return {}
        resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in found]
        async with self._asking("for the settings of its topics"):
            responses = await self._client.describe_configs(resources)
        topics = {}
        for response in responses:
            for code, message, _, name, entries in response.resources:
                self._check(code, message, f"reading the settings of topic {name}")
                partitions = found[name]["partitions"]
                topics[name] = ExistingTopic(
                    name=name,
                    partitions=len(partitions),
                    replicas=min((len(partition["replicas"]) for partition in partitions), default=0),
                    settings={entry[0]: entry[1] for entry in entries if entry[1] is not None},
                    own={entry[0]: entry[1] for entry in entries if _set_on_the_topic(entry)},
                )
        return topics

    async def create(self, changes: Sequence[TopicChange]) -> None:
        """Make topics and wait until each partition has a leader. One that exists already is an error."""
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
        async with self._asking("to make topics"):
            response = await self._client.create_topics(new, timeout_ms=int(self._timeout_s * 1000))
        for name, code, *message in response.topic_errors:
            self._check(code, message[0] if message else None, f"making topic {name}")
        await self._leaders({change.topic: change.partitions for change in changes})

    async def grow(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic whose records have no keys."""
        async with self._asking(f"to give topic {topic} {partitions} partitions"):
            await self._client.create_partitions({topic: NewPartitions(partitions)})
        await self._leaders({topic: partitions})

    async def alter(self, topic: str, settings: Mapping[str, str]) -> None:
        """Replace all of the topic's own settings by `settings`."""
        async with self._asking(f"to change the settings of topic {topic}"):
            responses = await self._client.alter_configs(
                [ConfigResource(ConfigResourceType.TOPIC, topic, dict(settings))]
            )
        for response in responses:
            for code, message, *_ in response.resources:
                self._check(code, message, f"changing the settings of topic {topic}")

    async def _leaders(self, partitions: Mapping[str, int]) -> None:
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
    async def _asking(self, what: str) -> AsyncIterator[None]:
        async with _translated(f"asking {self._bootstrap} {what}", self._timeout_s):
            yield

    def _check(self, code: int, message: str | None, doing: str) -> None:
        if code:
            error = for_code(code)
            detail = message or getattr(error, "description", "")
            raise ClusterProblem(f"{doing} at {self._bootstrap}: {error.__name__} (code {code}): {detail}")


@asynccontextmanager
async def _translated(doing: str, timeout_s: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError as error:
        raise ClusterProblem(f"{doing}: no answer within {timeout_s:g} s") from error
    except (KafkaError, OSError) as error:
        raise ClusterProblem(f"{doing}: {type(error).__name__}: {error}") from error


def _options(where: str | KafkaOptions) -> KafkaOptions:
    return KafkaOptions(bootstrap=where, client_id="loomlog-admin") if isinstance(where, str) else where


async def _someone_listens(bootstrap: str, timeout_s: float) -> None:
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
    # Version 0 of the answer has `is_default` (a bool) where later ones have the source (an int).
    own = not source if isinstance(source, bool) else source == SET_ON_THE_TOPIC
    return bool(name) and value is not None and not read_only and own
