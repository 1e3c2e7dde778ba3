"""`loomlog schedules run-now, pause, resume`: of one schedule, or of all whose names fit a pattern.

Several are only shown; with --yes it is done.

Before: schedules.py. After: services/cli/http/api.py.
"""

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from loomlog.services.cli.commands import run
from loomlog.services.cli.http.requests import open_api, send_with
from loomlog.services.cli.operations import IdempotencyKey, Tenant
from loomlog.services.cli.runs.runs import Json
from loomlog.services.cli.schedules.reads import find_id, list_entries, state_path
from loomlog.services.cli.terminal.formatting import pluralize
from loomlog.services.cli.terminal.output import NAME, console, print_json
from loomlog.services.cli.terminal.times import RELATIVE_TIME, UNIT_S, to_rfc3339

WILD = frozenset("*?[")
Schedules = Annotated[
    str, typer.Argument(metavar="SCHEDULE", help="Its name, the id of a version, or a pattern such as 'report-*'.")
]
Yes = Annotated[bool, typer.Option("--yes", help="With a pattern: do it; without, only show what would be done.")]


def run_now(
    schedule: Schedules, yes: Yes = False, tenant: Tenant = "", key: IdempotencyKey = "", as_json: Json = False
) -> None:
    """Fire at once, also when paused; the next time stays as it is."""
    _change("run-now", schedule, {}, yes=yes, tenant=tenant, key=key, as_json=as_json)


def pause(
    schedule: Schedules,
    until: Annotated[
        str,
        typer.Option("--until", metavar="TIME", help="When it goes on by itself, such as 24h; without: at `resume`."),
    ] = "",
    yes: Yes = False,
    tenant: Tenant = "",
    key: IdempotencyKey = "",
    as_json: Json = False,
) -> None:
    """Let times pass without a run."""
    params = {"until": _parse_until(until)} if until else {}
    _change("pause", schedule, params, yes=yes, tenant=tenant, key=key, as_json=as_json)


def resume(
    schedule: Schedules, yes: Yes = False, tenant: Tenant = "", key: IdempotencyKey = "", as_json: Json = False
) -> None:
    """End a pause."""
    _change("resume", schedule, {}, yes=yes, tenant=tenant, key=key, as_json=as_json)


def _parse_until(text: str) -> str:
    """Return a time as the API takes it: of a time, or of one from now on, such as 24h. Raises UsageError."""
    if match := RELATIVE_TIME.match(text.strip()):
        until = datetime.now(UTC) + timedelta(seconds=int(match[1]) * UNIT_S[match[2]])
        return until.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return to_rfc3339(text, option="--until")


DONE = {"run-now": "fires", "pause": "is paused", "resume": "goes on"}


def _change(
    verb: str, schedule: str, params: Mapping[str, str], *, yes: bool, tenant: str, key: str, as_json: bool
) -> None:
    is_pattern = bool(WILD & set(schedule))
    is_dry = is_pattern and not yes
    done = run(_send(verb, schedule, params, tenant=tenant, key=key or str(uuid.uuid4()), is_dry=is_dry))
    if as_json:
        print_json({"dry_run": is_dry, "schedules": done})
        return
    out = console()
    for one in done:
        run_id = f", run {one['run_id']}" if one.get("run_id") else ""
        text = f"would be: {verb}" if is_dry else f"{DONE[verb]}{run_id}"
        out.print(f"{one['name']} {text}", style="" if is_dry else NAME)
    if is_pattern:
        hint = "; with --yes it is done" if is_dry and done else ""
        out.print(f"{pluralize(len(done), 'schedule')}{hint}.")


async def _send(
    verb: str, schedule: str, params: Mapping[str, str], *, tenant: str, key: str, is_dry: bool
) -> Sequence[Mapping[str, Any]]:
    async with open_api() as api:
        if WILD & set(schedule):
            entries = [one for one in await list_entries(api, schedule, tenant) if one["active_def_id"]]
            targets = [(one["name"], one["active_def_id"]) for one in entries]
        else:
            targets = [(schedule, await find_id(api, schedule, tenant))]
        if is_dry:
            return [{"name": name, "def_id": def_id} for name, def_id in targets]
        done: list[Mapping[str, Any]] = []
        for name, def_id in targets:
            response = await send_with(api, "POST", state_path(def_id, verb), params=params, key=key)
            done.append({"name": name, **response.value, "position": response.position or None})
        return done
