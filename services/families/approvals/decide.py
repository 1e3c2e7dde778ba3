"""Decisions about the rules of a tenant: rules that cannot be used are refused, and so is an outdated change.

Before: services/stream/entities/handler.py passes a command. After: state.py.
"""

from collections.abc import Sequence

from loomlog.schemas.approval_policy import PolicyError, decode_policy, policy_sha256, policy_text
from loomlog.schemas.generated.approvals_commands import SetPolicy
from loomlog.schemas.generated.approvals_events import PolicySet
from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.services.core.access.scopes import SCOPES
from loomlog.services.core.families import At
from loomlog.services.families.approvals.state import TenantPolicy

ANY_VERSION = -1


def decide(policy: TenantPolicy, command: SetPolicy, at: At) -> Sequence[PolicySet | CommandRefused]:
    """Return the event of rules that are put in force; the same rules again are a version too, so that a rollback shows
    in the history.
    """
    if command.replaces not in (ANY_VERSION, policy.version):
        message = f"version {policy.version} is in force, not {command.replaces}: read it and change that"
        return [CommandRefused(code="revision_conflict", message=message)]
    try:
        text = policy_text(decode_policy(command.text, scopes=SCOPES))
    except PolicyError as error:
        return [CommandRefused(code="bad_request", message=str(error))]
    return [
        PolicySet(
            version=policy.version + 1,
            text=text,
            sha256=policy_sha256(text),
            by=at.caller,
            restores=command.restores,
            at_ms=at.at_ms,
        )
    ]
