"""Logging for people and machines: one JSON line or one plain line per event, with rate-limited repetition.

While a broker is away aiokafka logs thousands of equal lines. Each kind of line, identified by its logger and its
message template, passes a few times a minute; the next one that passes reports how many were suppressed. The first of
each kind is always logged. Lines about a run have its id as `run_id`.
"""

import json
import logging
import sys
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType

LIBRARIES = ("aiokafka", "asyncio", "faust", "mode", "uvicorn", "httpx", "httpcore", "psycopg")
"""Libraries logged from WARNING on, or from the configured level when that is higher; lower levels are for their own
developers.
"""
LINES_PER_MINUTE = 3
RATE_LIMIT_PERIOD_S = 60.0
MAX_KINDS = 1_000
"""Kinds of lines remembered; above it all are forgotten, which only lets a few more lines through."""


log_fields: ContextVar[Mapping[str, str]] = ContextVar("log_fields", default=MappingProxyType({}))
"""Fields of every line that the current task logs, such as the id of the request it handles."""


ROUTINE = ("Group Coordinator Request failed",)
"""Beginnings of errors of libraries that every start of a new broker causes; they are logged as information."""


class RateLimitFilter(logging.Filter):
    """Lets LINES_PER_MINUTE lines of each kind of a library's lines through; belongs on a handler."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._kinds: dict[tuple[str, str], tuple[float, int]] = {}
        """By kind: start of its period, lines in it."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] not in LIBRARIES:
            return True  # our own lines are not limited
        kind = (record.name, str(record.msg))
        if kind[1].startswith(ROUTINE):
            record.levelno, record.levelname = logging.INFO, "INFO"
        now = self._clock()
        began, lines = self._kinds.get(kind, (now, 0))
        if now - began >= RATE_LIMIT_PERIOD_S:
            if lines > LINES_PER_MINUTE:
                record.msg = f"{record.getMessage()} ({lines - LINES_PER_MINUTE} lines like this were left out)"
                record.args = None
            began, lines = now, 0
        if kind not in self._kinds and len(self._kinds) >= MAX_KINDS:
            self._kinds.clear()
        self._kinds[kind] = (began, lines + 1)
        return lines < LINES_PER_MINUTE


def about(run_id: str, tenant: str = "") -> dict[str, str]:
    """Return what a line about a run carries, as `extra` of the call. Without a tenant it has that of its task."""
    return {"run_id": run_id} | ({"tenant": tenant} if tenant else {})


class JsonLineFormatter(logging.Formatter):
    """One JSON object a line: at, level, logger, message, what the line is about (run_id, tenant, ...), error."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= log_fields.get()
        line |= {name: value for name, value in vars(record).items() if name == "tenant" or name.endswith("_id")}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure_logging(level: str = "info") -> None:
    """Configure logging of this process: JSON lines to stderr, plain ones when that is a terminal."""
    handler = logging.StreamHandler(sys.stderr)
    plain = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    handler.setFormatter(plain if sys.stderr.isatty() else JsonLineFormatter())
    handler.addFilter(RateLimitFilter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for library in LIBRARIES:
        logging.getLogger(library).setLevel(max(logging.WARNING, logging.getLogger().level))
