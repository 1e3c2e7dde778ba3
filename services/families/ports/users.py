"""What a process knows of users and callers besides the decisions of families: for explanations, and for what there is
of a user.

Before: services/application/application.py provides it. After: services/families/identity/user_handlers.py.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from loomlog.services.core.access.decide import Caller
from loomlog.services.core.operations import AnyOperation


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSources:
    """What transports offer and whom the files name."""

    operations: Callable[[], Sequence[AnyOperation]]
    """Returns all that is offered."""
    principal: Callable[[str], Caller | None]
    """Returns the caller that a principal of the files is, by its name."""
    count_memory: Callable[[str, str], Awaitable[tuple[Mapping[str, int], Sequence[str]]]]
    """Returns, for a tenant and a user, how many keys memory has, by scope, and what could not be looked at. Raises
    Refused.
    """
