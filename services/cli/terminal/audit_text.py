"""An audit report as text.

Before: services/cli/log/audit.py. After: output.py.
"""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from loomlog.services.application.log.audit_json import count_violations
from loomlog.services.cli.terminal.formatting import duration, number, pluralize
from loomlog.services.cli.terminal.output import DIM, ERROR, NAME, SUCCESS, WARNING
from loomlog.services.core.audit.findings import AuditFinding, FindingKind
from loomlog.services.core.audit.verify import VerificationReport

MAX_FINDINGS_SHOWN = 50
"""Findings of a kind in the text output; JSON has all that are stored."""


def print_reports(out: Console, reports: Sequence[VerificationReport], seconds: float) -> None:
    """Print the audit as text."""
    for report in reports:
        _print_report(out, report)
    kinds: dict[FindingKind, int] = {}
    for report in reports:
        for finding in report.findings:
            kinds[finding.kind] = kinds.get(finding.kind, 0) + 1
            if kinds[finding.kind] <= MAX_FINDINGS_SHOWN:
                out.print(_finding_line(finding))
    for kind, count in kinds.items():
        if count > MAX_FINDINGS_SHOWN:
            out.print(Text(f"{kind.value}: {number(count - MAX_FINDINGS_SHOWN)} more; --json lists them", style=DIM))
    records, violations = sum(r.records for r in reports), sum(count_violations(r) for r in reports)
    speed = f"{pluralize(records, 'record')} in {duration(seconds)} ({number(round(records / max(seconds, 0.001)))}/s)"
    if violations:
        out.print(Text(f"{pluralize(violations, 'violation')}; {speed}", style=ERROR))
    elif any(report.unknown_keys for report in reports) or not any(report.newest for report in reports):
        out.print(Text(f"nothing contradicts, and nothing is signed; {speed}", style=WARNING))
    else:
        out.print(Text(f"nothing contradicts what was signed; {speed}", style=SUCCESS))


def _print_report(out: Console, report: VerificationReport) -> None:
    place = f"{report.topic}/{report.partition}"
    signed = f"{number(report.signed_records)} signed"
    keys = ", ".join(f"{one.key_id} to {one.next_offset}" for one in report.ranges)
    parts = [f"{pluralize(report.records, 'record')}", signed + (f" ({keys})" if keys else "")]
    if report.unsigned:
        parts.append(f"{number(report.unsigned)} not signed yet")
    if report.stale:
        parts.append(f"{number(report.stale)} stale")
    verdict = (
        Text("clean", style=SUCCESS)
        if report.is_clean
        else Text(pluralize(count_violations(report), "violation"), style=ERROR)
    )
    out.print(Text.assemble((f"{place:<14}", NAME), "  ", verdict, (f"  {', '.join(parts)}", DIM)))
    if report.deleted_before:
        text = f"{'':<14}  records before offset {report.deleted_before} are deleted by retention, and are not verified"
        out.print(Text(text, style=DIM))
    watched = report.watched
    if watched is not None and watched.seq:
        state = "ended" if watched.ended else "open"
        where = f"offsets {watched.first_offset} to {watched.last_offset}, {state}"
        out.print(Text.assemble((watched.run_id, NAME), (f"  {pluralize(watched.seq, 'event')}, {where}", DIM)))


def _finding_line(finding: AuditFinding) -> Text:
    place = f"{finding.topic}/{finding.partition}"
    if finding.offset >= 0:
        place += f":{finding.offset}"
    if finding.count > 1:
        place += f" ({pluralize(finding.count, 'record')})"
    what = f"  {finding.run_id}" if finding.run_id else ""
    what += f" seq {finding.seq}" if finding.seq >= 0 else ""
    style = ERROR if finding.kind.is_violation else DIM
    return Text.assemble(
        (f"{finding.kind.value:<14}", style),
        place,
        (what, NAME),
        (f"  {finding.detail}" if finding.detail else "", DIM),
    )
