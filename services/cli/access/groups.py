"""`loomlog users`, `tenants` and `access`, and `whoami`: made of the operations on users, quotas and access.

    loomlog users add --subject ada --access-mode isolated
    loomlog users token ada
    loomlog users set ada --status disabled
    loomlog tenants quota --scope tenant --runs-at-once 20 --tenant acme
    loomlog access explain ci run.start
    loomlog whoami

Before: services/cli/main.py. After: services/cli/operations.py.
"""

from collections.abc import Mapping

import typer

from loomlog.services.application.operations.process import GET_CALLER
from loomlog.services.application.operations.users import EXPLAIN_ACCESS, INSPECT_USER, LIST_TENANTS, LIST_USERS
from loomlog.services.cli.commands import CommandGroup
from loomlog.services.cli.operations import operation_command
from loomlog.services.core.operations import AnyOperation
from loomlog.services.families.identity import api


def _group(summary: str, commands: Mapping[str, AnyOperation]) -> typer.Typer:
    group = typer.Typer(cls=CommandGroup, no_args_is_help=True, help=summary)
    for name, operation in commands.items():
        group.command(name, help=operation.summary)(operation_command(operation))
    return group


users_app = _group(
    "Users of a tenant: who is registered, with which access, and their tokens.",
    {
        "add": api.REGISTER_USER,
        "ls": LIST_USERS,
        "show": INSPECT_USER,
        "set": api.CHANGE_USER,
        "rm": api.REMOVE_USER,
        "token": api.MINT_USER_TOKEN,
        "tokens": api.LIST_USER_TOKENS,
        "revoke": api.REVOKE_USER_TOKEN,
    },
)
tenants_app = _group(
    "Tenants: which there are, and their quotas.",
    {"ls": LIST_TENANTS, "quota": api.SET_QUOTA, "quotas": api.LIST_QUOTAS},
)
access_app = _group("Whether a caller may call an operation, and why.", {"explain": EXPLAIN_ACCESS})
whoami = operation_command(GET_CALLER)
whoami.__doc__ = "Show the caller that the token is."
