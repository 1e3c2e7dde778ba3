"""Who runs what when the tests run in several processes (`pytest -n 2`, `make test`).

The broker and the Postgres of the session belong to one process, whole stacks to one, so that each is started once;
files of pure tests fill what is left. A failure is printed when it happens, so that a run that is stopped has told it.
Loaded by `-p tests.sharing`.
"""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).parent.parent
STACKS, OUTSIDE = "stacks", "outside"
STACK_FOLDERS = frozenset({"acceptance", "browser", "chaos"})
OUTSIDE_FOLDERS = frozenset({"cli", "projections", "projector", "redpanda"})
"""Folders of tests that start programs of their own or share fixtures of the broker and of Postgres."""
OUTSIDE_WORDS = ("pytest.mark.integration", "pytest.mark.stack", "pg_schema", "topic_prefix")


class Sharing(LoadScopeScheduling):  # type: ignore[misc]  # xdist ships no types for it
    """A file is the smallest share; all that is outside is one, and all whole stacks."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid.partition("::")[0])


@cache
def scope_of(path: str) -> str:
    """The share of a test file, given relative to the root."""
    if STACK_FOLDERS & set(Path(path).parts):
        return STACKS
    if OUTSIDE_FOLDERS & set(Path(path).parts):
        return OUTSIDE
    text = (ROOT / path).read_text()
    return OUTSIDE if any(word in text for word in OUTSIDE_WORDS) else path


def pytest_xdist_make_scheduler(config: Any, log: Any) -> Sharing:
    return Sharing(config, log)


class FailuresAtOnce:
    """Prints one line of a failure at once; pytest prints the whole of it at the end."""

    def __init__(self, terminal: Any) -> None:
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            reason = str(crash.message if crash else report.longreprtext).strip().partition("\n")[0]
            self._terminal.write_line(f"\nFAILED {report.nodeid} ({report.when}, {report.duration:.1f} s): {reason}")


@pytest.hookimpl(trylast=True)  # after the terminal's
def pytest_configure(config: Any) -> None:
    if not hasattr(config, "workerinput"):  # the processes of the tests hand their reports over
        config.pluginmanager.register(FailuresAtOnce(config.pluginmanager.get_plugin("terminalreporter")))
