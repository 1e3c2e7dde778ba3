"""The whole stack as one block: broker, Postgres, topics, services; all of it stopped at the end.

    async with foreground_stack(cli, plan, steps) as stack:
        ...                               everything a run needs is ready
        await stack.start_secondary()     the rest is ready too, and wiring.json is written
        await stack.wait()

Before: up.py, services/cli/runs/review.py. After: stack/local.py, services.py.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from loomlog.connectors.storage.postgres import PostgresOptions
from loomlog.services.cli.errors import CliError
from loomlog.services.cli.settings import CliSettings
from loomlog.services.cli.stack.home import open_home
from loomlog.services.cli.stack.local import LocalStack, local_stack
from loomlog.services.cli.stack.plan import OUT, SOURCE, StackPlan
from loomlog.services.cli.stack.postgres import needed_connections
from loomlog.services.cli.stack.services import ServiceSpecs, apply_topics, build_services
from loomlog.services.cli.stack.services_record import ServicesRecord, remove_services_record, save_services_record
from loomlog.services.cli.terminal.output import DIM


class StepLog:
    """Prints each completed step with the time since the start."""

    def __init__(self, out: Console, clock: Callable[[], float]) -> None:
        self._out = out
        self._clock = clock
        self._started_s = clock()

    @property
    def seconds(self) -> float:
        return self._clock() - self._started_s

    def report(self, message: str) -> None:
        self._out.print(Text.assemble((f"{self.seconds:6.1f} s  ", DIM), message))


@dataclass(frozen=True, slots=True, kw_only=True)
class ForegroundStack:
    """A stack whose services for a run are ready."""

    cli: CliSettings
    plan: StackPlan
    stack: LocalStack
    services: ServiceSpecs
    steps: StepLog

    async def start_secondary(self, *, quietly: bool = False) -> None:
        """Start the secondary services, then tell other terminals that the stack is complete. Raises StackError."""
        if self.services.secondary:
            names = list(await self.stack.start(*self.services.secondary))
            if names and not quietly:
                self.steps.report(f"{_join_names(names)} {'is' if len(names) == 1 else 'are'} ready")
        await asyncio.to_thread(
            save_services_record, self.cli.home.root, build_services_record(self.plan, self.steps.seconds)
        )

    async def wait(self) -> None:
        """Wait until a child is given up (StackError) or this task is cancelled."""
        await self.stack.wait()


@asynccontextmanager
async def foreground_stack(cli: CliSettings, plan: StackPlan, steps: StepLog) -> AsyncIterator[ForegroundStack]:
    """Start the stack. Raises StackError, CliError or Unreachable, with nothing left running."""
    home = await asyncio.to_thread(open_home, cli.home.root)
    settings = plan.settings
    async with AsyncExitStack() as probes:
        async with local_stack(
            home,
            report=steps.report,
            environ=cli.environ,
            kafka=settings.kafka or None,
            postgres=settings.postgres or None,
            kafka_port=settings.kafka_port,
            postgres_port=settings.postgres_port,
            postgres_connections=needed_connections(
                runtimes=plan.runtimes + plan.spares, api_pool=settings.postgres_max_connections
            ),
        ) as stack:
            # The state folder is ours from here on: the record of a killed stack must not describe this one.
            await asyncio.to_thread(remove_services_record, home.root)
            try:
                steps.report(f"broker {stack.kafka} and Postgres {_postgres_address(stack.postgres)} answer")
                changes = await apply_topics(stack.kafka, replicas=settings.replication_factor, environ=plan.environ)
                made = sum(change.kind == "create" for change in changes)
                steps.report(f"topics: {f'{made} made' if made else 'as they should be'}")
                services = await build_services(plan, kafka=stack.kafka, postgres=stack.postgres, exit_stack=probes)
                await stack.start(*services.required)
                steps.report(f"{_join_names([child.name for child in services.required])} are ready")
                yield ForegroundStack(cli=cli, plan=plan, stack=stack, services=services, steps=steps)
            finally:
                await asyncio.to_thread(remove_services_record, home.root)


def build_services_record(plan: StackPlan, ready_after_s: float) -> ServicesRecord:
    return ServicesRecord(
        supervisor_pid=os.getpid(),
        api_url=plan.api_url,
        insights_url=plan.insights_url,
        source=plan.volume_path(SOURCE),
        out=plan.volume_path(OUT),
        open_mode=plan.open_mode,
        runtimes=plan.runtimes,
        spares=plan.spares,
        configuration=tuple(str(file) for file in plan.files),
        ready_after_s=ready_after_s,
    )


def require_not_running(cli: CliSettings) -> None:
    """Raise CliError when a supervisor runs in this state folder."""
    if cli.stack.is_supervised:
        pid = cli.stack.supervisor.pid if cli.stack.supervisor is not None else "?"
        raise CliError(
            f"A stack is running in {cli.home.root} already (supervisor {pid}). `loomlog status` shows it, "
            "`loomlog down` stops it."
        )


def _postgres_address(dsn: str) -> str:
    return PostgresOptions(dsn=dsn).address


def _join_names(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
