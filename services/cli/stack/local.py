"""The whole local stack as one block: broker and Postgres run inside it, and stop with it.

    async with local_stack(home, report=print) as stack:
        await stack.start(ChildSpec(name="runtime", ...), ChildSpec(name="projector", ...))
        await stack.wait()

On entry: free disk space, the lock, leftovers of an earlier stack, ports, then broker and Postgres concurrently. An
external address (LOOMLOG_KAFKA, LOOMLOG_POSTGRES) replaces that part: it is only probed.

Before: `loomlog up`, the tests.  After: broker, postgres, children.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from loomlog.connectors.kafka import KafkaOptions
from loomlog.redpanda.cluster import ClusterProblem, ask
from loomlog.services.cli.stack.broker import Broker
from loomlog.services.cli.stack.child import ChildSpec
from loomlog.services.cli.stack.errors import StackError
from loomlog.services.cli.stack.home import Home, require_space
from loomlog.services.cli.stack.ports import (
    choose_ports,
    describe_port_holder,
    is_port_free,
    load_ports,
    pick_port,
    save_ports,
)
from loomlog.services.cli.stack.postgres import Postgres, ping_postgres, redact_password
from loomlog.services.cli.stack.record import ChildRecord, build_stack_record, save_record, supervisor_lock
from loomlog.services.cli.stack.shutdown import stop_leftovers
from loomlog.services.cli.stack.supervisor import Supervisor

# For external servers: they should be running already, or be starting at the same time (compose).
EXTERNAL_TIMEOUT_S = 15.0
EXTERNAL_PROBE_TIMEOUT_S = 5.0
EXTERNAL_PROBE_INTERVAL_S = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalStack:
    """A running stack: `kafka` is HOST:PORT, `postgres` a connection string."""

    kafka: str
    postgres: str
    supervisor: Supervisor

    async def start(self, *children: ChildSpec) -> tuple[str, ...]:
        """Start children, as Supervisor.start."""
        return await self.supervisor.start(*children)

    async def wait(self) -> None:
        """Wait until a child is given up (StackError) or this task is cancelled."""
        await self.supervisor.wait()


@asynccontextmanager
async def local_stack(
    home: Home,
    *,
    report: Callable[[str], None],
    environ: Mapping[str, str],
    kafka: str | KafkaOptions | None = None,
    postgres: str | None = None,
    kafka_port: int | None = None,
    postgres_port: int | None = None,
    postgres_connections: int = 0,
) -> AsyncIterator[LocalStack]:
    """Run broker and Postgres in `home`. `kafka`, `postgres`: external servers to use instead, if not empty.

    `postgres_connections`: as in Postgres. Ports: None is the previous one or the default, 0 any free one. `environ` is
    for finding Java and Maven. Raises StackError, with nothing left running, when a part is unavailable;
    StackAlreadyRunning when a stack runs here already.
    """
    require_space(home.root, minimum_bytes=home.needed_bytes)
    with supervisor_lock(home.lock):
        await stop_leftovers(home, report)
        local_servers = frozenset(name for name, address in (("kafka", kafka), ("postgres", postgres)) if not address)
        ports = await asyncio.to_thread(
            lambda: choose_ports(
                remembered=load_ports(home.ports),
                kafka=kafka_port,
                postgres=postgres_port,
                local_servers=local_servers,
                is_free=is_port_free,
                pick=pick_port,
                describe_holder=describe_port_holder,
            )
        )
        await asyncio.to_thread(save_ports, home.ports, ports)
        broker = Broker(home=home, port=ports.kafka, controller_port=ports.controller, environ=environ, report=report)
        database = Postgres(
            home=home, port=ports.postgres, environ=environ, report=report, connections=postgres_connections
        )
        bootstrap = _bootstrap_address(kafka) if kafka else broker.bootstrap
        addresses = (bootstrap, redact_password(postgres) if postgres else database.dsn)

        async def record(children: Sequence[ChildRecord]) -> None:
            try:
                await asyncio.to_thread(save_record, home.record, build_stack_record(*addresses, children))
            except OSError as error:
                raise StackError(f"The list of running processes {home.record} cannot be written: {error}.") from error

        try:
            async with Supervisor(logs=home.logs, record=record, report=report) as supervisor:
                servers = []
                if kafka:
                    await _wait_for_external_kafka(kafka)
                else:
                    servers.append(broker.child())
                if postgres:
                    await _wait_for_external_postgres(postgres)
                else:
                    servers.append(await database.child())
                await supervisor.start(*servers)
                yield LocalStack(kafka=bootstrap, postgres=postgres or database.dsn, supervisor=supervisor)
        finally:
            home.record.unlink(missing_ok=True)


@contextmanager
def cancel_on_signals() -> Iterator[None]:
    """Make SIGINT, SIGTERM and SIGHUP cancel the current task inside the block; leaving it then is not an error.

    The blocks inside stop the stack on their way out. A second signal meanwhile has no effect: stopping is bounded, and
    a half-stopped stack is of no use.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    asked = False

    def stop() -> None:
        nonlocal asked
        if not asked:
            asked = True
            task.cancel()

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, stop)
    try:
        yield
    except asyncio.CancelledError:
        if not asked:
            raise
        task.uncancel()
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


async def _wait_for_external_kafka(kafka: str | KafkaOptions) -> None:
    async def probe() -> str | None:
        try:
            answer = await ask(kafka, timeout_s=EXTERNAL_PROBE_TIMEOUT_S)
        except ClusterProblem as problem:
            return str(problem)
        return None if answer.brokers else "it has no registered broker"

    await _wait_for_external("LOOMLOG_KAFKA", _bootstrap_address(kafka), "a Kafka-compatible broker", probe)


def _bootstrap_address(kafka: str | KafkaOptions) -> str:
    return kafka if isinstance(kafka, str) else kafka.bootstrap


async def _wait_for_external_postgres(dsn: str) -> None:
    async def probe() -> str | None:
        return await ping_postgres(dsn)

    await _wait_for_external("LOOMLOG_POSTGRES", redact_password(dsn), "a Postgres", probe)


async def _wait_for_external(
    setting: str, address: str, server: str, probe: Callable[[], Awaitable[str | None]]
) -> None:
    reason: str | None = "it was not asked"
    try:
        async with asyncio.timeout(EXTERNAL_TIMEOUT_S):
            while (reason := await probe()) is not None:  # noqa: ASYNC110 - no event to wait for
                await asyncio.sleep(EXTERNAL_PROBE_INTERVAL_S)
    except TimeoutError as error:
        raise StackError(
            f"{setting} says that {server} is at {address}, but within {EXTERNAL_TIMEOUT_S:g} s it did not answer: "
            f"{reason}. Start it, correct the address, or unset {setting} to have one started here."
        ) from error
