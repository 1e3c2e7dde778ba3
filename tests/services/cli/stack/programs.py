"""Small programs to supervise, and what they print. Python without site packages starts in 20 ms."""

import os
import sys

from loomlog.services.cli.stack.child import ChildSpec

ENVIRONMENT = {"PATH": os.environ.get("PATH", os.defpath)}
RUNS_ON = "import time\nwhile True: time.sleep(60)"
# Prints, so that a test can wait until it really ignores the signal.
IGNORES_SIGTERM = (
    "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('deaf', flush=True)\n" + RUNS_ON
)


def python(code: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", code, *arguments)


def child(name: str, code: str = RUNS_ON, *arguments: str, **more: object) -> ChildSpec:
    return ChildSpec(name=name, argv=python(code, *arguments), environment=ENVIRONMENT, **more)  # type: ignore[arg-type] # any field
