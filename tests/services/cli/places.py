"""Settings of the command line over a folder of a test, with or without a stack that runs in it."""

import os
from dataclasses import replace
from pathlib import Path

from loomlog.services.cli.settings import CliSettings, load_cli_settings
from loomlog.services.cli.stack.processes import identify
from loomlog.services.cli.stack.record import ChildRecord, StackRecord
from loomlog.services.cli.stack.services_record import ServicesRecord
from loomlog.services.cli.stack.status import StackStatus

CONFIGURATION = """\
providers:
  mock: { driver: mock, options: { enabled: true } }
volumes:
  source: { path: src, mode: ro, default: true }
  out: { path: results, mode: rw }
agents:
  reviewer: { provider: mock, model: mock-reviewer, tools: [Glob, Grep, Read, Write], volumes: [source, out] }
"""


def settings_in(folder: Path, **environ: str) -> CliSettings:
    """Settings whose state folder is `folder`/home and whose configuration is loomlog.yaml in `folder`."""
    known = {"LOOMLOG_HOME": str(folder / "home"), "PATH": os.environ["PATH"]}
    return load_cli_settings({**known, **environ}, working_directory=folder)


def configured(folder: Path, text: str = CONFIGURATION) -> Path:
    """Writes loomlog.yaml."""
    path = folder / "loomlog.yaml"
    path.write_text(text)
    return path


def wiring(folder: Path, **changes: object) -> ServicesRecord:
    fields = {
        "supervisor_pid": os.getpid(),
        "api_url": "http://127.0.0.1:1",
        "insights_url": "",
        "source": str(folder / "src"),
        "out": str(folder / "results"),
        "open_mode": True,
        "runtimes": 1,
        "configuration": (),
        "ready_after_s": 1.0,
    }
    return ServicesRecord(**(fields | changes))


def child(name: str, **changes: object) -> ChildRecord:
    fields = {
        "name": name,
        "group": 1,
        "state": "ready",
        "restarts": 0,
        "pid": os.getpid(),
        "started_s": 0.0,
        "command": ("python",),
        "stop_signal": "SIGTERM",
        "stop_timeout_s": 1.0,
        "log": "/x.log",
        "url": "",
    }
    return ChildRecord(**(fields | changes))


def with_stack(
    cli: CliSettings, *children: ChildRecord, supervised: bool = True, known: ServicesRecord | None = None
) -> CliSettings:
    """The same settings as if a stack with these children ran."""
    me = identify(os.getpid())
    assert me is not None
    record = StackRecord(
        supervisor=me, kafka="127.0.0.1:19", postgres="postgresql://x@127.0.0.1:15/x", children=children
    )
    stack = StackStatus(
        is_supervised=supervised,
        supervisor=me if supervised else None,
        record=record,
        record_error="",
        running_children=children,
    )
    return replace(cli, stack=stack, services_record=known)
