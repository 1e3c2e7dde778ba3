"""`loomlog limits` and `loomlog usage`: what may be spent in a month, and what was spent, over the API.

    loomlog limits ls                                      every limit within reach, with what is used
    loomlog limits set --user ada --tenant acme --hard 100000      in tokens
    loomlog limits set --tenant acme --hard-money 50 --soft-money 40    in the configured currency
    loomlog limits set --everybody --hard-money 500 --strict
    loomlog limits rm --user ada --tenant acme
    loomlog usage --by tenant,model --from 2026-11-01

A hard limit in money is never exceeded; one in tokens lets the call end that began below it, unless it is --strict.

Before: services/cli/main.py. After: services/cli/http/api.py.
"""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from loomlog.services.cli.errors import UsageError
from loomlog.services.cli.http.requests import get, print_change, print_written, send
from loomlog.services.cli.runs.runs import Json, Position
from loomlog.services.cli.terminal.formatting import MICROS, money, number
from loomlog.services.cli.terminal.output import DIM, ERROR, NAME, SUCCESS, WARNING, console, print_json

PATH = "/v1/_limits"


limits_app = typer.Typer(no_args_is_help=True, help="Limits on what is spent in a calendar month.")
Everybody = Annotated[bool, typer.Option("--everybody", help="The whole installation.")]
Tenant = Annotated[str, typer.Option("--tenant", help="A tenant; your own without it.")]
User = Annotated[str, typer.Option("--user", help="A user of the tenant.")]
Tokens = Annotated[int | None, typer.Option(min=0, help="Tokens of all kinds.")]
Money = Annotated[str, typer.Option(help="An amount of the configured currency, like 12.50.")]


@limits_app.command("ls")
def list_limits(
    tenant: Annotated[str, typer.Option("--tenant", help="Only this tenant's.")] = "",
    position: Position = "",
    as_json: Json = False,
) -> None:
    """List the visible limits, and their usage this month."""
    listing = get(PATH, {"tenant": tenant, "position": position})
    if as_json:
        print_json(listing)
        return
    out = console()
    if not listing["limits"]:
        out.print(Text("no limits", style=DIM))
        return
    table = Table(box=None, pad_edge=False, header_style=DIM)
    for column in ("account", "used", "soft", "hard", "set by", "at"):
        table.add_column(column)
    for limit in listing["limits"]:
        for unit in ("", "_micros"):
            soft, hard = limit[f"soft_limit{unit}"], limit[f"hard_limit{unit}"]
            if soft is None and hard is None:
                continue
            used = limit[f"used{unit}"]
            style = (
                ERROR
                if hard is not None and used >= hard
                else WARNING
                if soft is not None and used >= soft
                else SUCCESS
            )
            currency = limit["currency"] or ""
            table.add_row(
                Text(_limit_name(limit), style=NAME),
                Text(_format_amount(used, unit, currency), style=style),
                _format_amount(soft, unit, currency),
                _format_amount(hard, unit, currency),
                limit["updated_by"],
                limit["updated_at"],
            )
    out.print(table)


@limits_app.command("set")
def set_limit(
    everybody: Everybody = False,
    tenant: Tenant = "",
    user: User = "",
    soft: Tokens = None,
    hard: Tokens = None,
    soft_money: Money = "",
    hard_money: Money = "",
    strict: Annotated[bool, typer.Option("--strict", help="--hard is never exceeded: worst cases must fit.")] = False,
    as_json: Json = False,
) -> None:
    """Set the limits of an account, replacing its previous ones."""
    amounts = {
        "soft_limit": soft,
        "hard_limit": hard,
        "soft_limit_micros": parse_micros("--soft-money", soft_money),
        "hard_limit_micros": parse_micros("--hard-money", hard_money),
    }
    changes = {name: value for name, value in amounts.items() if value is not None}
    if not changes:
        raise UsageError("a limit needs at least one of --soft, --hard, --soft-money and --hard-money.")
    body = {**_account_fields(everybody, tenant, user), **changes, **({"strict": True} if strict else {})}
    answer = send("PUT", PATH, body)
    if as_json:
        print_written(answer)
        return
    print_change(_limit_name(answer.value), "is limited", answer)


@limits_app.command("rm")
def remove_limit(everybody: Everybody = False, tenant: Tenant = "", user: User = "", as_json: Json = False) -> None:
    """Remove the limits of an account; its usage figures of this month are dropped."""
    account = _account_fields(everybody, tenant, user)
    where = {"tenant" if name == "tenant_id" else name: value for name, value in account.items()}
    answer = send("DELETE", PATH, params=where)
    if as_json:
        print_json({"removed": bool(answer.position), "position": answer.position or None})
        return
    if answer.position:
        console().print(Text.assemble("the limits are gone", ("  event ", DIM), answer.position))
    else:
        console().print(Text("there was no such limit", style=DIM))


def usage(
    by: Annotated[
        str, typer.Option("--by", help="tenant, user, agent, provider, model, source, day, with commas between.")
    ] = "tenant,model",
    since: Annotated[str, typer.Option("--from", help="From the day of this time on.")] = "",
    until: Annotated[str, typer.Option("--to", help="Before this time.")] = "",
    tenant: Annotated[str, typer.Option("--tenant", help="Only this tenant.")] = "",
    position: Position = "",
    as_json: Json = False,
) -> None:
    """Show usage and its cost; amounts of different currencies are never added."""
    query = {"group_by": by, "from": since, "to": until, "tenant": tenant, "position": position}
    report = get("/v1/_usage", query)
    if as_json:
        print_json(report)
        return
    names = [{"tenant": "tenant_id", "user": "user_id"}.get(name, name) for name in report["group_by"]]
    table = Table(box=None, pad_edge=False, header_style=DIM)
    for column in (*report["group_by"], "calls", "tokens in", "out", "cost"):
        table.add_column(column)
    for row in report["rows"]:
        read = row["input_tokens"] + row["cache_creation_input_tokens"] + row["cache_read_input_tokens"]
        table.add_row(
            *(Text(str(row.get(name, "")), style=NAME) for name in names),
            number(row["call_count"]),
            number(read),
            number(row["output_tokens"]),
            money(row["cost_micros"], row.get("currency", "")),
        )
    console().print(table if report["rows"] else Text("nothing was used", style=DIM))


def _account_fields(everybody: bool, tenant: str, user: str) -> dict[str, str]:
    """Return the fields that name an account. Raises UsageError."""
    if everybody and (tenant or user):
        raise UsageError("--everybody is the whole installation; leave --tenant and --user away.")
    if everybody:
        return {"scope": "operator"}
    if not tenant and not user:
        raise UsageError("whose limit? Give --everybody, --tenant, or --user.")
    named = {"tenant_id": tenant} if tenant else {}
    return {"scope": "user", **named, "scope_id": user} if user else {"scope": "tenant", **named}


def parse_micros(option: str, text: str) -> int | None:
    """Parse an amount into millionths; None for an empty text. Raises UsageError."""
    if not text:
        return None
    try:
        micros = Decimal(text) * MICROS
    except InvalidOperation:
        micros = Decimal("NaN")
    if not micros.is_finite() or micros < 0 or micros != micros.to_integral_value():
        raise UsageError(f"{option} is {text!r}: expected an amount like 12.50, with at most six decimals.")
    return int(micros)


def _format_amount(value: int | None, unit: str, currency: str) -> str:
    if value is None:
        return ""
    return money(value, currency or "?") if unit else f"{number(value)} tokens"


def _limit_name(limit: Mapping[str, Any]) -> str:
    match limit["scope"]:
        case "operator":
            return "everybody"
        case "tenant":
            return f"tenant {limit['tenant_id']}"
        case _:
            return f"user {limit['scope_id']} of {limit['tenant_id']}"
