"""`loomlog routing`: the models that plans and tiers are routed to, and what makes each of them unavailable now.

Before: services/cli/main.py. After: services/cli/http/api.py, GET /v1/_routing.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer
from rich.text import Text

from loomlog.services.cli.http.requests import get, send
from loomlog.services.cli.runs.runs import Json
from loomlog.services.cli.terminal.output import DIM, ERROR, NAME, SUCCESS, WARNING, console, print_json, print_table


def routing(
    probe: Annotated[
        bool, typer.Option("--probe", help="Have every provider asked first whether it is there.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the models of each plan and tier, best first, and the one that new runs use now."""
    if probe:
        send("POST", "/v1/_resolve/probe", {})
    status = get("/v1/_routing")
    if as_json:
        print_json(status)
        return
    out = console()
    rows = list(_routing_rows(status["user_tiers"]))
    if rows:
        print_table(out, ("plan", "tier", "model", "now"), rows)
    else:
        out.print("No tier is configured: agents name their models themselves.")
    routed = {step["provider"] for plan in status["user_tiers"] for tier in plan["tiers"] for step in tier["cascade"]}
    for provider in status["providers"]:
        if provider["provider"] not in routed:
            continue  # built in, but used by none of these tiers
        if provider["available"] and not provider.get("reachable", True):
            out.print(Text(f"{provider['provider']} does not answer", style=ERROR))
        elif why := provider.get("why_not"):
            out.print(Text(f"{provider['provider']} cannot be used: {why}", style=DIM))


def _routing_rows(plans: list[Mapping[str, Any]]) -> Iterator[tuple[str | Text, ...]]:
    for plan in plans:
        for tier in plan["tiers"]:
            for place, step in enumerate(tier["cascade"]):
                first = place == 0
                yield (
                    Text(plan["name"] if first else "", style=NAME),
                    tier["tier"] if first else "",
                    f"{step['provider']}/{step['model']}",
                    _availability_text(step),
                )


def _availability_text(step: Mapping[str, Any]) -> Text:
    """Return the availability of a model for runs: selected, available, or the reason why not."""
    if step["selected"]:
        return Text("selected", style=SUCCESS)
    if step["available"]:
        return Text("available", style=DIM)
    against = [words for name, words in (("stalled", "stalled"), ("rate_limited", "rate limited")) if step[name]]
    if not step["reachable"]:
        against.insert(0, "not reachable")
    return Text(", ".join(against) or "not listed", style=WARNING)
