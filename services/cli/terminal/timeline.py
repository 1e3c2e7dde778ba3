"""The left margin of `runs show`: for each step its seq, its start, its duration, and both as a bar.

    SEQ     START      TOOK
      1      0 ms                         > Review this
      3      1 ms     75 ms  ▇▇           turn 1
     15     75 ms      3 ms    ▏            ok    Glob pattern=*/  3 lines, 22 B

SEQ is the event's number in its run, as `runs fork --at` and `runs show --at` take it. A turn takes from the step
before it to the answer of the model; a tool call from that answer to its result. Times are those of the events.

Before: services/cli/runs/runs.py, with the stored transcript. After: the terminal.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from loomlog.projections.frames.frame import FRAMES_PER_EVENT, SESSION_STRIDE
from loomlog.services.cli.terminal.formatting import duration
from loomlog.services.cli.terminal.output import DIM, NAME

BAR_COLUMNS = 16
WIDE_COLUMNS = 100
"""Columns of a terminal from which on the bar is shown."""
NS_PER_S = 1_000_000_000
MODEL_FRAMES = frozenset({"thinking", "text", "tool_call", "usage"})
"""Frames of one answer of a model, which share an event."""


class Timeline:
    """Margins of the frames of one run, in their order. `frames` are those of the transcript."""

    def __init__(self, frames: Sequence[Mapping[str, Any]], *, columns: int) -> None:
        times = [int(frame["ts_ns"]) for frame in frames]
        self._start_ns = min(times, default=0)
        self._span_ns = max(times, default=0) - self._start_ns
        self._has_bar = columns >= WIDE_COLUMNS
        self._asked_ns: dict[str, int] = {}
        self._last_ns = self._start_ns
        self._last_event = -1

    @property
    def columns(self) -> int:
        """Columns of a margin."""
        return 28 + (BAR_COLUMNS + 2 if self._has_bar else 0)

    def head(self) -> Text:
        """Return the names of the columns."""
        return Text(f"{'SEQ':>6} {'START':>9} {'TOOK':>9}", style=DIM)

    def blank(self) -> Text:
        """Return the margin of a line that belongs to the step above it."""
        return Text(" " * self.columns)

    def margin(self, frame: Mapping[str, Any]) -> Text:
        """Return the margin of a frame; call it for each frame once, in their order."""
        at_ns, event, kind = (
            int(frame["ts_ns"]),
            int(frame["seq"]) % SESSION_STRIDE // FRAMES_PER_EVENT,
            str(frame["type"]),
        )
        is_model = kind in MODEL_FRAMES
        began_ns = None
        if is_model and event != self._last_event:
            began_ns = self._last_ns
        use = frame["event"].get("tool_use") or {}
        if kind == "tool_call":
            self._asked_ns[str(use.get("id"))] = at_ns
        if kind == "tool_result":
            began_ns = self._asked_ns.pop(str(use.get("id")), None)
        is_first, self._last_event, self._last_ns = event != self._last_event, event, at_ns
        start_ns = at_ns if began_ns is None else began_ns
        seq = str(event) if is_first or not is_model else ""
        took = "" if began_ns is None else duration((at_ns - began_ns) / NS_PER_S)
        text = Text(f"{seq:>6} {duration((start_ns - self._start_ns) / NS_PER_S):>9} {took:>9}  ", style=DIM)
        if self._has_bar:
            bar = self._bar(start_ns, at_ns) if began_ns is not None else " " * BAR_COLUMNS
            text.append(f"{bar}  ", style=NAME if is_model else "")
        return text

    def _bar(self, start_ns: int, end_ns: int) -> str:
        if not self._span_ns:
            return " " * BAR_COLUMNS
        first = min(BAR_COLUMNS - 1, (start_ns - self._start_ns) * BAR_COLUMNS // self._span_ns)
        length = round((end_ns - start_ns) * BAR_COLUMNS / self._span_ns)
        drawn = "▇" * min(length, BAR_COLUMNS - first) or "▏"
        return f"{' ' * first}{drawn}".ljust(BAR_COLUMNS)
