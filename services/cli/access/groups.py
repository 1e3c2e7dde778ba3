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
from loomlog.services.cli.commands import CommandGroup
from loomlog.services.cli.operations import find_operation, operation_command


def _group(summary: str, commands: Mapping[str, str]) -> typer.Typer:
    group = typer.Typer(cls=CommandGroup, no_args_is_help=True, help=summary)
    for name, operation_name in commands.items():
        operation = find_operation(operation_name)
        group.command(name, help=operation.summary)(operation_command(operation))
    return group


users_app = _group(
    "Users of a tenant: who is registered, with which access, and their tokens.",
    {
        "add": "identity.register_user",
        "ls": "user.list",
        "show": "user.inspect",
        "set": "identity.change_user",
        "rm": "identity.remove_user",
        "token": "identity.mint_user_token",
        "tokens": "identity.list_user_tokens",
        "revoke": "identity.revoke_user_token",
    },
)
tenants_app = _group(
    "Tenants: which there are, and their quotas.",
    {"ls": "tenant.list", "quota": "identity.set_quota", "quotas": "identity.list_quotas"},
)
access_app = _group("Whether a caller may call an operation, and why.", {"explain": "access.explain"})
whoami = operation_command(GET_CALLER)
whoami.__doc__ = "Show the caller that the token is."
