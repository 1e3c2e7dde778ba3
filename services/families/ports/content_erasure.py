"""Content of a subject in families: what there is, and its removal once the keys of it are destroyed.

Everything that is removed is unreadable already, or says something of a text. Each step stands alone, and all of them
may be repeated.

Before: services/application/admin/erasure.py. After: erasure.py of families.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from loomlog.connectors.errors import ConnectorError
from loomlog.schemas.records import Value
from loomlog.services.core.refusals import Refused
from loomlog.services.stream.entities.answers import CommandInvalid, CommandUnanswered

FAILURES: tuple[type[Exception], ...] = (Refused, CommandUnanswered, CommandInvalid, ConnectorError)


class ErasedSubject(Value, frozen=True, kw_only=True):
    """The subject of the content. `user` is empty for the runs that name none."""

    tenant: str
    user: str
    key_ids: Collection[str] = ()
    """Its keys, also erased ones."""
    root_run_ids: Collection[str] = ()
    """Its trees of runs."""


class ErasureRequest(Value, frozen=True, kw_only=True):
    """An erasure that is carried out."""

    id: str
    by: str
    """Subject of the caller."""


@dataclass(slots=True, kw_only=True)
class ContentFindings:
    """What there is of a subject, or what was removed of it."""

    counts: dict[str, int] = field(default_factory=dict)
    """By names that clients know. A count that is missing was not examined, or its removal failed."""
    client_names: dict[str, str] = field(default_factory=dict)
    """Further names of counts, by those of other clients."""
    unencrypted: tuple[str, ...] = ()
    """Names of the counts of what no key encrypts and an erasure removes all the same."""
    uncovered: dict[str, int] = field(default_factory=dict)
    """Counts of what is in plaintext in the log and stays so."""
    retained: dict[str, str] = field(default_factory=dict)
    """What an erasure retains, with the reasons."""
    truncated: bool = False
    errors: list[str] = field(default_factory=list)
    """What could not be examined, or removed."""

    @property
    def in_clear(self) -> int:
        """Texts that are not encrypted."""
        return sum(self.uncovered.values())

    @contextmanager
    def noted(self, what: str, *errors: type[Exception]) -> Iterator[None]:
        """Note a failure of a step as an error, also of these types: the other steps go on."""
        try:
            yield
        except (*FAILURES, *errors) as error:
            self.errors.append(f"{what}: {error}")


class ContentEraser(Protocol):
    """Finds and removes what a family holds of a subject."""

    async def find(self, subject: ErasedSubject) -> ContentFindings:
        """Count what there is. Raises PositionNotRead, ConnectorError."""
        ...

    async def erase(self, subject: ErasedSubject, before: ContentFindings, erasure: ErasureRequest) -> ContentFindings:
        """Remove what there is, after the keys were destroyed; return what was removed, and what could not be.

        `before` is what `find` returned.
        """
        ...


def merged(parts: Iterable[ContentFindings]) -> ContentFindings:
    """Return the findings of several families as one."""
    whole = ContentFindings()
    for part in parts:
        whole.counts |= part.counts
        whole.client_names |= part.client_names
        whole.unencrypted += part.unencrypted
        whole.uncovered |= part.uncovered
        whole.retained |= part.retained
        whole.truncated = whole.truncated or part.truncated
        whole.errors += part.errors
    return whole


def counts_of_clients(findings: ContentFindings) -> Mapping[str, int]:
    """Return the counts with all their names."""
    counts = findings.counts
    return {**counts, **{name: counts[ours] for name, ours in findings.client_names.items() if ours in counts}}
