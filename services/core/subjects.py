"""Whose content can be read: the fold of loom.subject.keys.

A subject is a tenant and a user_id; the empty one stands for runs of the tenant that name no user. Its first data key
that is not erased seals what is new. Erasing takes all keys it has; what is said later gets a fresh one, because a
person may come back.

Erased is for ever. A record of an erased key that comes back, from a backup or from a writer that was paused, is
refused by everybody who reads the topic, and remembered so that it can be removed from the disk again.

Which key is the first may look different after the topic was compacted (two processes made one at the same time, and
one of them was wrapped anew). That does no harm: both are the subject's, both open what they sealed, both are erased.

Before: services/stream/encryption/subject_keys.py reads the topic. After: it unwraps what is here.
"""

from loomlog.schemas.generated.stream_records import SubjectErased, SubjectKeyMade
from loomlog.schemas.records import Value

Subject = tuple[str, str]
"""Tenant and user_id."""


class Erasure(Value, frozen=True, kw_only=True):
    """An erasure and where it is recorded."""

    record: SubjectErased
    offset: int


class SubjectTable:
    """Grows by one record at a time: some hundred bytes for each subject."""

    def __init__(self) -> None:
        self.reappeared_keys: set[str] = set()
        """Erased keys of which a record came back."""
        self._keys: dict[str, SubjectKeyMade] = {}
        self._key_ids_by_subject: dict[Subject, list[str]] = {}
        self._erasure_by_key: dict[str, Erasure] = {}
        self._erasures: dict[Subject, list[Erasure]] = {}

    def apply(self, record: SubjectKeyMade | SubjectErased, offset: int) -> frozenset[str]:
        """The keys that are erased by it; whoever holds one of them in memory drops it."""
        if isinstance(record, SubjectErased):
            return self._erase(record, offset)
        if record.key_id in self._erasure_by_key:
            self.reappeared_keys.add(record.key_id)
            return frozenset()
        subject = (record.tenant, record.subject)
        known = self._keys.get(record.key_id)
        if known is None:
            self._key_ids_by_subject.setdefault(subject, []).append(record.key_id)
        elif (known.tenant, known.subject) != subject:
            return frozenset()  # nobody who could wrap it would say so
        self._keys[record.key_id] = record
        return frozenset()

    def _erase(self, record: SubjectErased, offset: int) -> frozenset[str]:
        subject = (record.tenant, record.subject)
        erasure = Erasure(record=record, offset=offset)
        gone = frozenset((*record.key_ids, *self._key_ids_by_subject.pop(subject, ())))
        for key_id in gone:
            self._keys.pop(key_id, None)
            self._erasure_by_key.setdefault(key_id, erasure)
        self._erasures.setdefault(subject, []).append(erasure)
        return gone

    def forget_reappeared(self, key_id: str) -> None:
        """The record that came back is off the disk again."""
        self.reappeared_keys.discard(key_id)

    def key(self, key_id: str) -> SubjectKeyMade | None:
        """The key of that id as it is wrapped now; None when it is erased or not known."""
        return self._keys.get(key_id)

    def current_key(self, tenant: str, subject: str) -> SubjectKeyMade | None:
        """The key that seals what is new."""
        found = self._key_ids_by_subject.get((tenant, subject))
        return self._keys[found[0]] if found else None

    def keys_of(self, tenant: str, subject: str) -> tuple[SubjectKeyMade, ...]:
        return tuple(self._keys[key_id] for key_id in self._key_ids_by_subject.get((tenant, subject), ()))

    def is_known(self, key_id: str) -> bool:
        """Whether anything is known of a key, be it only that it is erased."""
        return key_id in self._keys or key_id in self._erasure_by_key

    def is_erased(self, key_id: str, tenant: str) -> bool:
        """Whether a key of that tenant is erased."""
        return self.erasure_of(key_id, tenant) is not None

    def erasure_of(self, key_id: str, tenant: str) -> Erasure | None:
        """The erasure that took a key of that tenant."""
        erasure = self._erasure_by_key.get(key_id)
        return erasure if erasure is not None and erasure.record.tenant == tenant else None

    def erasures_of(self, tenant: str, subject: str) -> tuple[Erasure, ...]:
        """Oldest first."""
        return tuple(self._erasures.get((tenant, subject), ()))

    def subjects(self, tenant: str) -> list[str]:
        """Every subject of a tenant that has or had a key."""
        return sorted({subject for at, subject in (*self._key_ids_by_subject, *self._erasures) if at == tenant})

    def all_keys(self) -> tuple[SubjectKeyMade, ...]:
        """Every key that is not erased."""
        return tuple(self._keys.values())
