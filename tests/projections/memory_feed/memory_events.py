"""Events of memory scopes as records of the log."""

from typing import Any

from loomlog.schemas.generated.memory_events import (
    EntriesExpired,
    EntryDeleted,
    EntrySet,
    EntrySuperseded,
    ScopeDropped,
)
from loomlog.schemas.generated.values import MemorySource
from tests.projections.stories import Partition

SOURCE = MemorySource(origin="operator", principal="op")
SECRET = '"the value of the key"'


class Memories(Partition):
    """A partition of the entity events; `change` appends an event of the user scope of a user."""

    def change(self, user: str, *events: Any, tenant: str = "acme", **more: Any) -> None:
        self.add(f"memory:{tenant}/user/{user}", *events, tenant=tenant, **more)


def entry_set(user: str, key: str) -> EntrySet:
    return EntrySet(
        scope="user",
        scope_id=user,
        key=key,
        value=SECRET,
        value_bytes=len(SECRET),
        revision=1,
        created_at_s=1,
        source=SOURCE,
        usage_bytes=1,
        usage_keys=1,
        quota_bytes=-1,
    )


def entry_deleted(user: str, key: str) -> EntryDeleted:
    return EntryDeleted(
        scope="user",
        scope_id=user,
        key=key,
        revision=2,
        previous_revision=1,
        source=SOURCE,
        usage_bytes=0,
        usage_keys=0,
    )


def entry_superseded(user: str, key: str) -> EntrySuperseded:
    return EntrySuperseded(
        scope="user", scope_id=user, key=key, revision=2, previous_revision=1, by_key="other", source=SOURCE
    )


def entries_expired(user: str, *keys: str) -> EntriesExpired:
    return EntriesExpired(scope="user", scope_id=user, keys=keys, revision=3, usage_bytes=0, usage_keys=0)


def scope_dropped(user: str, *, more: bool) -> ScopeDropped:
    return ScopeDropped(
        scope="user",
        scope_id=user,
        keys=("a", "b"),
        more=more,
        revision=4,
        dropped_keys=2,
        dropped_bytes=10,
        source=SOURCE,
    )
