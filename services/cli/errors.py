"""Errors of commands: one sentence for people, and an exit code for programs.

    1  the command failed, or a check found a problem
    2  the command line or a setting is invalid
    3  a service that is needed cannot be reached
    4  what was asked for does not exist
  130  ended by Ctrl-C

Every command raises one of these, or a connector error that `commands.py` translates; only there is anything printed
and the process ended, so no command can forget it.

Before: every command. After: commands.py.
"""

FAILED = 1
USAGE_ERROR = 2
UNREACHABLE = 3
NOT_FOUND = 4
INTERRUPTED = 130
"""Exit code that shells expect after Ctrl-C: 128 plus the number of SIGINT."""


class CliError(Exception):
    """The command failed. str() is the sentence for people."""

    exit_code = FAILED


class UsageError(CliError):
    """Invalid use, or settings that cannot be used."""

    exit_code = USAGE_ERROR


class NotFound(CliError):
    """What was asked for does not exist: a run, an agent, a record, a file."""

    exit_code = NOT_FOUND


class Unreachable(CliError):
    """A service that is needed does not answer."""

    exit_code = UNREACHABLE
