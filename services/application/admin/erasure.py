"""Erasing a subject: its runs are cancelled, then the keys of its content are destroyed, everywhere at once.

    report    what is stored of a subject, in runs, in memory and in the aggregates of other families, what an erasure
              makes unreadable, and what is in plaintext and stays so
    erase     cancel live runs, append the erasure; from then on every copy reads [erased], also in backups; then
              delete what families hold of it (services/families/ports/content_erasure.py), and its rows
              (services/families/erasure)

The log keeps its bytes, so its chain still verifies and replays produce the same states. Plaintext (written before
encryption was switched on, or imported as plaintext) cannot be erased this way; it is counted and always reported. A
count that is missing was not examined, which is not the same as zero.

A subject is the user_id of runs; `TENANT_SUBJECT` is the subject of the runs of a tenant that have no user.

Before: a transport. After: services/application/runs/control.py cancels, services/stream/encryption/subject_keys.py
erases, families delete.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from loomlog.connectors.crypto.content_encryption import has_tokens
from loomlog.connectors.errors import ConnectorError, UnknownOutcome
from loomlog.connectors.storage.stored_credentials import CredentialKey
from loomlog.projections.erasures import ErasureRow
from loomlog.projections.run_queries import RunFilter
from loomlog.projections.runs import RunRow
from loomlog.projections.transcript import TranscriptRow
from loomlog.schemas.generated.values import BlobRef
from loomlog.schemas.position import Position
from loomlog.services.application import limits
from loomlog.services.application.admin.entity_references import (
    EntityContent,
    EntityReferences,
    SearchedSubject,
)
from loomlog.services.application.admin.erasure_receipts import ErasureReceipts
from loomlog.services.application.content import keys_unavailable
from loomlog.services.application.errors import RETRY_SOON_S, bad_request, reaching, unavailable
from loomlog.services.application.queries.read_your_writes import not_yet_error
from loomlog.services.application.queries.runs import RunQueries
from loomlog.services.application.runs.control import RunControl
from loomlog.services.application.streaming.run_stream import StreamSources
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.refusals import Refused, Unavailable
from loomlog.services.core.subjects import Erasure
from loomlog.services.families.operation import sanitize_reason
from loomlog.services.families.ports.content_erasure import (
    ContentEraser,
    ContentFindings,
    ErasedSubject,
    ErasureRequest,
    merged,
)
from loomlog.services.families.ports.credential_erasure import CredentialErasure
from loomlog.services.families.ports.row_erasure import ErasedRows, RowErasure
from loomlog.services.stream.encryption.subject_keys import SubjectKeys
from loomlog.services.stream.entities.reads import PositionNotRead
from loomlog.services.stream.global_tables.global_table import PARTITION

TENANT_SUBJECT = "(tenant)"
"""Subject of the runs of a tenant without a user_id; not a valid user_id, so the two cannot collide."""
CANCEL_REASON = "subject erased"
RUNS_EXAMINED_MAX = 10_000
FRAMES_EXAMINED_MAX = 100_000
"""Limit over all runs of a subject: some hundred megabytes of text at most, read in pages."""
BLOBS_EXAMINED_MAX = 1_000
CANCEL_ROUNDS_MAX = 3
"""Rounds of searching for runs that started while others were cancelled."""
CONTENT_FRAMES = frozenset(
    {"user_input", "text", "thinking", "tool_call", "tool_result", "channel_publish", "channel_delivery"}
)
"""Types of frames that hold content."""
NOT_EXAMINED = (
    "commands that microservices sent in plaintext stay in the commands topic for 14 days, and dead letters from "
    "before encryption was switched on for a year; they are not examined here",
    "commands for aggregates of other families that microservices sent in plaintext stay in loom.entity.commands and "
    "loom.channel.commands for 14 days; they are not examined here",
    "what aggregates hold in plaintext, written before encryption was switched on or imported so, names no subject and "
    "is not examined here, but for the values in the memory of the user",
    "rows that its runs wrote into databases of agents and of the tenant have the tenant's key and stay readable; they "
    "are not examined here",
    "what agents keep in another installation (memory_backends) is erased there; it is not examined here",
    "inputs and results of tools of other services are in plaintext in their two topics for an hour; they are not "
    "examined here either",
    "names (of agents, tools, users, scopes, readers of channels, keys of memory), ids, times, token counts and the "
    "reasons of commands are not content and stay readable; events_naming counts the events that name the user",
    "definitions that its runs wrote, with their prompts and descriptions, are the tenant's and stay readable, also in "
    "the first event of each run that uses them; definitions counts them: delete them, and they are used no more",
    "the definition of a schedule is the tenant's and stays readable, with its prompt; what it is armed with and "
    "starts is encrypted for its user",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyView:
    """A key of a subject; an erased key has an erasure."""

    key_id: str
    made_at_ms: int | None
    erasure: Erasure | None = None


@dataclass(slots=True, kw_only=True)
class ErasureFindings:
    """Counts of what is stored of a subject. `frames_in_clear` cannot be erased."""

    runs: int = 0
    live_runs: int = 0
    events: int = 0
    frames_encrypted: int = 0
    frames_in_clear: int = 0
    blobs_encrypted: int = 0
    blobs_in_clear: int = 0
    runs_in_clear: int = 0
    """Runs with any frame or blob in plaintext."""
    imported_in_clear: int = 0
    """Those of `runs_in_clear` that were imported from a file."""
    entities: EntityReferences | None = None
    """Events of other families that refer to keys of the subject; None where there are no families."""
    parts: Sequence[ContentFindings] = ()
    """What each eraser found."""
    credentials: Sequence[CredentialKey] | None = None
    """Stored credentials of the subject; None where there are none to look for."""
    clear_blobs: dict[str, BlobRef] = field(default_factory=dict)
    """Payloads in plaintext, by hash."""
    root_run_ids: set[str] = field(default_factory=set)
    """Trees of runs of the subject."""
    sessions: set[str] = field(default_factory=set)
    run_ids: set[str] = field(default_factory=set)
    truncated: bool = False
    errors: list[str] = field(default_factory=list)

    @property
    def content(self) -> ContentFindings:
        """What families hold of the subject."""
        return merged(self.parts)

    @property
    def in_clear(self) -> int:
        """Texts that are not encrypted."""
        return self.frames_in_clear + self.blobs_in_clear + sum(one.in_clear for one in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureReport:
    """The current state of a subject. `subject` is as the caller named it."""

    tenant: str
    subject: str
    keys: tuple[KeyView, ...]
    erasures: tuple[Erasure, ...]
    """Oldest first, including erasures that found no key."""
    row_erasures: tuple[ErasureRow, ...]
    """Those whose rows are deleted, oldest first."""
    keys_topic: str
    """Topic of the keys and erasures; empty where content is not encrypted."""
    findings: ErasureFindings
    is_encrypted: bool
    """Whether new content of this installation is encrypted."""

    @property
    def is_known(self) -> bool:
        """Whether anything of the subject was ever stored here."""
        findings = self.findings
        return bool(
            self.keys
            or self.erasures
            or self.row_erasures
            or findings.runs
            or findings.credentials
            or any(findings.content.counts.values())
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureResult:
    """An erasure that is in the log. `report_before` is the report from before it."""

    report_before: ErasureReport
    erasure_id: str
    at_ms: int
    by: str
    reason: str
    erasure: Erasure | None
    """That of the keys; None where content is not encrypted."""
    content: ContentFindings
    """What was removed of what families hold; with errors the erasure is to be repeated."""
    cancelled: tuple[str, ...]
    positions: tuple[str, ...]
    are_rows_deleted: bool = False
    blobs_deleted: int = 0
    credentials_deleted: int | None = None
    errors: tuple[str, ...] = ()
    """What could not be deleted yet; the erasure is to be repeated."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing of the subject can be read any more, also in the log."""
        findings = self.report_before.findings
        is_clear = self.erasure is None or findings.in_clear > 0 or findings.truncated
        return not (is_clear or self.errors or self.content.errors)


class SubjectErasure:
    """The use cases of operators. All methods raise Refused."""

    def __init__(
        self,
        sources: StreamSources,
        reads: RunQueries,
        control: RunControl,
        *,
        fresh_token: Callable[[], str],
        entities: EntityContent | None = None,
        erasers: Sequence[ContentEraser] = (),
        rows: RowErasure | None = None,
        receipts: ErasureReceipts | None = None,
        credentials: CredentialErasure | None = None,
    ) -> None:
        """`rows` None: rows stay, with what their keys encrypt."""
        self._credentials = credentials
        self._rows = rows
        self.receipts = receipts or ErasureReceipts(None)
        self._entities = entities
        self.erasers = erasers
        self._sources = sources
        self._reads = reads
        self._control = control
        self._fresh_token = fresh_token

    async def subjects(self, tenant: str) -> list[str]:
        """Return all subjects of a tenant that have or had a key."""
        _check_tenant(tenant)
        keys = await self._current_keys()
        return [] if keys is None else [subject or TENANT_SUBJECT for subject in keys.table.subjects(tenant)]

    async def report(self, caller: Caller, tenant: str, subject: str) -> ErasureReport:
        """Report what is stored of a subject. Changes nothing."""
        _check_tenant(tenant)
        _check_subject(subject)
        keys = await self._current_keys()
        findings = ErasureFindings()
        left = FRAMES_EXAMINED_MAX
        for row in await self._runs_of(caller, tenant, subject, findings):
            findings.runs += 1
            findings.live_runs += row.status == "running"
            findings.events += row.last_seq
            findings.sessions.add(row.session_id)
            findings.run_ids.add(row.run_id)
            if row.root_run_id == row.run_id:
                findings.root_run_ids.add(row.run_id)
            in_clear = findings.in_clear
            left = await self._examine(row, findings, left)
            if findings.in_clear > in_clear:
                findings.runs_in_clear += 1
                findings.imported_in_clear += bool(row.imported_from)
        key_views = () if keys is None else _keys_of(keys, tenant, _user_of(subject))
        await self._find_in_entities(tenant, _user_of(subject), key_views, findings)
        erased = ErasedSubject(
            tenant=tenant,
            user=_user_of(subject),
            key_ids=[key.key_id for key in key_views],
            root_run_ids=findings.root_run_ids,
        )
        findings.parts = await self._find_content(erased)
        findings.truncated = findings.truncated or findings.content.truncated
        findings.errors += findings.content.errors
        if self._credentials is not None:
            findings.credentials = sorted(self._credentials.of_subject(tenant, _user_of(subject)))
        return ErasureReport(
            tenant=tenant,
            subject=subject,
            keys=key_views,
            erasures=() if keys is None else keys.table.erasures_of(tenant, _user_of(subject)),
            row_erasures=() if self._rows is None else await self._rows.erasures_of(tenant, subject),
            keys_topic="" if keys is None else keys.topic,
            findings=findings,
            is_encrypted=keys is not None,
        )

    async def content_of(self, tenant: str, subject: str) -> ContentFindings:
        """Count what families hold of a user. Raises Refused(not_yet, projection_unavailable)."""
        return merged(await self._find_content(ErasedSubject(tenant=tenant, user=_user_of(subject))))

    async def preview(self, caller: Caller, tenant: str, subject: str) -> ErasureReport:
        """Report what `erase` would affect. Raises Refused(not_found) as `erase` does."""
        report = await self.report(caller, tenant, subject)
        _require_known(report)
        return report

    async def erase(self, caller: Caller, tenant: str, subject: str, *, reason: str = "") -> ErasureResult:
        """Cancel the live runs of a subject, destroy its keys, then delete its memory; nothing is erased while a run of
        it is live.

        Raises Refused: encryption_off (where rows stay too), not_found, cancel_pending, not_yet, log_unavailable.

        An unknown subject is refused: its name is probably mistyped, and a success would claim that the intended
        subject was erased. Repeating is harmless: it completes an earlier erasure that was interrupted.
        """
        keys = self._sources.content.keys
        if keys is None and self._rows is None:
            raise Refused(
                "encryption_off",
                "content is not encrypted here, so it cannot be erased: set LOOMLOG_ENCRYPTION_KEY; what was written "
                "before stays as it is",
            )
        reason = sanitize_reason(reason)
        before = await self.report(caller, tenant, subject)
        _require_known(before)
        cancelled = await self._cancel_all(caller, tenant, subject, before.findings)
        erasure_id = f"e_{self._fresh_token()}"
        erasure = None if keys is None else await _erase_keys(keys, tenant, subject, erasure_id, reason, caller.subject)
        positions: list[str] = []
        if keys is not None and erasure is not None:
            positions.append(str(Position(topic=keys.topic, partition=PARTITION, offset=erasure.offset)))
        erased_keys = () if erasure is None else erasure.record.key_ids
        erased = ErasedSubject(
            tenant=tenant,
            user=_user_of(subject),
            key_ids=sorted({*(key.key_id for key in before.keys), *erased_keys}),
            root_run_ids=before.findings.root_run_ids,
        )
        of_content = ErasureRequest(id=erasure_id, by=caller.subject)
        removed = merged(
            [
                await eraser.erase(erased, part, of_content)
                for eraser, part in zip(self.erasers, before.findings.parts, strict=True)
            ]
        )
        rows = ErasedRows()
        if self._rows is not None:
            findings = before.findings
            rows = await self._rows.erase(
                tenant,
                subject,
                sorted(findings.run_ids),
                findings.clear_blobs,
                in_clear=keys is None or findings.in_clear > 0,
                erasure_id=erasure_id,
                by=caller.subject,
                reason=reason,
            )
            positions += [rows.position] if rows.position else []
        errors = list(rows.errors)
        credentials_deleted = await self._erase_credentials(tenant, subject, erasure_id, caller.subject, errors)
        return ErasureResult(
            report_before=before,
            erasure_id=erasure_id,
            at_ms=rows.at_ms if erasure is None else erasure.record.at_ms,
            by=caller.subject,
            reason=reason,
            erasure=erasure,
            content=removed,
            cancelled=cancelled,
            positions=tuple(positions),
            are_rows_deleted=rows.are_deleted,
            blobs_deleted=rows.blobs_deleted,
            credentials_deleted=credentials_deleted,
            errors=tuple(errors),
        )

    async def _erase_credentials(
        self, tenant: str, subject: str, erasure_id: str, by: str, errors: list[str]
    ) -> int | None:
        """Return how many were removed; what fails is in `errors`."""
        if self._credentials is None:
            return None
        try:
            return await self._credentials.erase_subject(tenant, _user_of(subject), erasure_id=erasure_id, by=by)
        except (Refused, Unavailable, ConnectorError) as error:
            errors.append(f"the stored credentials of the subject were not all removed: {error}")
            return 0

    async def rewrap_keys(self) -> list[str]:
        """Wrap every data key under the current key-encryption key; returns the positions of those that were under
        another.
        """
        keys = self._sources.content.keys
        if keys is None:
            raise Refused("encryption_off", "content is not encrypted here: there are no keys to wrap")
        try:
            offsets = await keys.rewrap()
        except ConnectorError as error:
            raise keys_unavailable(error) from error
        return [str(Position(topic=keys.topic, partition=PARTITION, offset=offset)) for offset in offsets]

    # --- shared ------------------------------------------------------------------------------------------------------

    async def _find_in_entities(
        self, tenant: str, user_id: str, keys: Sequence[KeyView], findings: ErasureFindings
    ) -> None:
        if self._entities is None:
            return
        with reaching("log"):
            findings.entities = await self._entities.find_references(
                SearchedSubject(
                    tenant=tenant,
                    user_id=user_id,
                    key_ids=[key.key_id for key in keys],
                    run_ids=findings.run_ids,
                )
            )
        findings.truncated = findings.truncated or findings.entities.truncated

    async def _find_content(self, subject: ErasedSubject) -> Sequence[ContentFindings]:
        try:
            return [await one.find(subject) for one in self.erasers]
        except PositionNotRead as error:
            raise not_yet_error("what memory has of the subject is not known", error.lag) from error
        except ConnectorError as error:
            raise unavailable("projection", error) from error

    async def _current_keys(self) -> SubjectKeys | None:
        keys = self._sources.content.keys
        if keys is not None:
            with reaching("log"):
                await keys.catch_up()
        return keys

    async def _cancel_all(
        self, caller: Caller, tenant: str, subject: str, findings: ErasureFindings
    ) -> tuple[str, ...]:
        """Cancel every live run of the subject, so that no more content is written under a key about to be destroyed.

        Roots first: a cancel propagates down a tree, whereas a parent whose child is cancelled first continues with
        that result and calls its model again. Raises Refused: cancel_pending, not_yet; then nothing is erased.
        """
        cancelled: list[str] = []
        halted: set[str] = set()
        for _ in range(CANCEL_ROUNDS_MAX):
            rows = await self._live_runs(caller, tenant, subject, halted)
            if not rows:
                return tuple(cancelled)
            for row in sorted(rows, key=lambda row: row.depth):
                try:
                    stopped = await self._control.cancel_run(caller, row.run_id, CANCEL_REASON)
                except Refused as declined:
                    if declined.code == "not_found":
                        continue  # it ended meanwhile; the next round shows it
                    if declined.code != "run_quarantined":
                        raise
                    # A quarantined run makes no progress; its content is erased like the rest.
                    halted.add(row.run_id)
                    findings.errors.append(f"{row.run_id} is quarantined and could not be cancelled")
                else:
                    if stopped.cancelled:
                        cancelled.append(row.run_id)
        rows = await self._live_runs(caller, tenant, subject, halted)
        if rows:
            raise Refused(
                "cancel_pending",
                f"nothing was erased: {len(rows)} runs of {subject} in {tenant} are still under way, {rows[0].run_id} "
                f"first, after {CANCEL_ROUNDS_MAX} rounds of cancelling; stop what starts them, then erase again",
                retry_after_s=RETRY_SOON_S,
            )
        return tuple(cancelled)

    async def _live_runs(self, caller: Caller, tenant: str, subject: str, halted: set[str]) -> list[RunRow]:
        """Return the live runs, including those that have just started. Raises Refused: not_yet."""
        lag = await self._sources.barrier.wait_for_own_writes(None, timeout_s=limits.POSITION_WAIT_S)
        if lag:
            raise not_yet_error(
                "nothing was erased, because the read models do not know every run that is under way", lag
            )
        rows = await self._runs_of(caller, tenant, subject, ErasureFindings(), statuses=frozenset({"running"}))
        return [row for row in rows if row.run_id not in halted]

    async def _runs_of(
        self,
        caller: Caller,
        tenant: str,
        subject: str,
        findings: ErasureFindings,
        *,
        statuses: frozenset[str] = frozenset(),
    ) -> list[RunRow]:
        rows: list[RunRow] = []
        after = ""
        user = _user_of(subject)
        run_filter = RunFilter(user_id=user, statuses=statuses)
        while True:
            page = await self._reads.runs(caller, run_filter, tenant=tenant, limit=limits.LIST_MAX, after=after)
            # An empty user_id in a filter matches all users.
            rows += [row for row in page.rows if row.user_id == user]
            after = page.next
            if not after:
                return rows
            if len(rows) >= RUNS_EXAMINED_MAX:
                findings.truncated = True
                return rows

    async def _examine(self, row: RunRow, findings: ErasureFindings, frames_left: int) -> int:
        """Count the content frames of a run; returns how many more frames may be examined."""
        after = -1
        while frames_left > 0:
            limit = min(frames_left, limits.REPLAY_PAGE)
            rows = await self._sources.projection.frames(row.tenant, row.run_id, from_seq=after, limit=limit)
            for frame in rows:
                await self._count_frame(frame, findings)
            frames_left -= len(rows)
            if len(rows) < limit:
                return frames_left
            after = rows[-1].seq
        findings.truncated = True
        return frames_left

    async def _count_frame(self, frame: TranscriptRow, findings: ErasureFindings) -> None:
        if frame.type not in CONTENT_FRAMES:
            return
        event = orjson.loads(frame.event)
        payload = [] if frame.payload is None else _without_definition(orjson.loads(frame.payload))
        texts = [text for text in _frame_texts(event, payload) if text]
        if texts:
            is_encrypted = all(map(has_tokens, texts))
            findings.frames_encrypted += is_encrypted
            findings.frames_in_clear += not is_encrypted
        for ref in _blob_refs([event, payload]):
            if findings.blobs_encrypted + findings.blobs_in_clear >= BLOBS_EXAMINED_MAX:
                findings.truncated = True
                return
            try:
                is_encrypted = has_tokens((await self._sources.blobs.get(ref)).decode())
            except ConnectorError as error:
                findings.errors.append(f"blob {ref.sha256} could not be examined: {error.kind}")
                continue
            findings.blobs_encrypted += is_encrypted
            findings.blobs_in_clear += not is_encrypted
            if not is_encrypted:
                findings.clear_blobs[ref.sha256] = ref


async def _erase_keys(keys: SubjectKeys, tenant: str, subject: str, erasure_id: str, reason: str, by: str) -> Erasure:
    """Destroy the keys of a subject. Raises Refused: log_unavailable."""
    try:
        return await keys.erase(tenant, _user_of(subject), erasure_id=erasure_id, reason=reason, by=by)
    except UnknownOutcome as error:
        raise Refused(
            "log_unavailable",
            "the log did not acknowledge the erasure; ask again, that does no harm",
            retry_after_s=RETRY_SOON_S,
            details={"outcome": "unknown"},
        ) from error
    except ConnectorError as error:
        raise unavailable("log", error) from error


def _check_tenant(tenant: str) -> None:
    if not tenant:
        raise bad_request("tenant is required: the tenant of the subject")


def _check_subject(subject: str) -> None:
    if not subject or len(subject) > limits.NAME_BYTES_MAX or not subject.isprintable():
        raise bad_request(f"subject is required: a user_id, or {TENANT_SUBJECT} for runs that name no user")


def _user_of(subject: str) -> str:
    return "" if subject == TENANT_SUBJECT else subject


def _require_known(report: ErasureReport) -> None:
    if not report.is_known:
        raise Refused(
            "not_found", f"there is nothing of {report.subject} in {report.tenant}; `loomlog subjects ls` lists them"
        )


def _keys_of(keys: SubjectKeys, tenant: str, user: str) -> tuple[KeyView, ...]:
    erased = [
        KeyView(key_id=key_id, made_at_ms=None, erasure=erasure)
        for erasure in keys.table.erasures_of(tenant, user)
        for key_id in erasure.record.key_ids
    ]
    present = [KeyView(key_id=key.key_id, made_at_ms=key.at_ms) for key in keys.table.keys_of(tenant, user)]
    return (*erased, *present)


def _frame_texts(event: Mapping[str, Any], payload: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the content texts of a frame."""
    yield event.get("text", "")
    use = event.get("tool_use")
    if use and use.get("input"):
        tool_input = use["input"]
        yield tool_input if isinstance(tool_input, str) else orjson.dumps(tool_input).decode()
    yield (event.get("channel") or {}).get("payload_preview", "")
    for segment in payload:
        for block in segment.get("content", ()):
            yield block.get("text", "") or block.get("data", "")


def _without_definition(segments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the segments without the agent's system prompt, which is not the user's text."""
    return [
        {**segment, "content": [block for block in segment.get("content", ()) if block.get("source") != "definition"]}
        for segment in segments
    ]


def _blob_refs(value: Any) -> Iterator[BlobRef]:
    """Yield references to the payloads of a frame in the blob store."""
    if isinstance(value, dict):
        if "sha256" in value and "size_bytes" in value:
            yield BlobRef(sha256=value["sha256"], size_bytes=value["size_bytes"])
        for item in value.values():
            yield from _blob_refs(item)
    elif isinstance(value, list):
        for item in value:
            yield from _blob_refs(item)
