"""The open transactions that a process knows, bounded so that no tenant closes them for the others.

Each tenant and principal has a share (services/core/shares.py), and a tree of runs has one at a time: while it waits
for a person, it keeps at most one database from its other writers. A transaction counts until it ends, or until it
would have been rolled back as idle; this process need not see that.

Not chosen: a count in the log, as one process closes its own transactions only.

Before: operations.py. After: services/core/shares.py.
"""

from typing import NamedTuple

from loomlog.services.core.shares import Holder, ShareLimits, Shares
from loomlog.services.families.memory.author import Scope


class TreeBusy(Exception):
    """The tree of runs has a transaction open in another scope."""


class Key(NamedTuple):
    """A transaction: there is one in a scope for each tree of runs."""

    scope: Scope
    root_run_id: str


class OpenTransactions:
    """See the module. Nothing suspends between looking and taking."""

    def __init__(self, limits: ShareLimits) -> None:
        self._shares = Shares("open SQL transactions", limits)
        self._open: dict[Key, tuple[Holder, int]] = {}
        """Holders, and when they end as idle, UTC milliseconds."""

    def reserve(self, key: Key, holder: Holder, *, now_ms: int, ends_ms: int) -> bool:
        """Count a transaction that is about to begin; return False when it is open already.

        Raises TreeBusy, ShareExhausted.
        """
        for other, (_, other_ends_ms) in list(self._open.items()):
            if other_ends_ms <= now_ms:
                self.end(other)
        if key in self._open:
            return False
        for other in self._open:
            if (other.scope.tenant, other.root_run_id) == (key.scope.tenant, key.root_run_id):
                raise TreeBusy(
                    f"these runs have a transaction open in the scope {other.scope.name}, and may have one at a time: "
                    "end it with sql_commit or sql_rollback, or try again when another run of the tree has ended it"
                )
        self._shares.take(holder)
        self._open[key] = (holder, ends_ms)
        return True

    def note(self, key: Key, holder: Holder, ends_ms: int) -> None:
        """Count a transaction that is open, whatever the bounds: another process may have begun it."""
        if key in self._open:
            holder, _ = self._open[key]
        else:
            self._shares.add(holder)
        self._open[key] = (holder, ends_ms)

    def end(self, key: Key) -> None:
        """Count a transaction no more."""
        if (entry := self._open.pop(key, None)) is not None:
            self._shares.release(entry[0])
