"""Filling a new build with several processes, each with some of the partitions.

A rebuild of a long log is work of the processor: half of it reading and folding events in Python, half of it writing
rows in Postgres. One process leaves the second core of a small machine half idle, and threads share one interpreter.
So the partitions are dealt to processes, the longest first; each claims its cursors of the new build and projects up
to the target, as the rebuild itself would. Then the rebuild claims all of them, which fences whoever might be left, and
goes on alone with what came meanwhile. The rows are compared all the same before anybody sees them.

A process that fails ends the rebuild with its reason; a rebuild that is cancelled ends them all. One whose parent was
killed projects to its end into a build that nobody will see, or fails because the next rebuild has dropped it.

Not chosen: threads (the interpreter's lock), COPY of prepared files (rows of a run are changed by later events).
Before: projections/engine/rebuild.py, when much is to be done. After: projections/engine/run_projection.py.
"""

import asyncio
import contextlib
import multiprocessing
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import uvloop

from loomlog.connectors.errors import ConnectorError, Transient
from loomlog.connectors.process.gc_tuning import tune_gc
from loomlog.projections.engine.builds import Build
from loomlog.projections.engine.rebuild import Connect, OpenTail, project_to
from loomlog.projections.engine.run_projection import RunProjection
from loomlog.schemas.codec import Codec

PROCESSES_MAX = 4
EXIT_WAIT_S = 5.0
"""For a process that has said its last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelRebuild:
    """What every process of a filling has to know. Called by the rebuild; see loomlog.projections.engine.rebuild.Fill.

    It goes to the processes through a pipe, so the callables are functions of modules or partials of them.
    """

    connect: Connect
    open_tail: OpenTail
    make_codec: Callable[[], Awaitable[Codec]]
    topic: str
    owner: str
    processes: int = min(PROCESSES_MAX, os.cpu_count() or 1)

    async def __call__(self, build: Build, target: Mapping[int, int]) -> int:
        """Fills the build up to the target; the number of events. Raises Transient when a process failed."""
        context = multiprocessing.get_context("spawn")
        working: list[tuple[Any, Connection]] = []
        try:
            for share in divide_partitions(target, self.processes):
                theirs, mine = context.Pipe(duplex=False)
                process = context.Process(target=_work, args=(self, build, share, mine), daemon=True)
                process.start()
                mine.close()
                working.append((process, theirs))
            told = await asyncio.gather(
                *(asyncio.to_thread(_receive_result, process, theirs) for process, theirs in working)
            )
        finally:
            for process, _ in working:
                process.terminate()
        for answer in told:
            if isinstance(answer, str):
                raise Transient(f"a process that fills build {build.number}: {answer}", kind="unavailable")
        return sum(answer for answer in told if isinstance(answer, int))


def divide_partitions(target: Mapping[int, int], processes: int) -> list[dict[int, int]]:
    """The partitions dealt to at most so many processes, the longest first, each to whom has least; none is empty."""
    dealt: list[dict[int, int]] = [{} for _ in range(min(processes, len(target)))]
    for partition in sorted(target, key=lambda p: (-target[p], p)):
        least = min(dealt, key=lambda share: sum(share.values()))
        least[partition] = target[partition]
    return [share for share in dealt if share]


def _receive_result(process: Any, receiver: Connection) -> int | str:
    """What the process said last: the number of its events, or why it failed."""
    answer: int | str | None = None
    with contextlib.suppress(EOFError):
        answer = receiver.recv()
    receiver.close()
    process.join(EXIT_WAIT_S)  # otherwise it stays in the process table
    return f"it ended with {process.exitcode} and said nothing" if answer is None else answer


def _work(filling: ParallelRebuild, build: Build, share: Mapping[int, int], sender: Connection) -> None:
    """The process."""
    try:
        sender.send(uvloop.run(_fill(filling, build, share)))
    except ConnectorError as error:
        sender.send(str(error))
    finally:
        sender.close()


async def _fill(filling: ParallelRebuild, build: Build, share: Mapping[int, int]) -> int:
    codec = await filling.make_codec()
    tune_gc()
    async with await filling.connect() as connection:
        projection = RunProjection(connection, build, filling.topic, owner=filling.owner, codec=codec)
        tail = await filling.open_tail(await projection.claim(share))
        try:
            return await project_to(projection, tail, share)
        finally:
            await tail.close()
