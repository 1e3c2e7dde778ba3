"""Everything up, as one block: broker, Postgres, topics, services; and all of it stopped at the end.

    async with standing_stack(cli, plan, steps) as standing:
        ...                               what is needed for a run is ready
        await standing.complete()         the rest is ready too, and wiring.json says so
        await standing.wait()

Before: up.py, review.py. After: stack/local.py, wiring.py.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from loomlog.connectors.storage.postgres import PostgresOptions
from loomlog.services.cli.failures import Failure
from loomlog.services.cli.settings import CliSettings
from loomlog.services.cli.stack.home import open_home
from loomlog.services.cli.stack.local import LocalStack, local_stack
from loomlog.services.cli.stack.plan import OUT, SOURCE, Plan
from loomlog.services.cli.stack.services import Services, make_topics, services_of
from loomlog.services.cli.stack.services_record import Wiring, forget_wiring, save_wiring
from loomlog.services.cli.terminal.output import DIM


class Steps:
    """Tells people what has been reached and how long it took since the beginning."""

    def __init__(self, out: Console, clock: Callable[[], float]) -> None:
        self._out = out
        self._clock = clock
        self._began = clock()

    @property
    def seconds(self) -> float:
        return self._clock() - self._began

    def say(self, what: str) -> None:
        self._out.print(Text.assemble((f"{self.seconds:6.1f} s  ", DIM), what))


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A stack whose services for a run are ready."""

    cli: CliSettings
    plan: Plan
    stack: LocalStack
    services: Services
    steps: Steps

    async def complete(self, *, quietly: bool = False) -> None:
        """Starts what stands beside and then says to other terminals that everything is there. Raises StackProblem."""
        if self.services.beside:
            names = list(await self.stack.start(*self.services.beside))
            if names and not quietly:
                self.steps.say(f"{_listed(names)} {'is' if len(names) == 1 else 'are'} ready")
        await asyncio.to_thread(save_wiring, self.cli.home.root, wiring_of(self.plan, self.steps.seconds))

    async def wait(self) -> None:
        """Until a child is given up (StackProblem) or this task is cancelled."""
        await self.stack.wait()


@asynccontextmanager
async def standing_stack(cli: CliSettings, plan: Plan, steps: Steps) -> AsyncIterator[Standing]:
    """Raises StackProblem, Failure or Unreachable, with nothing left running."""
    home = await asyncio.to_thread(open_home, cli.home.root)
    settings = plan.settings
    async with AsyncExitStack() as probes:
        async with local_stack(
            home,
            say=steps.say,
            environ=cli.environ,
            kafka=settings.kafka or None,
            postgres=settings.postgres or None,
            kafka_port=settings.kafka_port,
            postgres_port=settings.postgres_port,
        ) as stack:
            # The state folder is ours from here on: what a killed stack wrote must not speak for this one.
            await asyncio.to_thread(forget_wiring, home.root)
            try:
                steps.say(f"broker {stack.kafka} and Postgres {_place(stack.postgres)} answer")
                changes = await make_topics(stack.kafka, replicas=settings.replication_factor, environ=plan.environ)
                made = sum(change.kind == "create" for change in changes)
                steps.say(f"topics: {f'{made} made' if made else 'as they should be'}")
                services = await services_of(plan, kafka=stack.kafka, postgres=stack.postgres, probes=probes)
                await stack.start(*services.needed)
                steps.say(f"{_listed([child.name for child in services.needed])} are ready")
                yield Standing(cli=cli, plan=plan, stack=stack, services=services, steps=steps)
            finally:
                await asyncio.to_thread(forget_wiring, home.root)


def wiring_of(plan: Plan, ready_after_s: float) -> Wiring:
    return Wiring(
        supervisor_pid=os.getpid(),
        api_url=plan.api_url,
        insights_url=plan.insights_url,
        source=plan.folder(SOURCE),
        out=plan.folder(OUT),
        open_mode=plan.open_mode,
        runtimes=plan.runtimes,
        configuration=tuple(str(file) for file in plan.files),
        ready_after_s=ready_after_s,
    )


def require_none_runs(cli: CliSettings) -> None:
    """Raises Failure when a supervisor lives in this state folder."""
    if cli.stack.supervised:
        pid = cli.stack.supervisor.pid if cli.stack.supervisor is not None else "?"
        raise Failure(
            f"A stack is running in {cli.home.root} already (supervisor {pid}). `loomlog status` shows it, "
            "`loomlog down` stops it."
        )


def _place(dsn: str) -> str:
    return PostgresOptions(dsn=dsn).address


def _listed(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
