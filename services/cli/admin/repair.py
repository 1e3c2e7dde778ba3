"""`loomlog repair`: restating an aggregate that is quarantined, over the API.

    loomlog repair budget:/installation                        what is known of it, and the state it would get
    loomlog repair budget:/installation --yes --reason "..."   with the last state that could be folded
    loomlog repair budget:/installation --state FILE --yes     with another one: the JSON that `--json` shows, edited

An event that cannot follow the one before it (a record was lost, damaged, or written by another program), or a rule
that fails, quarantines one aggregate: nothing is decided in it. The repair is an event too, so nothing is deleted, and
every fold continues from it.

Before: services/cli/main.py. After: services/cli/http/api.py.
"""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from loomlog.services.cli.errors import CliError
from loomlog.services.cli.http.requests import get, send
from loomlog.services.cli.runs.runs import Json
from loomlog.services.cli.terminal.output import DIM, ERROR, NAME, SUCCESS, WARNING, console, print_json

PATH = "/v1/_repair"


def repair(
    aggregate: Annotated[str, typer.Argument(metavar="FAMILY:TENANT/NAME", help="The aggregate.")],
    state_file: Annotated[
        Path | None,
        typer.Option("--state", metavar="FILE", help="Its new state, instead of the last one that is known."),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why; it is kept in the event.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without it nothing is done.")] = False,
    as_json: Json = False,
) -> None:
    """Restate a quarantined aggregate, so that it continues."""
    state = None if state_file is None else _read_state(state_file)
    if yes:
        fields = {"aggregate": aggregate, "reason": reason, **({} if state is None else {"state": state})}
        answer = send("POST", PATH, fields)
        if as_json:
            print_json(answer.value)
        else:
            text = Text.assemble((aggregate, NAME), (" is restated", SUCCESS), ("  event ", DIM), answer.position)
            console().print(text)
        return
    known = get(PATH, {"aggregate": aggregate})
    if as_json:
        print_json({**known, "state": known["state"] if state is None else state})
        return
    out = console()
    why = (known["quarantine"], ERROR) if known["quarantine"] else ("it is not quarantined", DIM)
    out.print(Text.assemble((aggregate, NAME), f" at event {known['seq']}: ", why))
    stated = known["state"] if state is None else state
    if stated is None:
        out.print("Its state is not known here: it would get the last one that its owner could fold.")
    else:
        out.print("It would get this state:")
        out.print(Text(json.dumps(stated, indent=2, ensure_ascii=False)))
    out.print(Text("Nothing was changed. --yes does it.", style=WARNING))


def _read_state(file: Path) -> Any:
    """Return the state in a file. Raises CliError."""
    try:
        shown = json.loads(file.read_bytes())
    except OSError as error:
        raise CliError(f"{file} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise CliError(f"{file} is not JSON: {error}.") from error
    return shown["state"] if isinstance(shown, dict) and "aggregate" in shown and "state" in shown else shown
