"""How commands are run: failures become one sentence on stderr and an exit code, wherever they come from.

Connector errors are mapped to exit codes only here: an unreachable service is 3, the rest 1. A bug remains a stack
trace: it is for developers, not for the user.

Before: main.py. After: the shell.
"""

import asyncio
import importlib
import logging
import sys
from collections.abc import Coroutine, Mapping
from typing import Any, ClassVar, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from loomlog.connectors.errors import ConnectorError, Transient
from loomlog.services.application.errors import RequestRefused
from loomlog.services.cli.errors import FAILED, INTERRUPTED, NOT_FOUND, UNREACHABLE, USAGE_ERROR, CliError
from loomlog.services.cli.stack.errors import StackError
from loomlog.services.cli.terminal.output import ERROR, error_console
from loomlog.services.families import FamilyProblem

Result = TypeVar("Result")
QUIET_LOGGERS = ("aiokafka", "psycopg", "httpx", "loomlog.services.stream.entities.replicas")
"""Libraries whose log lines would repeat the failure that the user sees once as a sentence."""
REFUSAL_EXIT_CODES = {
    "bad_request": USAGE_ERROR,
    "not_found": NOT_FOUND,
    "log_unavailable": UNREACHABLE,
}
"""Exit codes of refusals of the application layer, which some commands call directly; FAILED for all others."""


class CommandGroup(TyperGroup):
    """A group of commands that ends as described above.

    `modules` maps command names to their function or group, `module:name`, and `helps` to their line in the help. A
    module is imported when its command is used: the drivers that some commands need take longer to import than most
    commands to run.
    """

    modules: ClassVar[Mapping[str, str]] = {}
    helps: ClassVar[Mapping[str, str]] = {}
    aliases: ClassVar[Mapping[str, str]] = {}
    """Commands by their hidden former names."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.lists_commands = False
        nothing_yet: dict[str, Any] = dict.fromkeys(self.modules)
        self.commands = nothing_yet | dict(self.commands)  # names that "did you mean" chooses from

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of the table."""
        return list(self.commands)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import and return the command of that name; None when there is none."""
        cmd_name = self.aliases.get(cmd_name, cmd_name)
        place = self.modules.get(cmd_name)
        if place is not None and self.lists_commands:
            return TyperCommand(cmd_name, help=self.helps[cmd_name])
        return super().get_command(ctx, cmd_name) if place is None else _load_command(cmd_name, place)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help of this group from `helps`, without importing the commands."""
        self.lists_commands = True
        _hide_flag_types(self)
        try:
            super().format_help(ctx, formatter)
        except CliError as failure:
            _exit_with(str(failure), failure.exit_code)

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        for name in QUIET_LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        try:
            return super().invoke(ctx)
        except CliError as failure:
            _exit_with(str(failure), failure.exit_code)
        except RequestRefused as refusal:
            _exit_with(refusal.message, REFUSAL_EXIT_CODES.get(refusal.code, FAILED))
        except FamilyProblem as problem:
            _exit_with(f"{problem}. LOOMLOG_FAMILIES names further families.", USAGE_ERROR)
        except StackError as problem:
            _exit_with(str(problem), FAILED)
        except ConnectorError as error:
            _exit_with(f"{error}.", UNREACHABLE if isinstance(error, Transient) else FAILED)
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run the asynchronous part of a command; an ExceptionGroup with one error in it becomes that error."""
    try:
        return asyncio.run(coroutine)
    except BaseExceptionGroup as group:
        raise _unwrap_group(group) from None


def load_group(app: typer.Typer, name: str) -> Any:
    """Return a group as a command of that name, without the options that install completion, which `loomlog` has."""
    group = get_group(app)
    group.name = name
    _hide_flag_types(group)
    return group


def _load_command(name: str, target: str) -> Any:
    module, _, attribute = target.partition(":")
    loaded = getattr(importlib.import_module(module), attribute)
    if isinstance(loaded, typer.Typer):
        return load_group(loaded, name)
    alone = typer.Typer(add_completion=False)
    alone.command(name)(loaded)
    command: Any = get_command(alone)
    command.name = name
    _hide_flag_types(command)
    return command


def _hide_flag_types(command: Any) -> None:
    """Leave `<bool>` out of the help of flags, which take no value."""
    for parameter in command.params:
        if getattr(parameter, "is_bool_flag", False):
            parameter.metavar = ""
    for below in getattr(command, "commands", {}).values():
        if below is not None:
            _hide_flag_types(below)


def _unwrap_group(group: BaseException) -> BaseException:
    """Return the only error of a group; equal errors of two tasks count as one."""
    while isinstance(group, BaseExceptionGroup) and len({repr(error) for error in group.exceptions}) == 1:
        group = group.exceptions[0]
    return group


def _exit_with(message: str, code: int) -> None:
    sys.stdout.flush()
    error_console().print(message, style=ERROR)
    raise typer.Exit(code)
