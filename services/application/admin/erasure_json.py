"""JSON of what an installation holds of a subject and of its erasure, in the formats of reference surfaces 1.8; fields
that we add are additive.

A missing count was not examined; 0 was examined, and nothing was found.

Before: services/application/operations/erasure_handlers.py. After: erasure.py.
"""

from loomlog.projections.frames.frame_json import format_rfc3339
from loomlog.schemas.position import Position
from loomlog.services.application.admin.erasure import NOT_EXAMINED, ErasureReport, KeyView
from loomlog.services.application.admin.erasure import ErasureResult as Erased
from loomlog.services.application.admin.erasure_receipts import ErasureReceipts
from loomlog.services.application.answers.erasure import (
    ErasureExamination,
    ErasureRecord,
    ErasureResult,
    ReadableCounts,
    Residue,
    SubjectKey,
    SubjectReport,
    UncoveredContent,
)
from loomlog.services.core.subjects import Erasure
from loomlog.services.families.ports.content_erasure import counts_of_clients
from loomlog.services.stream.global_tables.global_table import PARTITION


def report_json(erasure_report: ErasureReport) -> SubjectReport:
    """Return the current state of a subject as JSON."""
    examined, content = erasure_report.findings, erasure_report.findings.content
    covered = {
        # Without encryption the topic of keys is not read, so the number of keys is unknown.
        **({"keys": sum(key.erasure is None for key in erasure_report.keys)} if erasure_report.is_encrypted else {}),
        "chats": len(examined.sessions),
        "runs": examined.runs,
        "live_runs": examined.live_runs,
        "events": examined.events,
        "frames": examined.frames_encrypted,
        "blobs": examined.blobs_encrypted,
        **_entity_counts(erasure_report),
        **({} if examined.credentials is None else {"credentials": len(examined.credentials)}),
        **counts_of_clients(content),
    }
    total = examined.frames_encrypted + examined.blobs_encrypted
    total += 0 if examined.entities is None else examined.entities.events
    total += len(examined.credentials or ())
    total += sum(content.counts.get(name, 0) for name in content.unencrypted)
    return {
        **_result_json(erasure_report),
        "encrypted": erasure_report.is_encrypted,
        "tier1_covered": {
            "counts": covered,
            "total": total,
        },
        "tier2_uncovered": _in_clear_json(erasure_report),
        "keys": [_key_json(key, erasure_report.keys_topic) for key in erasure_report.keys],
        "erasures": _erasures_json(erasure_report),
    }


def _result_json(erasure_report: ErasureReport) -> ErasureExamination:
    examined = erasure_report.findings
    residue: Residue = {
        # Content that an erasure leaves readable; events stay in the log as bytes that cannot be decrypted.
        "rows": examined.frames_in_clear + examined.content.in_clear,
        "scopes": int(examined.content.in_clear > 0),
        "sessions_examined": len(examined.sessions),
        "truncated": examined.truncated,
        **_readable_counts(erasure_report),
    }
    result: ErasureExamination = {
        "tenant": erasure_report.tenant,
        "subject": erasure_report.subject,
        "known": erasure_report.is_known,
        "residue": residue,
        "tier3_residue": residue,
        "errors": examined.errors,
        "notes": list(NOT_EXAMINED),
    }
    if examined.credentials is not None:
        result["credentials"] = [
            {"name": one.name, "scope": one.scope, "scope_id": one.scope_id} for one in examined.credentials
        ]
    return result


def preview_json(erasure_report: ErasureReport) -> ErasureResult:
    """Return the result of a dry run as JSON."""
    return _erasure_result(erasure_report, deleted={})


def erased_json(erased: Erased, receipts: ErasureReceipts) -> ErasureResult:
    """Return an erasure as JSON, with its receipt."""
    before = erased.report_before
    deleted = {
        **({"keys": len(erased.erasure.record.key_ids)} if erased.erasure is not None else {}),
        "frames": before.findings.frames_encrypted,
        "blobs": before.findings.blobs_encrypted + erased.blobs_deleted,
        **({"chats": len(before.findings.sessions)} if erased.are_rows_deleted else {}),
        **_entity_counts(before),
        **({} if erased.credentials_deleted is None else {"credentials": erased.credentials_deleted}),
        **counts_of_clients(erased.content),
    }
    result = _erasure_result(before, deleted=deleted)
    result["dry_run"] = False
    result["erasure_id"] = erased.erasure_id
    result["complete"] = erased.is_complete
    result["receipt"] = receipts.receipt(
        erasure_id=erased.erasure_id,
        tenant=before.tenant,
        subject=before.subject,
        at=format_rfc3339(erased.at_ms),
        by=erased.by,
        reason=erased.reason,
        complete=erased.is_complete,
        deleted=deleted,
        positions=list(erased.positions),
    )
    result["cancelled_runs"] = list(erased.cancelled)
    result["tier2_uncovered"] = _in_clear_json(before)
    result["incomplete"] = [*erased.content.errors, *erased.errors]
    return result


def _erasure_result(erasure_report: ErasureReport, *, deleted: dict[str, int]) -> ErasureResult:
    examined = _result_json(erasure_report)
    result: ErasureResult = {
        "tenant": examined["tenant"],
        "subject": examined["subject"],
        "known": examined["known"],
        "residue": examined["residue"],
        "tier3_residue": examined["tier3_residue"],
        "errors": examined["errors"],
        "notes": examined["notes"],
        "dry_run": True,
        "deleted": deleted,
        "retained": _retained_json(erasure_report),
    }
    if "credentials" in examined:
        result["credentials"] = examined["credentials"]
    return result


def _in_clear_json(erasure_report: ErasureReport) -> UncoveredContent:
    """Count the content that no erasure makes unreadable, because no key encrypts it."""
    examined = erasure_report.findings
    counts = {"frames": examined.frames_in_clear, "blobs": examined.blobs_in_clear}
    counts |= examined.content.uncovered
    return {"counts": counts, "total": examined.in_clear, "runs": examined.runs_in_clear}


def _entity_counts(erasure_report: ErasureReport) -> dict[str, int]:
    """Count what other families hold under keys of the subject; nothing where it was not examined."""
    entities = erasure_report.findings.entities
    return {} if entities is None else {"entity_events": entities.events, "aggregates": entities.aggregates}


def _readable_counts(erasure_report: ErasureReport) -> ReadableCounts:
    """Count what other families hold of the subject in clear and no erasure removes, apart from content of its own."""
    entities = erasure_report.findings.entities
    return {} if entities is None else {"events_naming": entities.named, "definitions": entities.definitions}


def _retained_json(erasure_report: ErasureReport) -> dict[str, str]:
    """Return what an erasure retains, with the reasons."""
    kept = {
        "events": f"{erasure_report.findings.events} events stay in the log, so that its chain verifies; what is "
        "encrypted in them cannot be read without its key"
    }
    examined = erasure_report.findings
    if examined.entities is not None and examined.entities.events:
        kept["entity_events"] = (
            f"{examined.entities.events} events of {examined.entities.aggregates} aggregates stay in "
            "the log, and their rows; what is encrypted in them cannot be read without its key"
        )
    if examined.entities is not None and examined.entities.named:
        kept["events_naming"] = f"{examined.entities.named} events of aggregates name the user, and stay readable"
    if examined.entities is not None and examined.entities.definitions:
        kept["definitions"] = (
            f"{examined.entities.definitions} versions of definitions that its runs wrote stay readable, with their "
            "prompts and descriptions, because they are the tenant's: delete what should be used no more"
        )
    kept |= examined.content.retained
    if examined.frames_in_clear + examined.blobs_in_clear:
        imported_note = (
            f" ({examined.imported_in_clear} of them imported from a file)" if examined.imported_in_clear else ""
        )
        kept["in_clear"] = (
            f"{examined.frames_in_clear + examined.blobs_in_clear} texts in {examined.runs_in_clear} "
            f"runs{imported_note} are stored in plaintext and "
            "stay readable: no key encrypts them, so an erasure cannot remove them"
        )
    if not erasure_report.is_encrypted:
        kept["everything"] = (
            "content is not encrypted here (LOOMLOG_ENCRYPTION_KEY is not set): rows, blobs and indexes go, and the "
            "texts of all these events stay in clear in the log, where its readers and backups have them"
        )
    return kept


def _key_json(key: KeyView, topic: str) -> SubjectKey:
    erasure = key.erasure
    return {
        "key_id": key.key_id,
        "made_at": None if key.made_at_ms is None else format_rfc3339(key.made_at_ms),
        "erased": erasure is not None,
        "erasure": None if erasure is None else _erasure_json(erasure, topic),
    }


def _erasures_json(erasure_report: ErasureReport) -> list[ErasureRecord]:
    """Return the erasures, those of keys first; `in_clear` is what that of the rows says."""
    of_rows = {row.erasure_id: row for row in erasure_report.row_erasures}
    records = [_erasure_json(erasure, erasure_report.keys_topic) for erasure in erasure_report.erasures]
    for record in records:
        if (row := of_rows.pop(record["erasure_id"], None)) is not None:
            record["in_clear"] = row.in_clear
    return records + [
        {
            "erasure_id": row.erasure_id,
            "at": format_rfc3339(row.at_ms),
            "by": row.asked_by,
            "reason": row.reason,
            "position": row.position,
            "in_clear": row.in_clear,
        }
        for row in of_rows.values()
    ]


def _erasure_json(erasure: Erasure, topic: str) -> ErasureRecord:
    return {
        "erasure_id": erasure.record.erasure_id,
        "at": format_rfc3339(erasure.record.at_ms),
        "by": erasure.record.by,
        "reason": erasure.record.reason,
        "position": str(Position(topic=topic, partition=PARTITION, offset=erasure.offset)),
    }
