"""`loomlog pause`, `loomlog resume`, `loomlog state`: pausing everything, a tenant or an agent, over the API.

One run is paused with `loomlog runs pause`.

Before: services/cli/main.py. After: services/cli/http/api.py.
"""

from typing import Annotated

import typer
from rich.text import Text

from loomlog.services.cli.http.requests import get, print_written, send
from loomlog.services.cli.runs.runs import Json, Position
from loomlog.services.cli.terminal.formatting import pluralize
from loomlog.services.cli.terminal.output import DIM, NAME, WARNING, console, print_json

WAIT_MS_DEFAULT = 20_000
WAIT_MS_MAX = 25_000
"""Longest wait in milliseconds; below the timeout after which the CLI treats an unresponsive API as down."""

Tenant = Annotated[str, typer.Option("--tenant", help="Only this tenant.")]
Agent = Annotated[str, typer.Option("--agent", help="Only this agent; with --tenant only in that tenant.")]


def pause(
    tenant: Tenant = "",
    agent: Agent = "",
    reason: Annotated[str, typer.Option("--reason", help="Why; it is kept and shown.")] = "",
    timeout_ms: Annotated[
        int, typer.Option(min=0, max=WAIT_MS_MAX, help="Longest wait until everything stands still.")
    ] = WAIT_MS_DEFAULT,
    as_json: Json = False,
) -> None:
    """Pause everything, a tenant or an agent before its next model calls."""
    body = {**_target_fields(tenant, agent), "reason": reason, "timeout_ms": timeout_ms}
    answer = send("POST", "/v1/_pause", body)
    result = answer.value
    if as_json:
        print_written(answer)
        return
    out = console()
    text = f"{_target_name(tenant, agent)} is {result['state']}, {pluralize(result['paused_runs_count'], 'paused run')}"
    out.print(Text.assemble(text, ("  event ", DIM), answer.position))
    for warning in result["warnings"]:
        out.print(Text(warning, style=WARNING))
    out.print(Text("`loomlog state` shows how far it is; `loomlog resume` lifts it.", style=DIM))


def resume(tenant: Tenant = "", agent: Agent = "", as_json: Json = False) -> None:
    """Resume a pause; the target is named as in `pause`."""
    answer = send("POST", "/v1/_resume", _target_fields(tenant, agent))
    result = answer.value
    if as_json:
        print_written(answer)
        return
    goes_on = pluralize(result["resumed_runs_count"], "run continues", "runs go")
    text = f"{_target_name(tenant, agent)} is resumed, {goes_on} on"
    console().print(Text.assemble(text, ("  event ", DIM), answer.position))


def state(position: Position = "", as_json: Json = False) -> None:
    """Show whether the installation is running or paused, and list all pauses."""
    status = get("/v1/_state", position=position)
    if as_json:
        print_json(status)
        return
    out = console()
    out.print(f"{status['state']}, {pluralize(status['paused_runs_count'], 'paused run')}")
    for entry in status["pauses"]:
        name = _target_name(entry["tenant"] or "", entry["agent"] or "")
        why = f": {entry['reason']}" if entry["reason"] else ""
        out.print(Text.assemble((name, NAME), f" since {entry['at']} by {entry['by']}{why}"))


def _target_fields(tenant: str, agent: str) -> dict[str, str]:
    """Return the body fields that name the target; empty ones are left out."""
    scope = "agent" if agent else "tenant" if tenant else "all"
    return {"scope": scope, **({"tenant": tenant} if tenant else {}), **({"agent": agent} if agent else {})}


def _target_name(tenant: str, agent: str) -> str:
    if agent:
        return f"agent {agent}" + (f" of tenant {tenant}" if tenant else "")
    return f"tenant {tenant}" if tenant else "everything"
