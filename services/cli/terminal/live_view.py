"""Live output of a run: permanent lines and, on a terminal, one region below them that is redrawn.

A terminal shows the streaming text and a progress line, drawn eight times a second; every other output (a file, a pipe,
CI) gets only the lines, in the same order. The cost is requested from the API once a turn, in parallel with the stream.

Before: services/cli/runs/runs.py, services/cli/runs/review.py. After: the terminal.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner

from loomlog.connectors.client.run_stream import RunStream
from loomlog.services.cli.errors import CliError, Unreachable
from loomlog.services.cli.http.api import ApiClient
from loomlog.services.cli.terminal.formatting import money
from loomlog.services.cli.terminal.output import NAME
from loomlog.services.cli.terminal.run_text import result_line, run_line
from loomlog.services.cli.terminal.run_view import RunView

REDRAWS_PER_S = 8
TEXT_LINES = 4
"""Lines of streaming text in the redrawn region; the whole text is printed when it is complete."""
ROW_TIMEOUT_S = 10.0
"""Seconds to wait until the read models have the end; they are milliseconds behind unless something is wrong."""
POLL_INTERVAL_S = 0.1
PLAIN_COLUMNS = 100
"""Columns of a line in a file; no window limits it, so it is a little longer."""


class _LiveRegion:
    """The region that is redrawn."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        self._spinner = Spinner("dots", style=NAME)

    def __rich__(self) -> RenderableType:
        self._spinner.update(text=self._view.progress_line())
        text = self._view.streaming_text(TEXT_LINES)
        return Group(text, self._spinner) if text else self._spinner


async def show_run(api: ApiClient, follower: RunStream, out: Console, turns_before: int = 0) -> Mapping[str, Any]:
    """Show the run to its end and return its row. `turns_before`: those a fork shares with its origin. Raises what
    `RunStream.frames` raises.
    """
    view = create_view(out, clock=time.monotonic)
    view.turn = turns_before
    if out.is_terminal:
        with Live(_LiveRegion(view), console=out, refresh_per_second=REDRAWS_PER_S, transient=True):
            await _show_frames(api, follower, view, out)
    else:
        await _show_frames(api, follower, view, out)
    row = await wait_for_final_row(api, follower.ids.run_id)
    out.print(result_line(row))
    return row


def create_view(out: Console, *, clock: Callable[[], float]) -> RunView:
    """Create a view as wide as the terminal."""
    return RunView(clock=clock, columns=out.width if out.is_terminal else PLAIN_COLUMNS, wraps_text=out.is_terminal)


async def _show_frames(api: ApiClient, follower: RunStream, view: RunView, out: Console) -> None:
    asking: asyncio.Task[None] | None = None
    said_ids = False
    try:
        async with aclosing(follower.frames()) as frames:
            async for frame in frames:
                if frame.name == "agent" and not said_ids:
                    said_ids = True
                    out.print(run_line(follower.ids))
                for line in view.handle_frame(frame):
                    out.print(line)
                if frame.name == "usage" and (asking is None or asking.done()):
                    asking = asyncio.create_task(_update_cost(api, follower.ids.run_id, view))
    finally:
        if asking is not None:
            asking.cancel()
            await asyncio.wait((asking,))


async def _update_cost(api: ApiClient, run_id: str, view: RunView) -> None:
    try:
        row = await api.get(f"/v1/runs/{run_id}")
    except CliError:
        return  # the progress line then has the amount of the turn before
    view.cost = money(int(row["cost_micros"]), row["currency"] or "")


async def wait_for_final_row(api: ApiClient, run_id: str) -> Mapping[str, Any]:
    """Return the row of an ended run; waits up to ROW_TIMEOUT_S for an API that is down or behind.
    Raises Unreachable.
    """
    deadline = asyncio.get_running_loop().time() + ROW_TIMEOUT_S
    while True:
        try:
            row: Mapping[str, Any] = await api.get(f"/v1/runs/{run_id}")
            if row["status"] != "running" or row["quarantined"]:
                return row
            problem: CliError = Unreachable(f"The run {run_id} is over, but the read models do not know it yet.")
        except Unreachable as error:
            problem = error
        if asyncio.get_running_loop().time() > deadline:
            raise problem
        await asyncio.sleep(POLL_INTERVAL_S)
