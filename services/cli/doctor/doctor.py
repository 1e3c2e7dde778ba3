"""`loomlog doctor`: checks the prerequisites and the health of what runs. Exit 1 when a check fails.

Every check is a line: its subject, the finding, and if there is a problem, why it matters and what to do. Warnings do
not fail.

    to start     Python, the state folder and its disk, configuration, models, access, Java, jars, Postgres, ports
    what runs    processes, broker, topics, Postgres, API, read models, entities, recovery, insights

Before: services/cli/main.py. After: checks.py.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from loomlog.services.cli.commands import run
from loomlog.services.cli.doctor.checks import run_checks
from loomlog.services.cli.errors import FAILED
from loomlog.services.cli.settings import current_settings
from loomlog.services.cli.terminal.formatting import pluralize
from loomlog.services.cli.terminal.output import DIM, ERROR, SUCCESS, WARNING, console, print_json
from loomlog.services.core.check import FAIL, OFF, OK, WARN, Check

MARKS = {
    OK: ("ok    ", SUCCESS),
    OFF: ("off   ", DIM),
    WARN: ("warn  ", WARNING),
    FAIL: ("fail  ", ERROR),
}


def doctor(as_json: Annotated[bool, typer.Option("--json", help="JSON instead of text.")] = False) -> None:
    """Check every prerequisite and every running part; report what is wrong, why, and what to do."""
    cli = current_settings()
    checks = run(run_checks(cli, Path.cwd()))
    if as_json:
        print_json({"ok": not any(check.state == FAIL for check in checks), "checks": [asdict(one) for one in checks]})
    else:
        _print_checks(console(), checks)
    if any(check.state == FAIL for check in checks):
        raise typer.Exit(FAILED)


def _print_checks(out: Console, checks: list[Check]) -> None:
    for check in checks:
        out.print(Text.assemble(MARKS[check.state], (f"{check.name:<15}", "bold"), check.text))
        if check.remedy:
            for line in check.remedy.splitlines():
                out.print(Text(f"      {'':<15}{line}", style=DIM))
    failed = sum(check.state == FAIL for check in checks)
    off = sum(check.state == OFF for check in checks)
    warned = sum(check.state == WARN for check in checks)
    out.print()
    if failed:
        passed = len(checks) - failed - warned - off
        out.print(
            Text(f"{pluralize(failed, 'check')} failed, {pluralize(warned, 'warning')}, {passed} passed.", style=ERROR)
        )
    else:
        rest = f", {pluralize(warned, 'warning')}" if warned else ""
        out.print(Text(f"All required checks passed{rest}.", style=SUCCESS))
