"""Samples of what the api processes do, kept for seven days beside the read models.

They are measurements and no facts of the log: what is lost with the database is not written again. The first write
creates the table. Raises ConnectorError.

Before: services/api/metric_sampler.py. After: side_table.py.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from psycopg import sql

from loomlog.connectors.storage.postgres import PostgresOptions
from loomlog.connectors.storage.side_table import SideTable

LIFETIME_S = 7 * 86_400
CONNECTIONS = 2
SWEEP_EVERY = 500
"""Samples between two deletions of those whose time is over."""
SCHEMA = "loom_metrics"
TABLE_LOCK_ID = 4_718_305_119
"""Advisory lock under which the table is created; an otherwise unused number."""
COLUMNS = (
    "sample_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, replica_id text NOT NULL, "
    "sampled_at_ms bigint NOT NULL, active_runs bigint NOT NULL, queued_runs bigint NOT NULL, "
    "rss_bytes bigint NOT NULL, cpu_pct_x100 bigint NOT NULL, expires_at timestamptz NOT NULL"
)


class MetricSample(NamedTuple):
    """What a process was at a time. `cpu_pct_x100`: hundredths of a percent of one core since the sample before."""

    sample_id: int
    """Rises with time; 0 before it is stored."""
    replica_id: str
    sampled_at_ms: int
    active_runs: int
    """Runs at work in the whole installation."""
    queued_runs: int
    """Starts that wait for the log in this process."""
    rss_bytes: int
    cpu_pct_x100: int


class MetricBucket(NamedTuple):
    """The samples of all processes in one piece of time."""

    at_ms: int
    """Its beginning."""
    mean_rss_bytes: int
    max_rss_bytes: int
    p95_cpu_pct_x100: int
    max_cpu_pct_x100: int
    active_runs_max: int
    sample_count: int


class MetricSamples(Protocol):
    """Storage of samples. Times are UTC milliseconds, from <= time < to."""

    async def add(self, sample: MetricSample) -> None: ...
    async def samples(self, from_ms: int, to_ms: int, *, after: int, limit: int) -> Sequence[MetricSample]:
        """Return samples, oldest first, with ids above `after`."""
        ...

    async def buckets(self, from_ms: int, to_ms: int, *, width_ms: int) -> Sequence[MetricBucket]:
        """Return the pieces of time that have samples, oldest first."""
        ...

    async def close(self) -> None: ...


class PostgresMetricSamples:
    """Protocol MetricSamples. Connections are opened when needed and closed by `close`."""

    def __init__(self, options: PostgresOptions, *, schema: str = SCHEMA, lifetime_s: float = LIFETIME_S) -> None:
        self._table = SideTable(
            options,
            schema=schema,
            name="samples",
            columns=COLUMNS,
            about="metric samples",
            lock_id=TABLE_LOCK_ID,
            max_connections=CONNECTIONS,
        )
        self._lifetime_s = lifetime_s
        self._added = 0

    async def add(self, sample: MetricSample) -> None:
        statement = sql.SQL(
            "INSERT INTO {} (replica_id, sampled_at_ms, active_runs, queued_runs, rss_bytes, cpu_pct_x100, expires_at) "
            "VALUES (%s, %s, %s, %s, %s, %s, to_timestamp(%s))"
        )
        await self._table.write(statement, (*sample[1:], sample.sampled_at_ms / 1000 + self._lifetime_s))
        self._added += 1
        if self._added % SWEEP_EVERY == 0:
            await self._table.write(sql.SQL("DELETE FROM {} WHERE expires_at <= now()"), ())

    async def samples(self, from_ms: int, to_ms: int, *, after: int, limit: int) -> Sequence[MetricSample]:
        statement = sql.SQL(
            "SELECT sample_id, replica_id, sampled_at_ms, active_runs, queued_runs, rss_bytes, cpu_pct_x100 FROM {} "
            "WHERE expires_at > now() AND sampled_at_ms >= %s AND sampled_at_ms < %s AND sample_id > %s "
            "ORDER BY sample_id LIMIT %s"
        )
        return [MetricSample(*row) for row in await self._table.read(statement, (from_ms, to_ms, after, limit))]

    async def buckets(self, from_ms: int, to_ms: int, *, width_ms: int) -> Sequence[MetricBucket]:
        statement = sql.SQL(
            "SELECT sampled_at_ms / %s * %s AS at, avg(rss_bytes)::bigint, max(rss_bytes), "
            "round(percentile_cont(0.95) WITHIN GROUP (ORDER BY cpu_pct_x100))::bigint, max(cpu_pct_x100), "
            "max(active_runs), count(*) FROM {} WHERE expires_at > now() AND sampled_at_ms >= %s "
            "AND sampled_at_ms < %s GROUP BY 1 ORDER BY 1"
        )
        rows = await self._table.read(statement, (width_ms, width_ms, from_ms, to_ms))
        return [MetricBucket(*row) for row in rows]

    async def close(self) -> None:
        """Close the connections."""
        await self._table.close()
