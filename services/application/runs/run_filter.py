"""The filter of a bulk command: `agent=helper,tenant=acme,status=paused,older_than=10m`. Pure.

Keys separated by commas, all of which must match. An unknown key is refused with the nearest existing one: a misspelt
key would otherwise select more runs than intended, and an empty filter would select all of them.

Before: bulk.py. After: projections/runs.py filters by the columns it has, `matches` by the rest.
"""

import re
from dataclasses import dataclass

from loomlog.connectors.configuration.findings import did_you_mean
from loomlog.projections.run_queries import RunFilter
from loomlog.projections.runs import RunRow, is_paused
from loomlog.services.application import limits
from loomlog.services.application.errors import bad_request

EXACT_KEYS = ("agent", "agent_id", "tenant", "user_id", "session_id")
"""Keys whose value is compared for equality."""
AGE_KEYS = ("older_than", "newer_than")
"""Keys whose value is a duration since the run started."""
KEYS = (*EXACT_KEYS, "status", *AGE_KEYS)
STATUSES = ("running", "paused", "parked", "quarantined")
"""Statuses of a live run; running matches all of them."""
AGE_PATTERN = re.compile(r"([0-9]{1,9})(s|m|h|d)\Z")
UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFilterExpression:
    """A filter over live runs; empty fields match everything. Ages in milliseconds since the start, 0 = any."""

    agent: str = ""
    agent_id: str = ""
    tenant: str = ""
    user_id: str = ""
    session_id: str = ""
    status: str = "running"
    older_than_ms: int = 0
    newer_than_ms: int = 0

    def to_run_filter(self, now_ms: int) -> RunFilter:
        """Return the part of the filter that the read models apply, apart from the tenant."""
        return RunFilter(
            statuses=frozenset({"running"}),
            agent=self.agent,
            agent_id=self.agent_id,
            user_id=self.user_id,
            session_id=self.session_id,
            since_ms=now_ms - self.newer_than_ms if self.newer_than_ms else 0,
            until_ms=now_ms - self.older_than_ms if self.older_than_ms else 0,
        )

    def matches(self, row: RunRow) -> bool:
        """Whether a live run has the status of the filter."""
        match self.status:
            case "paused":
                return is_paused(row)
            case "parked":
                return row.parked
            case "quarantined":
                return row.quarantined
            case _:
                return True


def parse_filter(text: str) -> RunFilterExpression:
    """Parse a filter. Raises Refused(bad_request) that names the invalid part and what is expected."""
    if not text.strip():
        raise bad_request("where is empty: say which runs, for example status=running for every live one")
    if len(text) > limits.FILTER_CHARACTERS_MAX:
        raise bad_request(f"where has more than {limits.FILTER_CHARACTERS_MAX} characters")
    criteria: dict[str, str | int] = {}
    seen: set[str] = set()
    for part in text.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if key not in KEYS:
            raise bad_request(f"where: {_unknown_key(key)}; expected {', '.join(KEYS)}")
        if not equals or not value:
            raise bad_request(f"where: {key} has no value, expected {key}=...")
        if key in seen:
            raise bad_request(f"where: {key} is said twice, and all of it must hold")
        seen.add(key)
        if key in AGE_KEYS:
            criteria[f"{key}_ms"] = _parse_age_ms(key, value)
        else:
            criteria[key] = _parse_status(value) if key == "status" else value
    return RunFilterExpression(**criteria)  # type: ignore[arg-type]  # the keys and their types are those of KEYS


def _unknown_key(key: str) -> str:
    return f"{key[:60]!r} is not known{did_you_mean(key, KEYS)}"


def _parse_status(value: str) -> str:
    if value not in STATUSES:
        raise bad_request(f"where: status is {value[:60]!r}, expected one of {', '.join(STATUSES)}: only live runs")
    return value


def _parse_age_ms(key: str, value: str) -> int:
    match = AGE_PATTERN.match(value)
    if match is None or not int(match[1]):
        raise bad_request(f"where: {key} is {value[:60]!r}, expected a time such as 90s, 10m, 2h or 7d")
    return int(match[1]) * UNIT_MS[match[2]]
