"""Evidence of a demo: the run in the log, its replay, and the lines of the ledger, which lies outside of the log.

Before: demo.py. After: services/cli/log/replay.py.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loomlog.schemas.generated.run_events import ToolReturned
from loomlog.services.cli.log.replay import ReplayReport, build_report
from loomlog.services.cli.settings import CliSettings
from loomlog.services.core.run.history.replay import TimelineEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoEvidence:
    """What a run left behind whose runtime was killed."""

    run_id: str
    status: str
    events: int
    calls: int
    """Tool calls with a result in the log."""
    lines: int
    """Lines of the run in the ledger."""
    distinct_lines: int
    takeover_ms: int | None
    """Milliseconds from the kill to the first event of the next owner; None if there was none."""
    drift: tuple[str, ...]
    comparison_skipped: str
    """Why the replay was not compared with the read models; empty if it was."""

    @property
    def replay_text(self) -> str:
        if self.drift:
            return f"and a difference: {self.drift[0]}"
        if self.comparison_skipped:
            return f"hash chain intact; not compared with the read models: {self.comparison_skipped}"
        return "hash chain intact, replay equal to the read models"

    def problems(self, expected_calls: int) -> list[str]:
        """Return a sentence for everything that does not hold; empty when the demo shows what it promises."""
        problems = []
        if self.status != "completed":
            problems.append(f"The run is {self.status}, expected completed.")
        if self.takeover_ms is None:
            problems.append("No other owner went on with the run: it ended before the kill, or without a takeover.")
        if self.calls != expected_calls:
            problems.append(f"The log has the results of {self.calls} tool calls, expected {expected_calls}.")
        if not self.lines == self.distinct_lines == self.calls:
            problems.append(
                f"The ledger has {self.lines} lines, {self.distinct_lines} of them different, for {self.calls} calls: "
                "an effect is missing or happened twice."
            )
        problems += [f"Replay: {sentence}" for sentence in self.drift]
        if self.comparison_skipped:
            problems.append(f"The replay could not be compared: {self.comparison_skipped}")
        return problems


async def read_evidence(cli: CliSettings, run_id: str, ledger: Path, *, killed_ms: int) -> DemoEvidence:
    """Read the evidence. `killed_ms` is the time of the kill, UTC milliseconds; 0 if there was none."""
    report = await build_report(cli, run_id)
    keys = await asyncio.to_thread(_read_keys, ledger, run_id)
    return weigh(report, keys, killed_ms)


def weigh(report: ReplayReport, keys: Sequence[str], killed_ms: int) -> DemoEvidence:
    """Return the evidence from a replay and the keys of the run's lines in the ledger."""
    entries = report.replayed.entries
    return DemoEvidence(
        run_id=report.replayed.run_id,
        status=report.replayed.status,
        events=report.replayed.seq,
        calls=len({(e.turn, e.index) for e in (entry.event for entry in entries) if isinstance(e, ToolReturned)}),
        lines=len(keys),
        distinct_lines=len(set(keys)),
        takeover_ms=_takeover_ms(entries, killed_ms),
        drift=report.drift,
        comparison_skipped=report.comparison_skipped,
    )


def _takeover_ms(entries: Sequence[TimelineEntry], killed_ms: int) -> int | None:
    if not killed_ms:
        return None
    return next((entry.at_ms - killed_ms for entry in entries if entry.term != entries[0].term), None)


def _read_keys(ledger: Path, run_id: str) -> list[str]:
    """Return the keys of the run's lines; each line is `key run`."""
    try:
        lines = ledger.read_text().splitlines()
    except FileNotFoundError:
        return []
    return [key for key, _, run in (line.partition(" ") for line in lines) if run == run_id]
