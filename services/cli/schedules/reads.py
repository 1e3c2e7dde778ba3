"""`loomlog schedules ls, show, preview, fires`: how schedules are, what is ahead and what was.

Before: schedules.py. After: services/cli/http/api.py.
"""

import asyncio
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any

import typer
from rich.text import Text

from loomlog.services.cli.commands import run
from loomlog.services.cli.errors import NotFound
from loomlog.services.cli.http.api import ApiClient, ApiNotFound, quote_segment
from loomlog.services.cli.http.requests import open_api
from loomlog.services.cli.operations import Position, Tenant
from loomlog.services.cli.runs.runs import Json
from loomlog.services.cli.terminal.formatting import pluralize
from loomlog.services.cli.terminal.output import DIM, console, fact_line, print_json, print_table

PATH = "/v1/_schedules"
AT_ONCE = 8
"""Requests for states at the same time."""
FIRES_LIMIT, FIRES_LIMIT_MAX = 20, 200
COUNT, COUNT_MAX = 10, 100
Entry = Mapping[str, Any]
ScheduleName = Annotated[str, typer.Argument(metavar="SCHEDULE", help="Its name, or the id of a version.")]


def list_schedules(
    pattern: Annotated[str, typer.Argument(metavar="[PATTERN]", help="Only names like this, such as 'report-*'.")] = "",
    tenant: Tenant = "",
    position: Position = "",
    as_json: Json = False,
) -> None:
    """List schedules with their next time and their last run."""
    rows = run(_list_with_states(pattern or "*", tenant, position))
    if as_json:
        print_json({"schedules": [{**entry, "state": state} for entry, state in rows]})
        return
    out = console()
    if not rows:
        out.print("No schedules.")
        return
    head = ("name", "tenant", "source", "next", "last run", "status", "version")
    print_table(out, head, [_list_row(entry, state) for entry, state in rows])


def _list_row(entry: Entry, state: Entry | None) -> Sequence[str]:
    shown = state or {}
    following = "paused" if shown.get("paused_until") else shown.get("next_run_at", "-")
    if state is None:
        following = "not active"
    return (
        entry["name"],
        entry["tenant_id"] or "shared",
        entry["source"],
        following,
        shown.get("last_run_at", "-"),
        shown.get("last_status", "running" if shown.get("running") else "-"),
        entry["active_def_id"] or "-",
    )


def show(schedule: ScheduleName, tenant: Tenant = "", position: Position = "", as_json: Json = False) -> None:
    """Show how a schedule is: its next time, its pause, its last run."""
    state = run(_get(schedule, "state", tenant, {"position": position}))
    if as_json:
        print_json(state)
        return
    out = console()
    for name in ("name", "tenant_id", "def_id", "next_run_at", "paused_until", "overlap"):
        if state.get(name):
            out.print(fact_line(name.removesuffix("_id").replace("_", " "), str(state[name])))
    limit = f" of {state['max_fires']}" if state.get("max_fires") else ""
    out.print(fact_line("fires", f"{state['fires']}{limit}"))
    for run_id in state.get("running", ()):
        out.print(fact_line("running", run_id))
    for instant in state.get("queued", ()):
        out.print(fact_line("waits", instant))
    if state.get("last_run_at"):
        ended = state.get("last_status") or "still works"
        out.print(fact_line("last run", f"{state['last_run_at']} {state.get('last_run_id', '')} {ended}"))
    if state.get("last_error"):
        out.print(fact_line("error", state["last_error"]))


def preview(
    schedule: ScheduleName,
    count: Annotated[int, typer.Option("--count", min=1, max=COUNT_MAX, help="Number of times.")] = COUNT,
    tenant: Tenant = "",
    as_json: Json = False,
) -> None:
    """Show when a schedule fires next, in its zone and with its jitter."""
    answer = run(_get(schedule, "preview", tenant, {"count": count}))
    if as_json:
        print_json(answer)
        return
    out = console()
    out.print(fact_line("times", f"{answer['times'] or '(none)'} {answer['timezone']}"))
    if not answer["instants"]:
        out.print("It has no times: only run-now fires it.")
        return
    rows = [(one["local"], one["fires_at"], str(one["jitter_ms"])) for one in answer["instants"]]
    print_table(out, ("local time", "fires at", "jitter ms"), rows, right_aligned=(2,))


def fires(
    schedule: ScheduleName,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=FIRES_LIMIT_MAX, help="Most fires to list.")
    ] = FIRES_LIMIT,
    cursor: Annotated[str, typer.Option("--cursor", help="`next` of an earlier list.")] = "",
    tenant: Tenant = "",
    position: Position = "",
    as_json: Json = False,
) -> None:
    """List what a schedule has fired, newest first, and the times that passed."""
    answer = run(_get(schedule, "fires", tenant, {"limit": limit, "cursor": cursor, "position": position}))
    if as_json:
        print_json(answer)
        return
    out = console()
    if not answer["fires"]:
        out.print("It has not fired.")
        return
    head = ("instant", "status", "late ms", "run", "note")
    print_table(out, head, [_fire_row(one) for one in answer["fires"]], right_aligned=(2,))
    if answer["next"]:
        out.print(Text(f"There are more: --cursor {answer['next']}", style=DIM))


def _fire_row(fire: Entry) -> Sequence[str]:
    note = fire.get("error", "")
    if fire.get("count"):
        at_least = "at least " if fire.get("is_at_least") else ""
        note = f"{at_least}{pluralize(fire['count'], 'time')} passed: {fire['reason']}"
    elif fire.get("is_manual"):
        note = f"run-now {note}".strip()
    return (fire["instant"], fire["status"], str(fire.get("late_ms", "-")), fire.get("run_id", "-"), note or "-")


# --- requests --------------------------------------------------------------------------------------------------------


async def list_entries(api: ApiClient, pattern: str, tenant: str, position: str = "") -> list[Entry]:
    """Return the schedules whose names fit a pattern, such as `report-*`, or that have this id."""
    params = _present({"tenant": tenant, "position": position})
    answer = await api.get(f"{PATH}/list-all", params=params)
    return [one for one in answer["entries"] if fnmatchcase(one["name"], pattern) or one["active_def_id"] == pattern]


async def find_id(api: ApiClient, schedule: str, tenant: str) -> str:
    """Return the id of the active version of a schedule, or the id that was given. Raises NotFound."""
    entries = [one for one in await list_entries(api, "*", tenant) if schedule in (one["name"], one["active_def_id"])]
    ids = {one["active_def_id"] for one in entries if one["active_def_id"]}
    if len(ids) == 1:
        return str(ids.pop())
    if len(ids) > 1:
        raise NotFound(f"More than one tenant has a schedule {schedule}: name it with --tenant.")
    if entries:
        raise NotFound(f"The schedule {schedule} has no active version.")
    return schedule  # perhaps a version that is not the active one; the API knows


async def _list_with_states(pattern: str, tenant: str, position: str) -> list[tuple[Entry, Entry | None]]:
    async with open_api() as api:
        entries = await list_entries(api, pattern, tenant, position)
        room = asyncio.Semaphore(AT_ONCE)

        async def state_of(entry: Entry) -> Entry | None:
            if not entry["active_def_id"]:
                return None
            async with room:
                try:
                    state: Entry = await api.get(state_path(entry["active_def_id"], "state"))
                except ApiNotFound:
                    return None
            return state

        states = await asyncio.gather(*map(state_of, entries))
    return list(zip(entries, states, strict=True))


async def _get(schedule: str, what: str, tenant: str, params: Mapping[str, str | int]) -> Any:
    async with open_api() as api:
        return await api.get(state_path(await find_id(api, schedule, tenant), what), params=_present(params))


def state_path(def_id: str, what: str) -> str:
    """Return the path of something of a version."""
    return f"{PATH}/{quote_segment(def_id)}/{what}"


def _present(params: Mapping[str, str | int]) -> dict[str, str | int]:
    return {name: value for name, value in params.items() if value != ""}
