"""Logging for a process that others must be able to read: warnings of the libraries, and not the same one all day.

While a broker is away aiokafka logs thousands of equal lines (reference prototype.md 5). Each kind of line, told by its
logger and its message before the values are filled in, is let through a few times a minute; the next one that passes
says how many were left out. Nothing else is filtered: the first of each kind is always seen.
"""

import logging
import sys
import time
from collections.abc import Callable

LIBRARIES = ("faust", "mode", "aiokafka", "asyncio", "uvicorn", "services.insights.rereading")
"""The last one is ours by name only: mode names the logger of a service after the module of its class."""
LINES_PER_MINUTE = 3
PERIOD_S = 60.0
MAX_KINDS = 1_000
"""Kinds of lines remembered; when there are more, all are forgotten, which only lets a few more lines through."""


class FewOfAKind(logging.Filter):
    """Lets LINES_PER_MINUTE lines of each kind through; belongs on a handler."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[tuple[str, str], tuple[float, int]] = {}
        """By kind: when its period began, lines in it."""

    def filter(self, record: logging.LogRecord) -> bool:
        kind = (record.name, str(record.msg))
        now = self._clock()
        began, lines = self._kinds.get(kind, (now, 0))
        if now - began >= PERIOD_S:
            if lines > LINES_PER_MINUTE:
                record.msg = f"{record.getMessage()} ({lines - LINES_PER_MINUTE} lines like this were left out)"
                record.args = None
            began, lines = now, 0
        if kind not in self._kinds and len(self._kinds) >= MAX_KINDS:
            self._kinds.clear()
        self._kinds[kind] = (began, lines + 1)
        return lines < LINES_PER_MINUTE


def quiet_logging() -> None:
    """Our own lines from INFO, those of the libraries from WARNING, to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(FewOfAKind())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for library in LIBRARIES:
        logging.getLogger(library).setLevel(logging.WARNING)
