"""How commands are run: failures become one sentence on stderr and an exit code, wherever they come from.

Connector errors are mapped to exit codes only here: an unreachable service is 3, the rest 1. A bug remains a stack
trace: it is for developers, not for the user.

Before: main.py. After: the shell.
"""

import importlib
import logging
import sys
from collections.abc import Coroutine, Mapping
from typing import Any, ClassVar, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from loomlog.services.cli.errors import FAILED, INTERRUPTED, NOT_FOUND, UNREACHABLE, USAGE_ERROR, CliError

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
            return listed_command(cmd_name, self.helps[cmd_name])
        return super().get_command(ctx, cmd_name) if place is None else _load_command(cmd_name, place)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help of this group from `helps`, without importing the commands."""
        self.lists_commands = True
        _simplify_help(self)
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
        except KeyboardInterrupt:
            raise typer.Exit(INTERRUPTED) from None
        except Exception as error:
            known = describe_failure(error)
            if known is None:
                raise
            _exit_with(*known)


def listed_command(name: str, summary: str) -> TyperCommand:
    """Return a command that can only be listed, with its whole summary."""
    return TyperCommand(name, help=summary, short_help=summary)


def describe_failure(error: Exception) -> tuple[str, int] | None:
    """Return the sentence and the exit code of a failure; None for a bug.

    The classes are imported here, once something has failed: they take longer to import than the help to print.
    """
    if isinstance(error, CliError):
        return str(error), error.exit_code
    from loomlog.connectors.errors import ConnectorError, Transient
    from loomlog.services.cli.stack.errors import StackError
    from loomlog.services.core.refusals import Refused
    from loomlog.services.families import FamilyProblem

    match error:
        case Refused():
            return error.message, REFUSAL_EXIT_CODES.get(error.code, FAILED)
        case FamilyProblem():
            return f"{error}. LOOMLOG_FAMILIES names further families.", USAGE_ERROR
        case StackError():
            return str(error), FAILED
        case ConnectorError():
            return f"{error}.", UNREACHABLE if isinstance(error, Transient) else FAILED
    return None


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Run the asynchronous part of a command; an ExceptionGroup with one error in it becomes that error."""
    import asyncio

    try:
        return asyncio.run(coroutine)
    except BaseExceptionGroup as group:
        raise _unwrap_group(group) from None


def load_group(app: typer.Typer, name: str) -> Any:
    """Return a group as a command of that name, without the options that install completion, which `loomlog` has."""
    group = get_group(app)
    group.name = name
    _simplify_help(group)
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
    _simplify_help(command)
    return command


def _simplify_help(command: Any) -> None:
    """Leave `<bool>` out of the help of flags, which take no value; print it without rich, which is slow to import."""
    command.rich_markup_mode = None
    for parameter in command.params:
        if getattr(parameter, "is_bool_flag", False):
            parameter.metavar = ""
    for below in getattr(command, "commands", {}).values():
        if below is not None:
            below.short_help = " ".join((below.help or "").partition("\n\n")[0].split())  # else it is cut short
            _simplify_help(below)


def _unwrap_group(group: BaseException) -> BaseException:
    """Return the only error of a group; equal errors of two tasks count as one."""
    while isinstance(group, BaseExceptionGroup) and len({repr(error) for error in group.exceptions}) == 1:
        group = group.exceptions[0]
    return group


def _exit_with(message: str, code: int) -> None:
    from loomlog.services.cli.terminal.output import ERROR, error_console

    sys.stdout.flush()
    error_console().print(message, style=ERROR)
    raise typer.Exit(code)
