"""`loomlog up --detach`: the same command in a session of its own, its output in logs/up.log and logs/up-errors.log.

This process shows that output until everything is ready (wiring.json of that process exists) and then exits. There is
no second way to run a stack.

Before: up.py. After: another `loomlog up`.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

from loomlog.connectors.storage import private_files
from loomlog.services.cli.errors import UNREACHABLE, USAGE_ERROR, CliError, Unreachable, UsageError
from loomlog.services.cli.settings import CliSettings
from loomlog.services.cli.stack.home import open_home
from loomlog.services.cli.stack.logfile import read_tail
from loomlog.services.cli.stack.services import python_path
from loomlog.services.cli.stack.services_record import load_services_record
from loomlog.services.cli.terminal.output import SUCCESS

TIMEOUT_S = 900.0
"""Time limit of a start; the first may download the broker over a slow line; each part has a far lower limit of its
own.
"""
POLL_INTERVAL_S = 0.1
ERROR_LINES = 40
"""Lines of output shown on failure: a sentence, and the end of the log of the failed child."""
END_OF_STEPS = "Try it:"
"""The foreground command's output after this line is for interactive use."""


def start_detached(cli: CliSettings, runtimes: int, spares: int | None, out: Console) -> None:
    """Return when everything is ready. Raises CliError with the output of the other process when it ended before."""
    home = open_home(cli.home.root)
    log, errors = home.logs / "up.log", home.logs / "up-errors.log"
    for earlier in (log, errors):
        earlier.unlink(missing_ok=True)
    with private_files.open_for_append(log) as output, private_files.open_for_append(errors) as error_output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-m", "loomlog.services.cli.main", "up", "--runtimes", str(runtimes)),
                *(() if spares is None else ("--spares", str(spares))),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=error_output,
            env={**os.environ, "PYTHONPATH": python_path(os.environ)},
            start_new_session=True,
        )
    shown = 0
    deadline = time.monotonic() + TIMEOUT_S
    while process.poll() is None:
        shown = _print_new_lines(log, shown, out)
        wiring = load_services_record(home.root)
        if wiring is not None and wiring.supervisor_pid == process.pid:
            _print_new_lines(log, shown, out)
            out.print(Text(f"Ready after {wiring.ready_after_s:.1f} s, supervisor {process.pid}.", style=SUCCESS))
            out.print("`loomlog down` stops everything.")
            return
        if time.monotonic() > deadline:
            process.terminate()
            raise CliError(f"The stack was not ready within {TIMEOUT_S:g} s and was told to stop; see {log}.")
        time.sleep(POLL_INTERVAL_S)
    _print_new_lines(log, shown, out)
    kind = {USAGE_ERROR: UsageError, UNREACHABLE: Unreachable}.get(process.returncode, CliError)
    raise kind(read_tail(errors, lines=ERROR_LINES) or f"The stack ended with {process.returncode} and without a word.")


def _print_new_lines(log: Path, offset: int, out: Console) -> int:
    """Print the complete lines of the log from `offset` on; return the offset after them."""
    with open(log, "rb") as file:
        file.seek(offset)
        text = file.read()
    whole = text[: text.rfind(b"\n") + 1]
    steps, _, _ = whole.decode(errors="replace").partition(END_OF_STEPS)
    for line in steps.splitlines():
        out.print(line)
    return offset + len(whole)
