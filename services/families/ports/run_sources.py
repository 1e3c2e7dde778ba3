"""Runs as a process has them, for families that are asked about them.

Before: services/application/application.py and services/runtime/process.py provide it. After: services.py of families.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from loomlog.connectors.protocols import LogRanges
from loomlog.projections.runs import RunRow

FindRun = Callable[[str, str], Awaitable[RunRow | None]]
"""Returns the run of a tenant with this id; None while it is not known. Raises ConnectorError, Refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSources:
    """What a process reads of runs."""

    find: FindRun
    ranges: LogRanges
    events_topic: str
