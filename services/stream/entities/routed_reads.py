"""Reads of entities in a process with several topic sets: each family is read where its topic set is.

Before: services/families/entity_handlers.py. After: reading.py, one for each set.
"""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, TypeVar, cast

from loomlog.services.stream.entities.hosting import EntityParts
from loomlog.services.stream.entities.reads import EntityReads

ReadT = TypeVar("ReadT", bound=Callable[..., Awaitable[Any]])


def _of_family(read: ReadT) -> ReadT:
    """Return a method that asks the reads of the topic set of the family, which it names first."""

    @wraps(read)
    async def ask(self: "RoutedReads", family: str, *args: Any, **options: Any) -> Any:
        return await getattr(self.of(family), read.__name__)(family, *args, **options)

    return cast(ReadT, ask)


class RoutedReads:
    """Protocol loomlog.services.stream.entities.reads.EntityReads. `topic`, `partitions` and `wait` are those of the
    first set; positions of another set's topic are waited for by reads of its families.
    """

    def __init__(self, parts: EntityParts, *reads: EntityReads) -> None:
        """`reads`: one for each of `parts.each`, in their order."""
        self._first = reads[0]
        self.beside = reads[1:]
        """The reads of the further topic sets, each with its topic."""
        self._by_family = {
            name: one for of, one in zip(parts.each, reads, strict=True) for name in of.family.families.by_name
        }
        self.topic, self.partitions = self._first.topic, self._first.partitions

    def of(self, family: str) -> EntityReads:
        """Return the reads of the topic set of a family."""
        return self._by_family.get(family, self._first)

    async def wait(self, partition: int, offset: int, *, timeout_s: float) -> int:
        return await self._first.wait(partition, offset, timeout_s=timeout_s)

    show = _of_family(EntityReads.show)
    local = _of_family(EntityReads.local)
    list = _of_family(EntityReads.list)
    load_items = _of_family(EntityReads.load_items)
    list_items = _of_family(EntityReads.list_items)
    list_items_by_id = _of_family(EntityReads.list_items_by_id)
    newest_items = _of_family(EntityReads.newest_items)
    sum_items = _of_family(EntityReads.sum_items)
    sum_items_by_key = _of_family(EntityReads.sum_items_by_key)
