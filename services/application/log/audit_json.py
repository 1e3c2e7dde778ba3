"""A verification as JSON.

Before: audits.py, services/cli/log/audit.py. After: the client.
"""

from collections.abc import Sequence
from typing import cast

from msgspec.structs import asdict

from loomlog.services.application.log.json_types import (
    SignedRangeJson,
    Verification,
    VerificationFinding,
    VerifiedPartition,
    VerifiedRun,
)
from loomlog.services.core.audit.findings import AuditFinding
from loomlog.services.core.audit.verify import VerificationReport


def audit_json(reports: Sequence[VerificationReport], seconds: float) -> Verification:
    """Return the whole audit as JSON."""
    records = sum(report.records for report in reports)
    return {
        "clean": all(report.is_clean for report in reports),
        "records": records,
        "seconds": round(seconds, 3),
        "records_per_s": round(records / seconds) if seconds > 0 else 0,
        "violations": sum(count_violations(report) for report in reports),
        "partitions": [_report_json(report) for report in reports],
    }


def _report_json(report: VerificationReport) -> VerifiedPartition:
    newest = report.newest
    return {
        "topic": report.topic,
        "partition": report.partition,
        "clean": report.is_clean,
        "first_offset": report.first_offset,
        "deleted_before": report.deleted_before,
        "next_offset": report.next_offset,
        "records": report.records,
        "events": report.events,
        "claims": report.claims,
        "stale": report.stale,
        "live_runs": report.live_runs,
        "signed_records": report.signed_records,
        "unsigned": report.unsigned,
        "covered": report.covered,
        "keys": cast("list[SignedRangeJson]", [asdict(one) for one in report.ranges]),
        "unknown_keys": dict(report.unknown_keys),
        "newest_checkpoint": None
        if newest is None
        else {"next_offset": newest.next_offset, "chain": newest.chain.hex(), "at_ms": newest.at_ms},
        "run": None if report.watched is None else cast("VerifiedRun", asdict(report.watched)),
        "uncounted": report.uncounted,
        "findings": [_finding_json(finding) for finding in report.findings],
    }


def _finding_json(finding: AuditFinding) -> VerificationFinding:
    return {
        "kind": finding.kind.value,
        "violation": finding.kind.is_violation,
        "topic": finding.topic,
        "partition": finding.partition,
        "offset": finding.offset,
        "count": finding.count,
        "run_id": finding.run_id,
        "seq": finding.seq,
        "detail": finding.detail,
    }


def count_violations(report: VerificationReport) -> int:
    """Count the violations of a partition, those that are not listed too."""
    return report.uncounted + sum(finding.kind.is_violation for finding in report.findings)
