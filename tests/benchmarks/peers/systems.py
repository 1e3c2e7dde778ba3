"""The catalogue of what is measured: who it is, how one row of it is run, what is durable when the answer is there.

A system opens for one row: peers run only while their row is measured, so that they do not take turns at the cores. Our
stack stays up all the time, because it holds the broker and the Postgres that floors and peers use too; what it costs
idle is in every row of theirs, as the group "ours, idle".
"""

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from tests.benchmarks.main import Stack, log_bytes
from tests.benchmarks.peers.environments import pinned, pinned_server, python_of, restate_server
from tests.benchmarks.peers.restate.server import running
from tests.benchmarks.slot import run_slot

IDLE = "ours, idle"
STEPWISE = "every step's result, before the next step"
Kind = Literal["ours", "floor", "peer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """How to run one row: the client's command without its last three arguments, what to meter meanwhile."""

    command: Sequence[str]
    groups: Mapping[str, Sequence[int]]
    meters: Mapping[str, Callable[[], float]] = field(default_factory=dict)
    processes: int = 1
    """Of the client; the runs in flight are shared out among them."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of what the client cannot know; a client that runs in the peer's own environment says them itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """One system. Texts are shown in docs/BENCHMARKS.md."""

    name: str
    title: str
    kind: Kind
    runs_on: str
    durable: str
    not_durable: str


SYSTEMS: Sequence[System] = (
    System(
        name="topic",
        title="loomlog, commands topic",
        kind="ours",
        runs_on="broker, runtime, projector, api, insights; the client appends StartRun and reads the events topic",
        durable=f"the command; {STEPWISE}, with the next step's intent; fsynced for each flush (flush.messages=1)",
        not_durable="the projection's rows may follow the answer by some milliseconds; they are rebuilt from the log",
    ),
    System(
        name="http",
        title="loomlog, HTTP + SSE",
        kind="ours",
        runs_on="as above; the client posts to the api and reads the run's event stream to its last frame",
        durable=f"the command before the first frame; {STEPWISE}; every frame before it is sent",
        not_durable="as above",
    ),
    System(
        name="kafka-floor",
        title="raw Kafka floor",
        kind="floor",
        runs_on="our broker, aiokafka in the client, group commit as ours",
        durable="six appends a run, each acknowledged and fsynced before the next",
        not_durable="nothing is folded, decided, typed, read back or projected",
    ),
    System(
        name="postgres-floor",
        title="raw Postgres floor",
        kind="floor",
        runs_on="our Postgres, psycopg in the client, at most 16 connections",
        durable="six commits a run, each waited for (synchronous_commit=on, fsync=on)",
        not_durable="nothing is decided, typed or read back",
    ),
    System(
        name="dbos",
        title="DBOS Transact (Python)",
        kind="peer",
        runs_on="our Postgres, a database of its own; a library in the client's process, one for each core",
        durable=f"the workflow's row; {STEPWISE}; the outcome (a commit each)",
        not_durable="the intent of a step: a step that was under way runs again",
    ),
    System(
        name="langgraph",
        title="LangGraph, Postgres saver",
        kind="peer",
        runs_on="our Postgres, a database of its own; a library in the client's process, one for each core, each with "
        "a pool of 4 to 16 connections",
        durable="a checkpoint for each step before the next begins (durability=sync)",
        not_durable="a run before its first checkpoint; the intent of a step",
    ),
    System(
        name="restate",
        title="Restate",
        kind="peer",
        runs_on="its server (one node, its own log and defaults), the service under Hypercorn with a worker a core",
        durable=f"the invocation; {STEPWISE} (log fsynced: rocksdb-disable-wal-fsync=false)",
        not_durable="the intent of a step: a step that was under way runs again",
    ),
)


class Bench:
    """A running stack of ours, and what the other systems need of it."""

    def __init__(self, stack: Stack, environment: Mapping[str, str]) -> None:
        self.stack = stack
        self.environment = environment
        self._postgres = psycopg.connect(stack.postgres, autocommit=True)
        self._made: set[str] = set()

    def close(self) -> None:
        self._postgres.close()

    def wal_bytes(self) -> float:
        """Bytes of Postgres's write-ahead log ever written."""
        row = self._postgres.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
        assert row is not None
        return float(row[0])

    def database(self, name: str, *, prepare: Sequence[str] = ()) -> str:
        """The URL of a database that is empty when it is first asked for.

        `prepare` is a client that makes its tables when it first runs: it then runs once alone, because two that make
        the same tables at once fail. Raises SlotFailed.
        """
        url = urlsplit(self.stack.postgres)._replace(path=f"/bench_{name}").geturl()
        if name not in self._made:
            self._postgres.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(f"bench_{name}")))
            self._made.add(name)
            if prepare:
                command = [*prepare, url]
                run_slot(command, self.environment, in_flight=1, warm_up_s=0.0, seconds=0.1, groups={}, meters={})
        return url

    def postgres_settings(self) -> dict[str, str]:
        """What durability and speed of Postgres depend on, as a session sees it."""
        names = (
            "server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_level", "wal_sync_method",
            "shared_buffers", "max_wal_size", "max_connections",
        )  # fmt: skip
        result = {}
        for name in names:
            row = self._postgres.execute(sql.SQL("SHOW {}").format(sql.Identifier(name))).fetchone()
            assert row is not None
            result[name] = str(row[0])
        return result

    def groups(self, *used: str) -> dict[str, Sequence[int]]:
        """The processes of ours that a system uses, by name; all others as one group."""
        mine = {name: [pid] for name, pid in self.stack.pids.items() if name in used}
        return {**mine, IDLE: [pid for name, pid in self.stack.pids.items() if name not in used]}


@contextmanager
def opened(system: System, bench: Bench) -> Iterator[Opened]:
    """A system that is ready for one row. Raises NotInstalled, SlotFailed."""
    wal = {"wal_bytes": bench.wal_bytes}
    match system.name:
        case "topic" | "http":
            where = bench.stack.kafka if system.name == "topic" else bench.stack.api
            yield Opened(
                command=(sys.executable, "-m", f"tests.benchmarks.{system.name}_client", where),
                groups={name: [pid] for name, pid in bench.stack.pids.items()},
                meters={"log_bytes": lambda: float(log_bytes(bench.stack)), **wal},
            )
        case "kafka-floor":
            yield Opened(
                command=(sys.executable, "-m", "tests.benchmarks.peers.kafka_floor", bench.stack.kafka),
                groups=bench.groups("kafka"),
            )
        case "postgres-floor":
            yield Opened(
                command=(sys.executable, "-m", "tests.benchmarks.peers.postgres_floor", bench.database("floor")),
                groups=bench.groups("postgres"),
                meters=wal,
            )
        case "dbos" | "langgraph":
            agent = (str(python_of(system.name)), "-m", f"tests.benchmarks.peers.{system.name}.agent")
            command = (*agent, bench.database(system.name, prepare=agent))
            groups = bench.groups("postgres")
            yield Opened(command=command, groups=groups, meters=wal, processes=os.cpu_count() or 1)
        case "restate":
            program, python = restate_server(), python_of("restate")
            with (
                tempfile.TemporaryDirectory(prefix="loomlog-restate-") as folder,
                running(program, python, Path(folder)) as restate,
            ):
                yield Opened(
                    command=(sys.executable, "-m", "tests.benchmarks.peers.restate.client", restate.ingress),
                    groups={"server": [restate.server], "service": [restate.service], **bench.groups()},
                    versions={"server": pinned_server(), **pinned("restate", "restate-sdk", "hypercorn", "uvloop")},
                )
        case other:
            raise AssertionError(f"no way to run {other}")


def kafka_version() -> str:
    """Of the local broker, from the pom its jars are resolved by."""
    pom = Path(__file__).parents[3] / "redpanda" / "local" / "pom.xml"
    match = re.search(r"<artifactId>kafka_[\d.]+</artifactId>\s*<version>([^<]+)</version>", pom.read_text())
    return match.group(1) if match else "unknown"
