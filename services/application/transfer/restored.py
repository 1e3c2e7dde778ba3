"""The answer to a restore, and the content of a state file that a request has as JSON.

Before: services/api/snapshot_endpoints.py, services/api/mcp/state_file_operations.py. After: restore.py.
"""

from collections.abc import Mapping
from typing import IO, Any

from loomlog.services.application.answers.state_files import Restored
from loomlog.services.application.transfer.restore import RestoreResult
from loomlog.services.application.transfer.state_files import left_out_json
from loomlog.services.core.refusals import Refused
from loomlog.services.stream.archive.state_file import BrokenStateFile, StateWriter

SPOOL_BYTES = 8 * 1024 * 1024
"""Maximum bytes of a given state file kept in memory; more go to a temporary file."""
NO_EFFECT = "include_history has no effect at a restore: what is in the file is taken in"


def spool_document(document: Mapping[str, Any], file: IO[bytes]) -> None:
    """Write the content of a state file as a file. Raises Refused(restore_failed)."""
    try:
        for piece in StateWriter().rewrite(document):
            file.write(piece)
    except BrokenStateFile as error:
        raise Refused("restore_failed", f"the document cannot be restored: {error}; nothing was written") from error


def restored_json(result: RestoreResult, *, has_unused_field: bool) -> Restored:
    """Return the counts of a restore; `has_unused_field`: the request says include_history."""
    return {
        "dry_run": result.is_dry_run,
        "runs_restored": result.runs,
        "runs_continued": result.live_runs,
        "runs_skipped": result.skipped_runs,
        "runs_failed": result.failed_runs,
        "runs_sealed": result.sealed_runs,
        "events_restored": result.events,
        "pauses_restored": result.pauses,
        "limits_restored": result.limits,
        "blobs_restored": result.blobs,
        "aggregates_restored": result.aggregates,
        "aggregates_skipped": result.skipped_aggregates,
        "aggregates_failed": result.failed_aggregates,
        "aggregate_events_restored": result.aggregate_events,
        "memory_restored": result.refilled.get("memory", 0),
        "left_out": left_out_json(result.left_out),
        "warnings": [*result.warnings, *([NO_EFFECT] if has_unused_field else [])],
        "positions": sorted(result.positions.values()),
    }
