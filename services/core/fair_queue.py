"""Who goes next among those that wait: tenants in turn, within one its users in turn, within one the oldest.

So a tenant that asks a thousand times keeps nobody out, nor does one of its users. Values and order only: whoever keeps
the queue keeps the time too. Not chosen: the order of arrival (the tenant that floods it has it all), weights (nobody
has asked for them). admission.py has the same turns with bounds in between, which is another walk over them.

After: services/runtime/provider_queues.py.
"""

from collections import OrderedDict


class FairQueue:
    """Tickets of those that wait. Deterministic: the same calls give the same answers."""

    def __init__(self) -> None:
        self._places: dict[int, tuple[str, str]] = {}
        self._turns: OrderedDict[str, OrderedDict[str, OrderedDict[int, None]]] = OrderedDict()
        """Tenants, their users, their tickets; whose turn is next comes first."""

    def __len__(self) -> int:
        return len(self._places)

    def join(self, ticket: int, tenant: str, user: str) -> None:
        """The ticket waits, behind the older ones of its user."""
        assert ticket not in self._places, f"the ticket {ticket} waits already"
        self._places[ticket] = (tenant, user)
        self._turns.setdefault(tenant, OrderedDict()).setdefault(user, OrderedDict())[ticket] = None

    def leave(self, ticket: int) -> bool:
        """The ticket waits no longer; false when it did not."""
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

    def next(self) -> int | None:
        """The ticket whose turn it is, which has left then; None when nobody waits."""
        for tenant, users in self._turns.items():
            user, tickets = next(iter(users.items()))
            ticket = next(iter(tickets))
            users.move_to_end(user)
            self._turns.move_to_end(tenant)
            self.leave(ticket)
            return ticket
        return None
