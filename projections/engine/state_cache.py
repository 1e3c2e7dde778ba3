"""The stored states of the aggregates that were projected last, bounded in number and in bytes.

Before: projection.py has written them. After: it folds their next events without a read.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

StateT = TypeVar("StateT")


class StateCache(Generic[StateT]):
    """Cache of states by aggregate that forgets those written longest ago."""

    def __init__(
        self, *, entries_max: int, bytes_max: int = 0, size_bytes: Callable[[StateT], int] | None = None
    ) -> None:
        """`size_bytes` is asked once a state; without it states are only counted."""
        self._states: OrderedDict[str, tuple[StateT, int]] = OrderedDict()
        self._entries_max, self._bytes_max, self._size_bytes = entries_max, bytes_max, size_bytes
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._states)

    def find(self, aggregate: str) -> StateT | None:
        entry = self._states.get(aggregate)
        return None if entry is None else entry[0]

    def put(self, states: Mapping[str, StateT]) -> None:
        """Store states, then forget the oldest above the bounds."""
        for aggregate, state in states.items():
            self.remove(aggregate)
            size = 0 if self._size_bytes is None else self._size_bytes(state)
            self._states[aggregate] = state, size
            self._bytes += size
        while len(self._states) > self._entries_max or (self._bytes_max and self._bytes > self._bytes_max):
            _, (_, size) = self._states.popitem(last=False)
            self._bytes -= size

    def remove(self, aggregate: str) -> None:
        _, size = self._states.pop(aggregate, (None, 0))
        self._bytes -= size

    def clear(self) -> None:
        self._states.clear()
        self._bytes = 0
