import asyncio
import logging

import pytest
import typer
from typer.testing import CliRunner

from loomlog.connectors.errors import Permanent, Transient
from loomlog.services.cli.commands import QUIET_LOGGERS, CommandGroup, run
from loomlog.services.cli.errors import CliError, Unreachable, UsageError
from loomlog.services.cli.stack.errors import StackError
from loomlog.services.core.refusals import Refused

SLEEP_S = 5.0


def ends_with(error: BaseException):
    app = typer.Typer(cls=CommandGroup, pretty_exceptions_enable=False)

    @app.callback()
    def root() -> None:
        """Makes it a group."""

    @app.command()
    def work() -> None:
        raise error

    return CliRunner().invoke(app, ["work"])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CliError("It failed."), 1),
        (UsageError("It was asked wrongly."), 2),
        (Unreachable("Nobody is there."), 3),
        (StackError("The disk is full."), 1),
        (Refused("command_refused", "It was replayed."), 1),
        (Refused("bad_request", "There is no partition 9."), 2),
        (Refused("log_unavailable", "The broker is away."), 3),
        (Refused("not_found", "There is no record."), 4),
    ],
)
def test_a_failure_is_its_sentence_on_stderr_and_its_code(error, code):
    result = ends_with(error)
    assert (result.exit_code, result.stdout, result.stderr) == (code, "", f"{error}\n")


def test_errors_of_the_outside_are_told_apart():
    away = ends_with(Transient("the broker does not answer", kind="unavailable"))
    assert (away.exit_code, away.stderr) == (3, "the broker does not answer.\n")
    assert ends_with(Permanent("the password is wrong", kind="unauthorised")).exit_code == 1


def test_ctrl_c_is_130_and_silent():
    result = ends_with(KeyboardInterrupt())
    assert (result.exit_code, result.output) == (130, "")


def test_a_bug_stays_a_bug():
    result = ends_with(ZeroDivisionError("ours"))
    assert isinstance(result.exception, ZeroDivisionError)


def test_what_went_wrong_in_a_task_group_is_told_like_anything_else():
    async def work() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail())

    async def fail() -> None:
        raise CliError("Inside.")

    with pytest.raises(CliError, match="Inside"):
        run(work())


def test_one_error_that_two_tasks_met_is_one():
    async def work() -> None:
        problem = StackError("api was given up")
        raise ExceptionGroup("both", [problem, problem])

    with pytest.raises(StackError, match="api was given up"):
        run(work())


def test_two_errors_at_once_are_not_reduced_to_one():
    async def work() -> None:
        raise ExceptionGroup("both", [CliError("a"), CliError("b")])

    with pytest.raises(ExceptionGroup):
        run(work())


def test_libraries_do_not_talk_on_stderr():
    ends_with(CliError("x"))
    assert all(logging.getLogger(name).level == logging.CRITICAL for name in QUIET_LOGGERS)
