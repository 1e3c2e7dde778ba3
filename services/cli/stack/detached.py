"""`loomlog up --detach`: the same command in a session of its own, its output in logs/up.log and logs/up-errors.log.

This process shows that output until everything is ready (wiring.json of exactly that process says so) and then leaves.
There is no second way to run a stack.

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
from loomlog.services.cli.failures import UNREACHABLE, WRONG_USE, Failure, Unreachable, WrongUse
from loomlog.services.cli.settings import CliSettings
from loomlog.services.cli.stack.home import open_home
from loomlog.services.cli.stack.logfile import tail
from loomlog.services.cli.stack.services import python_path
from loomlog.services.cli.stack.services_record import load_wiring
from loomlog.services.cli.terminal.output import GOOD

TIMEOUT_S = 900.0
"""The very first start may fetch the broker over a slow line; each part has a bound of its own far below this."""
LOOK_EVERY_S = 0.1
ERROR_LINES = 40
"""A sentence, and the end of the log of the child that failed."""
END_OF_STEPS = "Try it:"
"""What the foreground command says after this is for who sits in front of it."""


def start_detached(cli: CliSettings, runtimes: int, out: Console) -> None:
    """Returns when everything is ready. Raises Failure with what the other process said when it ended before."""
    home = open_home(cli.home.root)
    log, errors = home.logs / "up.log", home.logs / "up-errors.log"
    for earlier in (log, errors):
        earlier.unlink(missing_ok=True)
    with private_files.open_for_append(log) as output, private_files.open_for_append(errors) as error_output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "loomlog.services.cli.main", "up", "--runtimes", str(runtimes)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=error_output,
            env={**os.environ, "PYTHONPATH": python_path(os.environ)},
            start_new_session=True,
        )
    shown = 0
    deadline = time.monotonic() + TIMEOUT_S
    while process.poll() is None:
        shown = _show(log, shown, out)
        wiring = load_wiring(home.root)
        if wiring is not None and wiring.supervisor_pid == process.pid:
            _show(log, shown, out)
            out.print(Text(f"Ready after {wiring.ready_after_s:.1f} s, supervisor {process.pid}.", style=GOOD))
            out.print("`loomlog down` stops everything.")
            return
        if time.monotonic() > deadline:
            process.terminate()
            raise Failure(f"The stack was not ready within {TIMEOUT_S:g} s and was told to stop; see {log}.")
        time.sleep(LOOK_EVERY_S)
    _show(log, shown, out)
    kind = {WRONG_USE: WrongUse, UNREACHABLE: Unreachable}.get(process.returncode, Failure)
    raise kind(tail(errors, lines=ERROR_LINES) or f"The stack ended with {process.returncode} and without a word.")


def _show(log: Path, shown: int, out: Console) -> int:
    """Prints the whole lines of the log from `shown` on; the place after them."""
    with open(log, "rb") as file:
        file.seek(shown)
        text = file.read()
    whole = text[: text.rfind(b"\n") + 1]
    steps, _, _ = whole.decode(errors="replace").partition(END_OF_STEPS)
    for line in steps.splitlines():
        out.print(line)
    return shown + len(whole)
