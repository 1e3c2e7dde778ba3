"""The checks that a process can make from where it is, without the stack it may be part of: GET /v1/_doctor.

What only the machine of a process knows (its children, their logs, the metrics of runtimes) `loomlog doctor` checks.

Each part is asked separately and within CHECK_WAIT_S: one that does not answer is a line, and the others still are too.
A report is shared by all requests of SHARED_S.

Before: services/api/process_handlers.py. After: components.py.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from loomlog.connectors.errors import ConnectorError
from loomlog.connectors.storage.postgres import PostgresReader
from loomlog.projections.engine.lag import lag_json
from loomlog.projections.run_queries import RunFilter
from loomlog.projections.tables import EVERY_TENANT
from loomlog.redpanda.topics import plan
from loomlog.services.application.health.components import (
    AUDIT,
    DEAD_LETTERS,
    READ_MODELS,
    RUNS,
    TOPICS,
    dead_letters_check,
    entity_check,
    missing_tables_check,
    read_models_check,
    replica_checks,
    runs_check,
    topics_check,
    unreadable_check,
    unsigned_check,
    unsigned_log_check,
)
from loomlog.services.application.health.entity_status import entity_status
from loomlog.services.application.log.access import LogAccess
from loomlog.services.application.log.dead_letters import OpenLetters
from loomlog.services.application.log.verifier import LogVerifier
from loomlog.services.application.queries.read_models import ReadModels, has_no_tables
from loomlog.services.application.queries.read_your_writes import PositionBarrier
from loomlog.services.core.check import FAIL, OK, Check
from loomlog.services.core.plain_text import duration
from loomlog.services.core.refusals import Refused
from loomlog.services.stream.entities.replicas import Replicas

BROKER, POSTGRES = "broker", "postgres"
CHECK_WAIT_S = 5.0
"""Seconds to wait for one part."""
SHARED_S = 1.0
"""Seconds that a report is shared: everybody who has a page with it open asks every few seconds."""
QUARANTINED_MAX = 100
"""Quarantined runs that are counted."""
FAILURES = (TimeoutError, ConnectorError, Refused)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityTables:
    """The rows of a topic set of aggregates: what it is called, its events topic, and a reader of its tables."""

    name: str
    topic: str
    reader: PostgresReader


class HealthChecks:
    """Makes the checks for administrators."""

    def __init__(
        self,
        access: LogAccess,
        verifier: LogVerifier,
        projection: ReadModels,
        barrier: PositionBarrier,
        replicas: Replicas,
        entity_tables: Sequence[EntityTables],
        open_letters: OpenLetters,
        *,
        clock_ms: Callable[[], int],
    ) -> None:
        self._access, self._verifier, self._projection, self._barrier = access, verifier, projection, barrier
        self._replicas, self._entity_tables = replicas, entity_tables
        self._open_letters = open_letters
        self._clock_ms = clock_ms
        self._lock = asyncio.Lock()
        self._checked_at = -SHARED_S
        self._checks: tuple[Check, ...] = ()

    async def checks(self) -> tuple[Check, ...]:
        """Return the checks, at most SHARED_S old."""
        async with self._lock:
            if time.monotonic() - self._checked_at >= SHARED_S:
                parts = await asyncio.gather(
                    self._check_broker(),
                    self._check_postgres(),
                    self._check_topics(),
                    self._check_audit(),
                    self._check_dead_letters(),
                    self._check_read_models(),
                    self._check_runs(),
                    *(self._check_entities(tables) for tables in self._entity_tables),
                )
                replicas = replica_checks(self._replicas, now_ms=self._clock_ms())
                self._checks = (*parts[:5], *replicas, *parts[5:])
                self._checked_at = time.monotonic()
            return self._checks

    async def _check_broker(self) -> Check:
        began = time.monotonic()
        try:
            await _bounded(self._access.ranges.end_offset(self._barrier.topic, 0))
        except FAILURES as error:
            remedy = "Nothing can be started or decided until it is back; what was accepted is not lost."
            return Check(name=BROKER, state=FAIL, text=_reason(error), remedy=remedy)
        answered = f"{self._access.place} answers in {duration(time.monotonic() - began)}"
        return Check(name=BROKER, state=OK, text=answered)

    async def _check_postgres(self) -> Check:
        began = time.monotonic()
        try:
            await _bounded(self._projection.cursors())
        except FAILURES as error:
            if not (isinstance(error, Refused) and has_no_tables(error)):
                remedy = "Lists and reads come from it; runs themselves go on without."
                return Check(name=POSTGRES, state=FAIL, text=_reason(error), remedy=remedy)
        return Check(name=POSTGRES, state=OK, text=f"it answers in {duration(time.monotonic() - began)}")

    async def _check_topics(self) -> Check:
        required = self._access.required_topics
        try:
            existing = await _bounded(self._access.existing_topics([topic.name for topic in required]))
        except FAILURES as error:
            return Check(name=TOPICS, state=FAIL, text="they cannot be read", remedy=_reason(error))
        return topics_check(plan(required, existing), self._access.place)

    async def _check_audit(self) -> Check:
        try:
            waits_s = await _bounded(self._age_of_signed_log())
        except FAILURES as error:
            return Check(name=AUDIT, state=FAIL, text="the signatures cannot be read", remedy=_reason(error))
        if waits_s is None:
            return unsigned_log_check()
        late = unsigned_check(waits_s, self._access.audit_period_s, "")
        text = "everything is signed; POST /v1/_audit/verify compares it with what was signed"
        return late or Check(name=AUDIT, state=OK, text=text)

    async def _age_of_signed_log(self) -> float | None:
        """Return the age in seconds of the oldest event that is not signed; None when nothing was ever signed."""
        if not await self._verifier.is_signed():
            return None
        return await self._verifier.oldest_unsigned_age_s()

    async def _check_read_models(self) -> Check:
        try:
            progress = await _bounded(self._projection.progress())
        except FAILURES as error:
            return unreadable_check(READ_MODELS, _reason(error))
        return read_models_check(lag_json(progress, self._barrier.topic, self._barrier.log_ends(), now_s=time.time()))

    async def _check_dead_letters(self) -> Check:
        try:
            return dead_letters_check(await _bounded(self._open_letters.count()))
        except FAILURES as error:
            return Check(name=DEAD_LETTERS, state=FAIL, text="they cannot be read", remedy=_reason(error))

    async def _check_runs(self) -> Check:
        quarantined = RunFilter(waiting="quarantined")
        try:
            page = await _bounded(self._projection.runs(EVERY_TENANT, quarantined, limit=QUARANTINED_MAX))
        except FAILURES as error:
            return unreadable_check(RUNS, _reason(error))
        return runs_check(page.rows, is_whole=not page.next)

    async def _check_entities(self, tables: EntityTables) -> Check:
        try:
            partitions = await _bounded(self._access.count_partitions(tables.topic))
            status = await _bounded(
                entity_status(tables.reader, self._access.ranges, tables.topic, partitions, now_s=time.time())
            )
        except FAILURES as error:
            return missing_tables_check(tables.name, _reason(error))
        return entity_check(status, tables.name)


async def _bounded(part: Awaitable[T]) -> T:
    async with asyncio.timeout(CHECK_WAIT_S):
        return await part


def _reason(error: Exception) -> str:
    return f"no answer within {CHECK_WAIT_S:g} s" if isinstance(error, TimeoutError) else str(error)
