"""`loomlog evals submit | ls | show`: judgements of runs; judge.py lets an agent judge many.

    loomlog evals submit RUN 0.8 --dimension style=0.9 --rationale "short and right"
    loomlog evals ls --run RUN                 or --def DEF_ID
    loomlog evals show eval_...                one judgement
    loomlog evals show def_... --lineage       the sums of a version, and of those it was made from

Before: judge.py. After: POST /v1/_evaluation.
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import urlencode

import orjson
import typer
from rich.text import Text

from loomlog.connectors.client.http import ApiResponse
from loomlog.services.cli.commands import CommandGroup, run
from loomlog.services.cli.errors import UsageError
from loomlog.services.cli.http.api import ApiClient
from loomlog.services.cli.http.requests import open_api, print_written, send
from loomlog.services.cli.runs.runs import Json, Position, RunId, get_run, resolve_run_id
from loomlog.services.cli.terminal.formatting import one_line
from loomlog.services.cli.terminal.output import DIM, NAME, console, fact_line, print_json, print_table

evals_app = typer.Typer(
    cls=CommandGroup, no_args_is_help=True, help="Judgements of runs: submit, list, show; let an agent judge many."
)
PATH = "/v1/_evaluation"
JUDGEMENT_PREFIX = "eval_"
LIST_MAX = 100
"""Most judgements of one answer of the API."""
Tenant = Annotated[str, typer.Option("--tenant", help="Administrators: another tenant than your own.")]
OptionalRun = Annotated[str, typer.Option("--run", metavar="RUN", help="Those of this run.", callback=resolve_run_id)]


@evals_app.command("submit")
def submit(
    run_id: RunId,
    score: Annotated[float, typer.Argument(metavar="SCORE", help="How good it is, on a scale of your own.")],
    dimension: Annotated[
        list[str] | None, typer.Option("--dimension", metavar="NAME=SCORE", help="A further score; may be repeated.")
    ] = None,
    judgement: Annotated[str, typer.Option("--judgement", metavar="JSON", help="The judgement itself, as JSON.")] = "",
    rationale: Annotated[str, typer.Option("--rationale", help="Why, for people.")] = "",
    idempotency_key: Annotated[
        str, typer.Option("--idempotency-key", help="The same key again is the same judgement.")
    ] = "",
    tenant: Tenant = "",
    as_json: Json = False,
) -> None:
    """Judge a run."""
    fields: dict[str, Any] = {"score": score, "dimensions": _parse_dimensions(dimension or ()), "rationale": rationale}
    if judgement:
        fields["judgement"] = _parse_json(judgement)
    answer = run(_submit(run_id, fields, idempotency_key or str(uuid.uuid4()), tenant))
    if as_json:
        print_written(answer)
        return
    out = console()
    for name, value in answer.value.items():
        out.print(fact_line(name, str(value)))
    out.print(fact_line("event", answer.position))


@evals_app.command("ls")
def list_judgements(
    run_id: OptionalRun = "",
    version: Annotated[str, typer.Option("--def", metavar="DEF_ID", help="Those of this version.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=LIST_MAX, help="Most judgements to list.")] = 20,
    cursor: Annotated[str, typer.Option(help="`next` of an earlier answer.")] = "",
    tenant: Tenant = "",
    position: Position = "",
    as_json: Json = False,
) -> None:
    """List the judgements of a run or of a version, newest first."""
    if bool(run_id) == bool(version):
        raise UsageError("Give --run or --def: the judgements of a run, or those of a version.")
    place = {"op": "list_for_run", "run_id": run_id} if run_id else {"op": "list_for_def", "def_id": version}
    fields = {**place, "limit": limit, **({"cursor": cursor} if cursor else {})}
    listing = _read(fields, tenant, position)
    if as_json:
        print_json(listing)
        return
    out = console()
    if not listing["evaluations"]:
        out.print("No judgements.")
        return
    print_table(
        out,
        ("EVALUATION", "RUN", "SCORE", "BY", "AT", "WHY"),
        [_table_row(row) for row in listing["evaluations"]],
        right_aligned=(2,),
    )
    if listing.get("next"):
        out.print(Text(f"There are more: --cursor {listing['next']}", style=DIM))


@evals_app.command("show")
def show(
    name: Annotated[str, typer.Argument(metavar="ID", help="A judgement (eval_...), or a version of a definition.")],
    lineage: Annotated[bool, typer.Option("--lineage", help="With the versions that it was made from.")] = False,
    tenant: Tenant = "",
    position: Position = "",
    as_json: Json = False,
) -> None:
    """Show a judgement, or the sums of the judgements of a version."""
    is_judgement = name.startswith(JUDGEMENT_PREFIX)
    if is_judgement and lineage:
        raise UsageError("--lineage is for versions of definitions.")
    place = {"op": "get", "eval_id": name} if is_judgement else {"op": "aggregate", "def_id": name}
    answer = _read(place | ({"include_lineage": True} if lineage else {}), tenant, position)
    if as_json:
        print_json(answer)
    elif is_judgement:
        out = console()
        for field, value in answer.items():
            if value not in ("", None, {}):
                out.print(fact_line(field, value if isinstance(value, str) else orjson.dumps(value).decode()))
    else:
        _print_sums(answer)


def _print_sums(answer: Mapping[str, Any]) -> None:
    groups = [("score", answer["score"])]
    groups += sorted(answer.get("dimensions", {}).items())
    groups += [(f"by {role}", sums) for role, sums in sorted(answer.get("by_emitter_role", {}).items())]
    columns = ("count", "mean", "median", "min", "max", "latest")
    rows = [(name, *(format_score(sums[column]) for column in columns)) for name, sums in groups]
    print_table(console(), ("", *(column.upper() for column in columns)), rows, right_aligned=range(1, 7))


def _table_row(row: Mapping[str, Any]) -> tuple[str | Text, ...]:
    by = row["emitter_agent_id"] or row["emitter_role"]
    return (
        Text(row["eval_id"], style=NAME),
        row["run_id"],
        format_score(row["score"]),
        by,
        row["created_at"][:19] + "Z",
        one_line(row["rationale"], 60),
    )


def format_score(score: float) -> str:
    """Format a score without needless digits."""
    return f"{score:.6g}"


async def post(api: ApiClient, fields: Mapping[str, Any], *, key: str, tenant: str) -> ApiResponse:
    """Carry out an operation. Raises CliError."""
    query = f"?{urlencode({'tenant': tenant})}" if tenant else ""
    return await api.post(PATH + query, fields, {"Idempotency-Key": key})


async def _submit(run_id: str, fields: Mapping[str, Any], key: str, tenant: str) -> ApiResponse:
    async with open_api() as api:
        if not run_id.startswith("r_"):
            run_id = (await get_run(api, run_id))["run_id"]
        return await post(api, {"op": "submit", "run_id": run_id, **fields}, key=key, tenant=tenant)


def _read(fields: Mapping[str, Any], tenant: str, position: str) -> Any:
    return send("POST", PATH, fields, params={"tenant": tenant, "position": position}).value


def _parse_dimensions(texts: Sequence[str]) -> dict[str, float]:
    dimensions: dict[str, float] = {}
    for text in texts:
        name, separator, score = text.rpartition("=")
        try:
            dimensions[name] = float(score)
        except ValueError:
            separator = ""
        if not separator or not name:
            raise UsageError(f"--dimension is {text!r}: expected NAME=SCORE, such as style=0.5.")
    return dimensions


def _parse_json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"--judgement is not JSON: {error}.") from error
