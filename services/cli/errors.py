"""How a command ends when it cannot do what was asked: one sentence for people, and the exit code that tells programs.

    1  it was tried and failed, or what was looked for is wrong
    2  it was asked in a way that cannot be done
    3  whoever has to do it cannot be reached

Every command raises one of these, or an error of the parts it uses that is translated in `commands.py`; only there is
anything printed and the process ended, so no command can forget it.

Before: every command. After: commands.py.
"""

FAILED = 1
USAGE_ERROR = 2
UNREACHABLE = 3
INTERRUPTED = 130
"""What shells expect of a program that Ctrl-C ended: 128 and the number of SIGINT."""


class CliError(Exception):
    """Tried, and it failed. str() is the sentence for people."""

    exit_code = FAILED


class UsageError(CliError):
    """Asked in a way that cannot be done, or with settings that cannot be used."""

    exit_code = USAGE_ERROR


class Unreachable(CliError):
    """Whoever has to do it does not answer."""

    exit_code = UNREACHABLE
