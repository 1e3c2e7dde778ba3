"""A fair queue: tenants in turn, within one its users in turn, within one the oldest.

So a tenant with a thousand requests blocks no other, nor does one of its users. Values and order only: the owner of the
queue measures time. Not chosen: the order of arrival (a tenant that floods it takes everything), weights (no demand so
far).

After: shares.py, admission.py.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Ticket = TypeVar("Ticket", int, str)


def _any_tenant(tenant: str) -> bool:
    return True


def _anybody(tenant: str, user: str) -> bool:
    return True


def _any(ticket: object) -> bool:
    return True


class FairQueue(Generic[Ticket]):
    """A fair queue of tickets. Deterministic: the same calls return the same results."""

    def __init__(self) -> None:
        self._places: dict[Ticket, tuple[str, str]] = {}
        self._turns: OrderedDict[str, OrderedDict[str, OrderedDict[Ticket, None]]] = OrderedDict()
        """Tickets by tenant and user; those whose turn is next come first."""

    def __len__(self) -> int:
        return len(self._places)

    def join(self, ticket: Ticket, tenant: str, user: str) -> None:
        """Add a ticket behind the older ones of its user."""
        assert ticket not in self._places, f"the ticket {ticket} waits already"
        self._places[ticket] = (tenant, user)
        self._turns.setdefault(tenant, OrderedDict()).setdefault(user, OrderedDict())[ticket] = None

    def leave(self, ticket: Ticket) -> bool:
        """Remove a ticket; return False when it was not queued."""
        place = self._places.pop(ticket, None)
        if place is None:
            return False
        tenant, user = place
        users = self._turns[tenant]
        del users[user][ticket]
        if not users[user]:
            del users[user]
        if not users:
            del self._turns[tenant]
        return True

    def next(
        self,
        may_go: Callable[[Ticket], bool] = _any,
        *,
        tenant_may: Callable[[str], bool] = _any_tenant,
        user_may: Callable[[str, str], bool] = _anybody,
    ) -> Ticket | None:
        """Remove and return the next ticket of those that `may_go` accepts; None when there is none.

        `tenant_may` is called for a tenant before any of its users, `user_may` for a user (tenant and user) before any
        of that user's tickets.
        """
        for tenant, users in self._turns.items():
            if not tenant_may(tenant):
                continue
            for user, tickets in users.items():
                if not user_may(tenant, user):
                    continue
                ticket = next(filter(may_go, tickets), None)
                if ticket is not None:
                    users.move_to_end(user)
                    self._turns.move_to_end(tenant)
                    self.leave(ticket)
                    return ticket
        return None
