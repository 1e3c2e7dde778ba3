"""Three brokers on this machine, each its own controller: the production shape of the log, in miniature.

KRaft combined mode, three voters, every partition on all three with min.insync.replicas 2, the `cluster` profile of
topics.yaml. Settings are those of the local broker; what differs is appended, because the last line of a .properties
file wins. Nothing of the product's own stack is changed for it.

What a fault has to know is read where it is: who leads a partition from the brokers' metadata, who is the active
controller from the quorum's own files (the metadata names any broker).

Before: rig.  After: loomlog.services.cli.stack (Java, jars, children), loomlog.redpanda.cluster (is it ready?).
"""

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from loomlog.redpanda.cluster import ClusterProblem, ask
from loomlog.services.cli.stack.broker import (
    FORMAT_FLAGS,
    FORMAT_TIMEOUT_S,
    JVM_FLAGS,
    MAIN_CLASS,
    READY_TIMEOUT_S,
    STOP_TIMEOUT_S,
    archive_path,
    class_path,
    new_cluster_id,
    server_environment,
    server_properties,
)
from loomlog.services.cli.stack.child import ChildSpec
from loomlog.services.cli.stack.errors import StackError
from loomlog.services.cli.stack.home import write_atomically
from loomlog.services.cli.stack.java import LOCAL_BROKER, find_java, resolve_jars
from loomlog.services.cli.stack.oneshot import run_program
from loomlog.services.cli.stack.ports import LOOPBACK, pick_port

NODES = (1, 2, 3)
ASK_TIMEOUT_S = 3.0
ANSWER_TIMEOUT_S = 60.0
"""An election takes seconds, the start of a broker on a busy machine half a minute."""
LOOK_S = 0.2
Answer = TypeVar("Answer")
DIFFERENCES = """
# --- a cluster of three: what differs from the local broker ---
node.id={node}
controller.quorum.voters={voters}
default.replication.factor=3
min.insync.replicas=2
offsets.topic.replication.factor=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
share.coordinator.state.topic.replication.factor=3
share.coordinator.state.topic.min.isr=2
"""


def broker_name(node: int) -> str:
    """What a node is called as a process."""
    return f"kafka-{node}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One broker: where it keeps its log and where it listens."""

    number: int
    folder: Path
    port: int
    controller_port: int

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def settings(self) -> Path:
        return self.folder / "server.properties"

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"


class Cluster:
    """Three nodes in `folder`. `children` after `prepare`."""

    def __init__(self, folder: Path, *, cache: Path, say: Callable[[str], None]) -> None:
        self.nodes = tuple(
            Node(
                number=number,
                folder=folder / broker_name(number),
                port=pick_port(),
                controller_port=pick_port(),
            )
            for number in NODES
        )
        self.bootstrap = ",".join(node.address for node in self.nodes)
        self._cache = cache
        self._say = say
        self._argv: dict[int, tuple[str, ...]] = {}

    async def prepare(self) -> None:
        """Settings and formatted storage for every node. Raises StackError."""
        java = await find_java(os.environ)
        jars = await resolve_jars(self._cache, os.environ, self._say)
        archive = archive_path(self._cache, java, jars)
        sharing = (f"-XX:SharedArchiveFile={archive}", "-Xshare:auto") if archive.exists() else ()
        logging = f"-Dlog4j2.configurationFile={LOCAL_BROKER / 'log4j2.properties'}"
        identity = new_cluster_id()
        for node in self.nodes:
            temporary = node.folder / "tmp"
            temporary.mkdir(parents=True)
            write_atomically(node.settings, settings_of(node, self.nodes))
            formatting = (
                str(java.program), *FORMAT_FLAGS, logging, "-cp", class_path(jars), "kafka.tools.StorageTool",
                "format", "--cluster-id", identity, "--config", str(node.settings),
            )  # fmt: skip
            ended = await run_program(
                formatting, timeout_s=FORMAT_TIMEOUT_S, environment=server_environment(os.environ), cwd=node.folder
            )
            if ended.exit_code != 0:
                raise StackError(
                    f"{node.data} could not be formatted (exit {ended.exit_code}):\n{ended.output[-2000:]}"
                )
            self._argv[node.number] = (
                str(java.program), *JVM_FLAGS, *sharing, "-Xlog:cds=off", "-Xlog:cds+dynamic=off", logging,
                f"-Djava.io.tmpdir={temporary}", "-cp", class_path(jars), MAIN_CLASS, str(node.settings),
            )  # fmt: skip

    def children(self) -> tuple[ChildSpec, ...]:
        return tuple(self._child(node) for node in self.nodes)

    def _child(self, node: Node) -> ChildSpec:
        async def ready() -> str | None:
            try:
                answer = await ask(node.address, timeout_s=ASK_TIMEOUT_S)
            except ClusterProblem as problem:
                return str(problem)
            return None if node.address in answer.brokers else f"{node.address} is not one of {answer.brokers}"

        return ChildSpec(
            name=broker_name(node.number),
            argv=self._argv[node.number],
            environment=server_environment(os.environ),
            ready=ready,
            ready_timeout_s=READY_TIMEOUT_S,
            stop_timeout_s=STOP_TIMEOUT_S,
        )

    async def leader_of(self, topic: str) -> str:
        """The broker that leads most partitions of a topic, the first one of several. Raises TimeoutError."""

        async def ask_for_it() -> str | None:
            async with open_admin(self.bootstrap) as admin:
                described = await admin.describe_topics([topic])
            led = Counter(partition["leader"] for partition in described[0]["partitions"] if partition["leader"] >= 0)
            return broker_name(min(led, key=lambda number: (-led[number], number))) if led else None

        return await answered(ask_for_it)

    async def controller(self) -> str:
        """The active controller. Raises TimeoutError."""
        data = [node.data for node in self.nodes]

        async def ask_for_it() -> str | None:
            return await asyncio.to_thread(active_controller, data)

        return await answered(ask_for_it)


@asynccontextmanager
async def open_admin(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    """An administrator's connection. Raises KafkaError."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        await admin.start()
        yield admin
    finally:
        await admin.close()


async def answered(ask_for_it: Callable[[], Awaitable[Answer | None]]) -> Answer:
    """What is asked for, as soon as brokers that are being struck can tell. Raises TimeoutError."""
    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        while True:
            with suppress(KafkaError, OSError):
                result = await ask_for_it()
                if result is not None:
                    return result
            await asyncio.sleep(LOOK_S)


def settings_of(node: Node, nodes: Sequence[Node]) -> str:
    """The server.properties of one node."""
    ports = {"kafka_port": str(node.port), "controller_port": str(node.controller_port)}
    voters = ",".join(f"{one.number}@{LOOPBACK}:{one.controller_port}" for one in nodes)
    return server_properties(node.data, ports) + DIFFERENCES.format(node=node.number, voters=voters)


def active_controller(data: Sequence[Path]) -> str | None:
    """Who leads the quorum, by the node that knows the latest epoch of it; None while there is none."""
    files = [folder / "__cluster_metadata-0" / "quorum-state" for folder in data]
    states = [json.loads(file.read_text("utf-8")) for file in files]
    leader = max((state["leaderEpoch"], state["leaderId"]) for state in states)[1]
    return broker_name(leader) if leader in NODES else None
