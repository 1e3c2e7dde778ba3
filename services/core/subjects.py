"""Encryption keys of subjects and their erasure: the fold of loom.subject.keys.

A subject is a tenant and a user_id; the empty user_id is for runs of the tenant that name no user. Its first data key
that is not erased encrypts new content. Erasing removes all keys it has; later content gets a new key, because a person
may return.

An erasure is permanent. A record of an erased key that reappears, from a backup or from a paused writer, is refused by
every reader of the topic, and remembered so that it can be removed from the disk again.

Which key is the first may change after the topic was compacted (two processes made one at the same time, and one of
them was rewrapped). That does no harm: both belong to the subject, both decrypt what they encrypted, both are erased.

Before: services/stream/encryption/subject_keys.py reads the topic. After: it unwraps the keys stored here.
"""

from loomlog.schemas.generated.stream_records import SubjectErased, SubjectKeyMade
from loomlog.schemas.records import Value

Subject = tuple[str, str]
"""Tenant and user_id."""


class Erasure(Value, frozen=True, kw_only=True):
    """An erasure and the offset of its record."""

    record: SubjectErased
    offset: int


class SubjectTable:
    """The keys and erasures of all subjects. Grows by some hundred bytes for each subject."""

    def __init__(self) -> None:
        self.reappeared_keys: set[str] = set()
        """Ids of erased keys of which a record reappeared."""
        self._keys: dict[str, SubjectKeyMade] = {}
        self._key_ids_by_subject: dict[Subject, list[str]] = {}
        self._erasure_by_key: dict[str, Erasure] = {}
        self._erasures: dict[Subject, list[Erasure]] = {}

    def apply(self, record: SubjectKeyMade | SubjectErased, offset: int) -> frozenset[str]:
        """Apply a record; return the ids of the keys it erases, which must also be removed from memory."""
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
            return frozenset()  # a key's subject never changes: only an invalid record has another one
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
        """Forget a reappeared record, which has been removed from the disk again."""
        self.reappeared_keys.discard(key_id)

    def key(self, key_id: str) -> SubjectKeyMade | None:
        """Return the key as currently wrapped; None when it is erased or unknown."""
        return self._keys.get(key_id)

    def current_key(self, tenant: str, subject: str) -> SubjectKeyMade | None:
        """Return the key that encrypts new content."""
        key_ids = self._key_ids_by_subject.get((tenant, subject))
        return self._keys[key_ids[0]] if key_ids else None

    def keys_of(self, tenant: str, subject: str) -> tuple[SubjectKeyMade, ...]:
        return tuple(self._keys[key_id] for key_id in self._key_ids_by_subject.get((tenant, subject), ()))

    def is_known(self, key_id: str) -> bool:
        """Whether a key is known, including erased ones."""
        return key_id in self._keys or key_id in self._erasure_by_key

    def is_erased(self, key_id: str, tenant: str) -> bool:
        """Whether a key of that tenant is erased."""
        return self.erasure_of(key_id, tenant) is not None

    def erasure_of(self, key_id: str, tenant: str) -> Erasure | None:
        """Return the erasure that erased a key of that tenant."""
        erasure = self._erasure_by_key.get(key_id)
        return erasure if erasure is not None and erasure.record.tenant == tenant else None

    def erasures_of(self, tenant: str, subject: str) -> tuple[Erasure, ...]:
        """Return the erasures of a subject, oldest first."""
        return tuple(self._erasures.get((tenant, subject), ()))

    def subjects(self, tenant: str) -> list[str]:
        """Return every subject of a tenant that has or had a key."""
        return sorted({subject for at, subject in (*self._key_ids_by_subject, *self._erasures) if at == tenant})

    def all_keys(self) -> tuple[SubjectKeyMade, ...]:
        """Return every key that is not erased."""
        return tuple(self._keys.values())
