"""A line of definitions: the versions of one name, the active one of them, what the files say, and sums of judgements.

A line is named by (tenant, kind, name); the empty tenant's lines are shared by all. Versions are never changed: the
newest content and that of the active version are in the state, older ones in the read model, long ones in the blob
store. A version's parent has the same name, in this line or in the shared one.

Before: decide.py has an event, or a checkpoint a state. After: table.py, in every process.
"""

from collections.abc import Iterable
from hashlib import sha256
from typing import Any, assert_never

from loomlog.schemas.generated.definition_events import (
    DefDeleted,
    DefPromoted,
    DefRestored,
    DefRetired,
    DefVersionCreated,
    RunJudged,
    StageSettled,
    StaticObserved,
    VersionStaged,
)
from loomlog.schemas.generated.values import BlobRef
from loomlog.schemas.records import Value, copy_as, replace
from loomlog.services.core.definitions import def_id
from loomlog.services.families.definition import limits
from loomlog.services.families.definition.apply import KIND as BATCH_KIND
from loomlog.services.families.definition.apply import Batch, BatchEvent, evolve_batch

VERSION = 1
"""Version of the fold."""
VOLUME, CHANNEL = "volume", "channel"
UNVERSIONED = frozenset({VOLUME, CHANNEL})
"""The kinds without versions: what is deleted is forgotten, and nothing refers to an earlier content."""
DIGEST_BYTES = 32

LineEvent = (
    DefVersionCreated
    | DefPromoted
    | DefRetired
    | DefRestored
    | DefDeleted
    | RunJudged
    | StaticObserved
    | VersionStaged
    | StageSettled
)
DefinitionEvent = LineEvent | BatchEvent


class Sums(Value, frozen=True, kw_only=True):
    """The judgements of a version; their texts are in the read model."""

    count: int = 0
    total: float = 0.0
    low: float = 0.0
    high: float = 0.0


NO_SUMS = Sums()


class Version(Value, frozen=True, kw_only=True, omit_defaults=True):
    """A version of a definition."""

    number: int
    parent: str = ""
    """def_id of the version that it was made from."""
    root: int = 0
    """Number of the first version of its lineage in this line."""
    digest: bytes
    """SHA-256 of its canonical JSON."""
    created_at_ms: int = 0
    created_by_agent_id: str = ""
    tools: tuple[str, ...] | None = None
    """What the lineage may grant at most; only of the first version of a lineage. None: any tool."""
    is_retired: bool = False
    is_bootstrapped: bool = False
    expires_at_ms: int = 0
    content: str = ""
    blob: BlobRef | None = None
    sums: Sums = NO_SUMS


class StaticContent(Value, frozen=True, kw_only=True):
    """What the files of the processes say of the name, as last observed."""

    digest: bytes
    content: str = ""
    blob: BlobRef | None = None
    at_ms: int = 0
    observers: tuple[tuple[str, bytes, int], ...] = ()
    """Process, digest, and when it was observed (UTC milliseconds), newest last."""

    def observed_by(self, observer: str) -> tuple[bytes, int]:
        """Return the digest and time of an observer's last observation; an empty digest without one."""
        return next(((digest, at_ms) for name, digest, at_ms in self.observers if name == observer), (b"", 0))

    def differs_since(self, since_ms: int) -> bool:
        """Whether processes have told different contents from that time on."""
        return len({digest for _, digest, at_ms in self.observers if at_ms >= since_ms}) > 1


class Line(Value, frozen=True, kw_only=True, omit_defaults=True):
    """State of a line."""

    tenant: str = ""
    kind: str = ""
    name: str = ""
    versions: tuple[Version, ...] = ()
    """By number, from 1."""
    active: int = 0
    """Number of the active version; 0: none."""
    promoted_at_ms: int = 0
    promoted_by_agent_id: str = ""
    previous: tuple[int, ...] = ()
    """Numbers that were active before, newest last."""
    is_deleted: bool = False
    made_by_agent: str = ""
    """Name of the agent that made its first version; empty for people, services and files."""
    made_by: str = ""
    """Subject that made its first version."""
    static: StaticContent | None = None
    staged: int = 0
    """Number of the version that waits for a batch; 0: none."""
    staged_by: str = ""
    """Id of that batch."""
    batches: tuple[tuple[str, int], ...] = ()
    """Batches since the last other promotion, newest last: each with the number of the version that was active before,
    which a process sees until it has read the batch as a whole."""
    static_sums: Sums = NO_SUMS
    """Judgements of runs whose definition came from a file."""

    def version(self, number: int) -> Version | None:
        return self.versions[number - 1] if 0 < number <= len(self.versions) else None

    @property
    def batch(self) -> str:
        """Batch that the active version was promoted with; empty for none."""
        return self.batches[-1][0] if self.batches else ""

    @property
    def active_version(self) -> Version | None:
        return self.version(self.active)

    def id_of(self, number: int) -> str:
        """Return the def_id of a version; empty for 0."""
        return def_id(self.tenant, self.kind, self.name, number) if number else ""

    def number_of(self, version_id: str) -> int:
        """Return the number of the version with that def_id; 0 if it is not of this line. Newest first."""
        return next((one.number for one in reversed(self.versions) if self.id_of(one.number) == version_id), 0)


def initial(aggregate: str) -> Line | Batch:
    """Return the state of an aggregate without events, by its full id: a line, or a batch."""
    tenant, _, rest = aggregate.partition(":")[2].partition("/")
    kind, _, name = rest.partition("/")
    return Batch(id=name) if kind == BATCH_KIND else Line(tenant=tenant, kind=kind, name=name)


def line_id(kind: str, name: str) -> str:
    """Return the id of a line's aggregate within its tenant."""
    return f"{kind}/{name}"


def digest_of(content: str, blob: BlobRef | None) -> bytes:
    """Return the SHA-256 of a content, wherever it lies."""
    return bytes.fromhex(blob.sha256) if blob is not None else sha256(content.encode()).digest()


def evolve(state: Line | Batch, event: DefinitionEvent, at_ms: int) -> Line | Batch:
    """Return the state after an event."""
    if isinstance(state, Batch):
        return evolve_batch(state, event) if isinstance(event, BatchEvent) else state
    return state if isinstance(event, BatchEvent) else evolve_line(state, event, at_ms)


def evolve_line(line: Line, event: LineEvent, at_ms: int) -> Line:
    """Return the line after an event."""
    match event:
        case DefVersionCreated():
            if not line.versions:
                line = replace(line, made_by_agent=event.created_by_agent, made_by=event.by)
            versions = (*line.versions, _created(event, at_ms))
            return _trimmed(replace(line, is_deleted=False, versions=versions))
        case DefPromoted(version=number):
            active = replace(
                line,
                active=number,
                previous=_previous(line, number, is_rollback=bool(event.undoes)),
                promoted_at_ms=at_ms,
                promoted_by_agent_id=event.by_agent_id,
                staged=0,
                staged_by="",
                batches=_batches(line, event.batch),
            )
            return _trimmed(_changed(active, number, content=event.content) if event.content else active)
        case DefRetired(version=number):
            retired = _changed(line, number, is_retired=True)
            return _trimmed(replace(retired, active=0, batches=())) if event.was_active else retired
        case DefRestored(version=number):
            return _changed(line, number, is_retired=False, expires_at_ms=0)
        case DefDeleted() if line.kind in UNVERSIONED:
            # Names are made and deleted any number of times.
            return replace(line, versions=(), active=0, previous=(), made_by_agent="", made_by="", is_deleted=True)
        case DefDeleted():
            versions = tuple(replace(one, is_retired=True) for one in line.versions)
            cleared = replace(line, active=0, previous=(), batches=())
            return _trimmed(replace(cleared, versions=versions, is_deleted=True))
        case VersionStaged(def_id=""):
            return line
        case VersionStaged():
            return replace(line, staged=event.version, staged_by=event.batch)
        case StageSettled(version=number):
            settled = replace(line, staged=0, staged_by="")
            # What was staged with content of its own and came to nothing is never active.
            return settled if number == line.active else _changed(settled, number, is_retired=True)
        case StaticObserved():
            return replace(line, static=_observed(line.static, event, at_ms))
        case RunJudged(version=0):
            return replace(line, static_sums=_added(line.static_sums, event.score))
        case RunJudged(version=number):
            version = line.version(number)
            return line if version is None else _changed(line, number, sums=_added(version.sums, event.score))
        case _:
            assert_never(event)


def _created(event: DefVersionCreated, at_ms: int) -> Version:
    return copy_as(
        Version,
        event,
        number=event.version,
        parent=event.parent_def_id,
        digest=digest_of(event.content, event.content_blob),
        created_at_ms=at_ms,
        tools=event.tools if event.root == event.version else None,
        blob=event.content_blob,
    )


def _previous(line: Line, number: int, *, is_rollback: bool) -> tuple[int, ...]:
    """Return the earlier active versions once `number` is active; a rollback forgets it and those after it."""
    if is_rollback:
        places = [place for place, one in enumerate(line.previous) if one == number]
        return line.previous[: places[-1]] if places else ()
    return ((*line.previous, line.active) if line.active else line.previous)[-limits.PREVIOUS_MAX :]


def _batches(line: Line, batch: str) -> tuple[tuple[str, int], ...]:
    return (*line.batches, (batch, line.active))[-limits.BATCHES_MAX :] if batch else ()


def _changed(line: Line, number: int, **changes: Any) -> Line:
    version = line.version(number)
    if version is None:
        return line
    at = number - 1
    return replace(line, versions=(*line.versions[:at], replace(version, **changes), *line.versions[at + 1 :]))


def _trimmed(line: Line) -> Line:
    """Return the line without the contents that do not fit, oldest first; that of the active version stays."""
    kept, dropped = 0, set[int]()
    kept_anyway = {line.active, line.staged, *(number for _, number in line.batches)}
    for version in reversed(line.versions):
        if not version.content or version.number in kept_anyway:
            continue
        kept += len(version.content)
        if kept > limits.KEPT_BYTES_MAX:
            dropped.add(version.number)
    if not dropped:
        return line
    versions = tuple(replace(one, content="") if one.number in dropped else one for one in line.versions)
    return replace(line, versions=versions)


def _observed(static: StaticContent | None, event: StaticObserved, at_ms: int) -> StaticContent:
    digest = digest_of(event.content, event.content_blob)
    earlier: Iterable[tuple[str, bytes, int]] = static.observers if static is not None else ()
    others = tuple(one for one in earlier if one[0] != event.observer)
    return StaticContent(
        digest=digest,
        content=event.content,
        blob=event.content_blob,
        at_ms=at_ms,
        observers=(*others, (event.observer, digest, at_ms))[-limits.OBSERVERS_MAX :],
    )


def _added(sums: Sums, score: float) -> Sums:
    if not sums.count:
        return Sums(count=1, total=score, low=score, high=score)
    return Sums(count=sums.count + 1, total=sums.total + score, low=min(sums.low, score), high=max(sums.high, score))
