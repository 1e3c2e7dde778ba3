"""Samples of metrics as clients see them, and how they are taken."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from loomlog.connectors.errors import Transient
from loomlog.connectors.storage.metric_samples import PostgresMetricSamples
from loomlog.connectors.storage.postgres import PostgresOptions
from loomlog.services.api.metric_sampler import MetricSampler
from loomlog.services.application.resources import clock_ms
from tests.services.api.serving import Served, served
from tests.services.application.world import ACME


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path, postgres: str, pg_schema: str) -> AsyncIterator[Served]:
    async with served(tmp_path) as made:
        made.service.samples = PostgresMetricSamples(PostgresOptions(dsn=postgres), schema=pg_schema)
        yield made
        await made.service.samples.close()


def sampler(here: Served, samples: Any = None) -> MetricSampler:
    return MetricSampler(
        samples or here.service.samples,
        replica_id="tests",
        every_s=60,
        application=lambda: here.service.current_application,
        clock_ms=clock_ms,
    )


async def read(here: Served, path: str, **query: Any) -> Any:
    answer = await here.client().get(f"/v1/_metrics/{path}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_what_was_sampled_is_listed_and_summed(here: Served) -> None:
    run_id = (await here.run())[1].data["run_id"]
    for _ in range(3):
        await sampler(here).take()
    page = await read(here, "samples", since="2020-01-01T00:00:00Z", limit=2)
    assert len(page["samples"]) == 2
    assert page["samples"][0]["loomcycle_rss_bytes"] > 1_000_000
    assert (page["samples"][0]["active_runs"], page["samples"][0]["replica_id"]) == (0, "tests")
    rest = await read(here, "samples", since="2020-01-01T00:00:00Z", cursor=page["next_cursor"])
    assert (len(rest["samples"]), rest["next_cursor"]) == (1, None)
    for period in ("1h", "24h", "7d"):
        assert sum(bucket["sample_count"] for bucket in (await read(here, "summary", period=period))["buckets"]) == 3
    of_run = await read(here, f"runs/{run_id}")
    assert of_run["run_id"] == run_id
    assert of_run["sample_count"] == 0


async def test_a_sample_that_cannot_be_stored_is_left_out(here: Served) -> None:
    class Away:
        async def add(self, sample: Any) -> None:
            raise Transient("away", kind="unavailable")

    await sampler(here, Away()).take()
    here.service.current_application = None
    await sampler(here, None).take()
    assert (await read(here, "samples", since="2020-01-01T00:00:00Z"))["samples"] == []


@pytest.mark.parametrize(
    "path", ["samples", "samples?since=soon", "samples?since=2020-01-01&limit=0", "summary?period=1century"]
)
async def test_a_question_that_makes_no_sense_is_a_clear_400(here: Served, path: str) -> None:
    answer = await here.client().get(f"/v1/_metrics/{path}")
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


async def test_samples_are_for_administrators_and_their_absence_has_a_reason(here: Served) -> None:
    assert (await here.client(ACME).get("/v1/_metrics/summary")).status_code == 403
    assert (await here.client().get("/v1/_metrics/runs/r_none")).status_code == 404
    here.service.samples, taken = None, here.service.samples
    answer = await here.client().get("/v1/_metrics/summary")
    here.service.samples = taken
    assert (answer.status_code, answer.json()["code"]) == (503, "metrics_off")
