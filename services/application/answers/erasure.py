"""JSON of the answers about a subject: what an installation holds of it, and its erasure.

Before: services/application/admin/erasure_json.py. After: openapi.py.
"""

from collections.abc import Mapping
from typing import NotRequired

from typing_extensions import TypedDict


class CoveredContent(TypedDict):
    """Encrypted content, by kind."""

    counts: Mapping[str, int]
    total: int


class UncoveredContent(CoveredContent):
    """Content in clear, by kind, and the runs that have it."""

    runs: int


class ErasureRecord(TypedDict):
    """An erasure as the log has it. `in_clear`: texts of the subject stay in clear in the log; absent until its rows
    are deleted.
    """

    erasure_id: str
    at: str
    by: str
    reason: str
    position: str
    in_clear: NotRequired[bool]


class SubjectKey(TypedDict):
    """A key of a subject. Content under an erased key cannot be read by anyone."""

    key_id: str
    made_at: str | None
    erased: bool
    erasure: ErasureRecord | None


class ReadableCounts(TypedDict, total=False):
    """What other families hold of a subject in clear; absent where it was not examined."""

    events_naming: int
    definitions: int


class Residue(ReadableCounts):
    """Content that an erasure leaves readable. `truncated`: not every session was examined."""

    rows: int
    scopes: int
    sessions_examined: int
    truncated: bool


class SubjectCredential(TypedDict):
    """A stored credential of a subject, which an erasure removes; of `(tenant)` also those of its agents."""

    name: str
    scope: str
    scope_id: str


class ErasureExamination(TypedDict):
    """What was examined of a subject."""

    tenant: str
    subject: str
    known: bool
    credentials: NotRequired[list[SubjectCredential]]
    residue: Residue
    tier3_residue: Residue
    errors: list[str]
    notes: list[str]


class SubjectReport(ErasureExamination):
    """What an installation holds of a subject."""

    encrypted: bool
    tier1_covered: CoveredContent
    tier2_uncovered: UncoveredContent
    keys: list[SubjectKey]
    erasures: list[ErasureRecord]


class SubjectList(TypedDict):
    """Subjects of a tenant."""

    tenant: str
    subjects: list[str]


class ErasureReceipt(TypedDict):
    """What was erased, signed with a key of the installation; the signature is of the other fields, as JSON with sorted
    names and without spaces. Without LOOMLOG_SECRET_KEY `signature` and `public_key` are empty.
    """

    erasure_id: str
    tenant: str
    subject: str
    at: str
    by: str
    reason: str
    complete: bool
    deleted: Mapping[str, int]
    positions: list[str]
    public_key: str
    signature: str


class ErasureResult(ErasureExamination):
    """An erasure, or with `dry_run` what it would do. With anything in `incomplete` it is to be repeated.

    `complete`: nothing of it can be read any more. False: `retained` says what stays in clear in the log.
    """

    dry_run: bool
    deleted: Mapping[str, int]
    retained: Mapping[str, str]
    erasure_id: NotRequired[str]
    cancelled_runs: NotRequired[list[str]]
    tier2_uncovered: NotRequired[UncoveredContent]
    incomplete: NotRequired[list[str]]
    complete: NotRequired[bool]
    receipt: NotRequired[ErasureReceipt]


class KeysRewrapped(TypedDict):
    """Count of keys that were encrypted with the new installation key."""

    wrapped: int
