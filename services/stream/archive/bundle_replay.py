"""Replay of a bundle: its runs folded in order, each starting with the conversation of the one before it.

Everything is compared with the fold recorded in the bundle. States are compared by hash if the same fold version made
them; otherwise only seq and digests are compared.

Before: bundle.py. After: the command line shows it; an import continues only without drift.
"""

from collections.abc import Callable
from typing import IO

from loomlog.schemas.generated.values import ForkPoint, RunPosition
from loomlog.schemas.records import Value, replace
from loomlog.services.core.run.evolve import REDUCER_VERSION
from loomlog.services.core.run.history.replay import ReplayResult, RunFold, TimelineEntry
from loomlog.services.core.run.lifecycle.fork import conversation_origin
from loomlog.services.stream.archive.bundle import (
    BlobPart,
    BrokenBundle,
    BundledEvent,
    BundledRun,
    BundleHeader,
    BundleReader,
    FoldedRun,
)


class BundleReplay(Value, frozen=True, kw_only=True):
    """Result of a replayed bundle. `replayed` is its subject; `drift` is that of all its runs."""

    header: BundleHeader
    replayed: ReplayResult
    drift: tuple[str, ...]
    first_drift_seq: int
    ancestors: int
    """Number of runs it continues."""
    not_compared: str
    """Why hashes of states were not compared; empty if they were."""


def replay_bundle(
    file: IO[bytes],
    *,
    to_seq: int = 0,
    through_bytes: bool = True,
    bytes_max: int = 0,
    seen: Callable[[BundledEvent | BlobPart, BundleReader], None] = lambda item, reader: None,
) -> BundleReplay:
    """Read the bundle to its end and fold its run up to `to_seq` (0: all). Raises BrokenBundle.

    `seen` receives every event and every part of a payload, in order.
    """
    reader = BundleReader(file, bytes_max=bytes_max)
    header = reader.header
    drift: list[str] = []
    first_drift_seq = 0
    runs = list(header.runs)
    entries: list[TimelineEntry] = []
    is_same_fold = header.reducer_version == REDUCER_VERSION
    current = _RunReplay(runs.pop(0), None, reader, through_bytes=through_bytes)
    done: ReplayResult | None = None
    for item in reader:
        match item:
            case BundledEvent():
                if done is not None or item.run_id != current.run.run_id:
                    raise BrokenBundle(f"an event of {item.run_id} among those of {current.run.run_id}")
                seen(item, reader)
                is_subject = not runs
                if is_subject and to_seq and current.folding.seq >= to_seq:
                    current.skipped += 1
                    continue
                entry = current.take(item)
                if entry is not None and is_subject:
                    entries.append(entry)
            case FoldedRun():
                if done is not None or item.run_id != current.run.run_id:
                    raise BrokenBundle(f"{item.run_id} is folded among the events of {current.run.run_id}")
                result = current.folded(item, tuple(entries), compare_state=is_same_fold)
                drift += [f"{item.run_id}: {sentence}" if runs else sentence for sentence in result.drift]
                first_drift_seq = first_drift_seq or result.first_drift_seq
                if runs:
                    current = _RunReplay(runs.pop(0), result, reader, through_bytes=through_bytes)
                else:
                    done = result
            case BlobPart():
                seen(item, reader)
    if done is None:
        raise BrokenBundle(f"the bundle ends before the last event of {header.run_id}")
    return BundleReplay(
        header=header,
        replayed=done,
        drift=tuple(drift),
        first_drift_seq=first_drift_seq,
        ancestors=len(header.runs) - 1,
        not_compared=""
        if is_same_fold
        else f"the bundle was folded by version {header.reducer_version} of the fold, this one is {REDUCER_VERSION}",
    )


class _RunReplay:
    """The run of the bundle that is being folded."""

    def __init__(
        self, run: BundledRun, before: ReplayResult | None, reader: BundleReader, *, through_bytes: bool
    ) -> None:
        self.run = run
        self._before = before
        self.skipped = 0
        """Events after the requested seq."""
        history = () if before is None else before.history
        self.folding = RunFold(run.run_id, history=history, codec=reader.codec, checks_roundtrip=through_bytes)

    def take(self, item: BundledEvent) -> TimelineEntry | None:
        entry = self.folding.apply(item.event)
        if entry is not None and entry.seq == 1:
            self._check_origin(conversation_origin(entry.event))
        return entry

    def _check_origin(self, origin: RunPosition | ForkPoint | None) -> None:
        before = self._before
        expected = None if origin is None else origin.run_id
        if expected != (None if before is None else before.run_id):
            self.folding.report_drift(
                1, f"{self.run.run_id} goes on with {expected}, which is not the run before it here"
            )
        elif (
            isinstance(origin, ForkPoint)
            and before is not None
            and (origin.seq, origin.digest) != (before.seq, before.tail_digest.hex())
        ):
            self.folding.report_drift(1, f"{self.run.run_id} left {origin.run_id} at another event than the bundle has")

    def folded(self, recorded: FoldedRun, entries: tuple[TimelineEntry, ...], *, compare_state: bool) -> ReplayResult:
        """Compare the result with the fold recorded in the bundle."""
        folding = self.folding
        if not self.skipped:
            pairs = [("seq", recorded.seq, folding.seq), ("digest", recorded.tail_digest, folding.tail_digest.hex())]
            for name, theirs, ours in pairs:
                if theirs != ours:
                    folding.report_drift(
                        folding.seq, f"the bundle says the last {name} is {theirs}, its events give {ours}"
                    )
        result = folding.result(entries)
        if compare_state and not self.skipped and recorded.state_sha256 != result.state_sha256:
            sentence = (
                f"the bundle says the state has sha256 {recorded.state_sha256}, the fold gives {result.state_sha256}"
            )
            return replace(
                result,
                drift=(*result.drift, sentence),
                first_drift_seq=result.first_drift_seq or result.seq,
            )
        return result
