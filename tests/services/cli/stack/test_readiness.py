from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from loomlog.connectors.errors import Permanent, Transient
from loomlog.connectors.kafka import KafkaOptions
from loomlog.connectors.storage.postgres import PostgresOptions
from loomlog.services.cli.stack import readiness
from loomlog.services.cli.stack.readiness import ClaimProbe, ProjectionProbe, http_probe


async def test_a_service_is_ready_when_it_says_so():
    replies = iter([httpx.Response(503, json={"missing": ["broker"]}), httpx.Response(200)])
    async with httpx.AsyncClient(transport=httpx.MockTransport(lambda request: next(replies))) as probes:
        ready = http_probe(probes, "http://x.test/readyz")
        assert await ready() == 'http://x.test/readyz answers 503: {"missing":["broker"]}'
        assert await ready() is None


async def test_a_service_that_does_not_listen_yet_says_so():
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    async with httpx.AsyncClient(transport=httpx.MockTransport(refuse)) as probes:
        assert await http_probe(probes, "http://x.test/")() == "http://x.test/ does not answer: ConnectError"


class Ranges:
    """The ends of partitions, as a broker would say them."""

    def __init__(self, options: Any) -> None:
        self.ends = {0: 5, 1: 0}
        self.closed = 0
        self.error: Exception | None = None

    async def start(self) -> None:
        pass

    async def end_offset(self, topic: str, partition: int) -> int:
        if self.error is not None:
            raise self.error
        return self.ends[partition]

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture
async def claimed(monkeypatch):
    monkeypatch.setattr(readiness, "KafkaRanges", Ranges)
    monkeypatch.setattr(readiness, "PROBE_INTERVAL_S", 0.0)
    probe = ClaimProbe(KafkaOptions(bootstrap="k.test:1"), 2)
    await probe.start()
    return probe, probe._ranges


async def test_a_runtime_is_ready_when_every_partition_has_grown(claimed):
    actual, ranges = claimed
    assert await actual.check() == "partition 0, 1 of loom.run.events has no owner yet"
    ranges.ends[1] += 1
    assert await actual.check() == "partition 0 of loom.run.events has no owner yet"
    ranges.ends[0] += 1
    assert await actual.check() is None
    assert ranges.closed == 1


async def test_once_ready_nobody_is_asked_again(claimed):
    actual, ranges = claimed
    ranges.ends = {0: 6, 1: 1}
    assert await actual.check() is None
    ranges.error = AssertionError("asked again")
    assert await actual.check() is None


async def test_a_broker_that_is_away_is_the_reason(claimed):
    actual, ranges = claimed
    ranges.error = Transient("the broker is away", kind="unavailable")
    assert await actual.check() == "the broker is away"


class Row:
    def __init__(self, state: str, at: datetime) -> None:
        self.state = state
        self.at = at


class Reader:
    closed = False

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def status(monkeypatch) -> list[Any]:
    """Rows of projector_status, or an error, as the next question finds them."""
    answers: list[Any] = []

    async def opened(*_: Any, **__: Any) -> Reader:
        return Reader()

    async def read(reader: Reader) -> list[Row]:
        assert not reader.closed
        actual = answers[0]
        if isinstance(actual, Exception):
            raise actual
        return actual

    async def has(reader: Reader) -> bool:
        return answers[0] is not None

    monkeypatch.setattr(readiness, "open_reader", opened)
    monkeypatch.setattr(readiness, "has_status", has)
    monkeypatch.setattr(readiness, "read_status", read)
    return answers


async def projecting(*, same_clock: bool) -> ProjectionProbe:
    probe = ProjectionProbe(PostgresOptions(dsn="postgresql://p"), same_clock=same_clock)
    await probe.start()
    return probe


async def test_a_projector_is_ready_when_it_has_said_so_since_the_start(status):
    probe = await projecting(same_clock=True)
    long_ago = datetime.now(UTC) - timedelta(minutes=5)
    status.append(Permanent("no table", kind="not_found"))
    assert await probe.check() == "its tables cannot be read: no table"
    for rows in (None, [], [Row("projecting", long_ago)], [Row("standing by", datetime.now(UTC))]):
        status[0] = rows
        assert await probe.check() == "it has not said yet that it projects"
    status[0] = [Row("projecting", datetime.now(UTC))]
    assert await probe.check() is None
    status[0] = AssertionError("asked again")
    assert await probe.check() is None


async def test_the_clock_of_another_machine_is_not_compared(status):
    probe = await projecting(same_clock=False)
    status.append([Row("projecting", datetime.now(UTC) - timedelta(hours=3))])
    assert await probe.check() is None
