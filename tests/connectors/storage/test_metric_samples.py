"""Samples in Postgres: pages, pieces of time, and the end of their lifetime."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from loomlog.connectors.storage import metric_samples
from loomlog.connectors.storage.metric_samples import MetricBucket, MetricSample, PostgresMetricSamples
from loomlog.connectors.storage.postgres import PostgresOptions
from loomlog.services.application.resources import clock_ms


@pytest_asyncio.fixture(loop_scope="session")
async def samples(postgres: str, pg_schema: str) -> AsyncIterator[PostgresMetricSamples]:
    made = PostgresMetricSamples(PostgresOptions(dsn=postgres), schema=pg_schema)
    yield made
    await made.close()


def sample(at_ms: int, *, rss: int = 100, cpu: int = 10, active: int = 1) -> MetricSample:
    return MetricSample(0, "a", at_ms, active, 0, rss, cpu)


async def test_samples_come_in_pages_oldest_first(samples: PostgresMetricSamples) -> None:
    now = clock_ms()
    assert list(await samples.samples(0, now, after=0, limit=9)) == []
    for number in range(5):
        await samples.add(sample(now + number))
    first = await samples.samples(now, now + 4, after=0, limit=3)
    rest = await samples.samples(now, now + 4, after=first[-1].sample_id, limit=3)
    assert [one.sampled_at_ms for one in (*first, *rest)] == [now, now + 1, now + 2, now + 3]


async def test_a_piece_of_time_has_the_mean_and_the_highest_of_its_samples(samples: PostgresMetricSamples) -> None:
    start = clock_ms() // 1000 * 1000
    for at_ms, rss, cpu, active in ((start, 100, 0, 1), (start + 10, 300, 100, 7), (start + 1000, 50, 5, 2)):
        await samples.add(sample(at_ms, rss=rss, cpu=cpu, active=active))
    assert list(await samples.buckets(start, start + 2000, width_ms=1000)) == [
        MetricBucket(start, 200, 300, 95, 100, 7, 2),
        MetricBucket(start + 1000, 50, 50, 5, 5, 2, 1),
    ]
    (whole,) = await samples.buckets(start, start + 2000, width_ms=1 << 62)
    assert whole.sample_count == 3


async def test_a_sample_whose_time_is_over_is_gone(
    samples: PostgresMetricSamples, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metric_samples, "SWEEP_EVERY", 1)
    await samples.add(sample(clock_ms() - 8 * 86_400_000))
    assert list(await samples.samples(0, clock_ms(), after=0, limit=9)) == []
    assert list(await samples.buckets(0, clock_ms(), width_ms=1 << 62)) == []
