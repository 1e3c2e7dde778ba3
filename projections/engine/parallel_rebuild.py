"""Parallel fill of a new build: several processes, each with a share of the partitions.

A rebuild of a long log is CPU-bound: half is reading and folding events in Python, half is writing rows in Postgres.
One process leaves the second core of a small machine half idle, and threads share one interpreter. So the partitions
are divided among processes, the longest first; each claims its cursors of the new build and projects up to the target,
as the rebuild itself would. Then the rebuild claims all of them, which fences any process still running, and continues
alone with newer records. The rows are compared as usual before readers see them.

A failed process ends the rebuild with its error; a cancelled rebuild terminates all processes. A process whose parent
was killed finishes projecting into a build that is never switched to, or fails when the next rebuild drops it.

Not chosen: threads (the interpreter's lock), COPY of prepared files (rows of a run are changed by later events).
Before: projections/engine/rebuild.py, for a long log. After: projections/engine/projection.py.
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
from loomlog.projections.engine.read_models import ReadModel, RunModel
from loomlog.projections.engine.rebuild import Connect, OpenTail, project_to
from loomlog.schemas.codec import Codec

PROCESSES_MAX = 4
EXIT_WAIT_S = 5.0
"""Longest wait for a process to exit after its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelRebuild:
    """Options of a parallel fill and its processes. The rebuild calls it; see loomlog.projections.engine.rebuild.Fill.

    It is pickled for the processes, so the callables are functions of modules or partials of them.
    """

    connect: Connect
    open_tail: OpenTail
    make_codec: Callable[[], Awaitable[Codec]]
    topic: str
    owner: str
    make_model: Callable[[], ReadModel] = RunModel
    processes: int = min(PROCESSES_MAX, os.cpu_count() or 1)

    async def __call__(self, build: Build, target: Mapping[int, int]) -> int:
        """Fills the build up to the target; returns the number of events. Raises Transient when a process failed."""
        context = multiprocessing.get_context("spawn")
        workers: list[tuple[Any, Connection]] = []
        try:
            for share in divide_partitions(target, self.processes):
                receiver, sender = context.Pipe(duplex=False)
                process = context.Process(target=_run_process, args=(self, build, share, sender), daemon=True)
                process.start()
                sender.close()
                workers.append((process, receiver))
            results = await asyncio.gather(*(asyncio.to_thread(_receive_result, *worker) for worker in workers))
        finally:
            for process, _ in workers:
                process.terminate()
        for result in results:
            if isinstance(result, str):
                raise Transient(f"a process filling build {build.number}: {result}", kind="unavailable")
        return sum(result for result in results if isinstance(result, int))


def divide_partitions(target: Mapping[int, int], processes: int) -> list[dict[int, int]]:
    """Divides the partitions into at most `processes` shares: the longest first, each to the smallest share.

    No share is empty.
    """
    shares: list[dict[int, int]] = [{} for _ in range(min(processes, len(target)))]
    for partition in sorted(target, key=lambda p: (-target[p], p)):
        smallest = min(shares, key=lambda share: sum(share.values()))
        smallest[partition] = target[partition]
    return [share for share in shares if share]


def _receive_result(process: Any, receiver: Connection) -> int | str:
    """The result of a process: the number of its events, or why it failed."""
    result: int | str | None = None
    with contextlib.suppress(EOFError):
        result = receiver.recv()
    receiver.close()
    process.join(EXIT_WAIT_S)  # otherwise it stays in the process table
    return f"it exited with code {process.exitcode} and sent no result" if result is None else result


def _run_process(options: ParallelRebuild, build: Build, share: Mapping[int, int], sender: Connection) -> None:
    """Entry point of a process."""
    try:
        sender.send(uvloop.run(_fill(options, build, share)))
    except ConnectorError as error:
        sender.send(str(error))
    finally:
        sender.close()


async def _fill(options: ParallelRebuild, build: Build, share: Mapping[int, int]) -> int:
    codec = await options.make_codec()
    tune_gc()
    async with await options.connect() as connection:
        model = options.make_model()
        projection = model.projection(connection, build, options.topic, owner=options.owner, codec=codec)
        tail = await options.open_tail(await projection.claim(share))
        try:
            return await project_to(projection, tail, share)
        finally:
            await tail.close()
