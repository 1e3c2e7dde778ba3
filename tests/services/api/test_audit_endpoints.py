from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.services.api.serving import Served, Wire, frames_of, served
from tests.services.application.log.memory_access import memory_access
from tests.services.application.log.test_audits import SlowLog, log_with_signatures
from tests.services.application.world import until
from tests.services.core.audit.written import KEY, PARTITION, TOPIC

VERIFY = "/v1/_audit/verify"


@pytest_asyncio.fixture(loop_scope="session")
async def here(tmp_path: Path) -> AsyncIterator[Served]:
    access = memory_access(log_with_signatures(), {KEY.key_id: KEY.public})
    async with served(tmp_path, log_access=access) as made:
        yield made


async def test_a_verification_is_a_stream_that_ends_with_its_result(here: Served) -> None:
    answer = await here.client().post(VERIFY)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    result = frames_of(answer.text)[-1]
    assert (result.event, result.data["clean"], result.data["records"]) == ("result", True, 34)


async def test_a_part_is_verified_alone(here: Served) -> None:
    result = frames_of((await here.client().post(VERIFY, json={"partition": PARTITION, "channels": True})).text)[-1]
    assert [(one["topic"], one["partition"]) for one in result.data["partitions"]] == [
        ("loom.channel.events", PARTITION)
    ]


async def test_the_newest_checkpoints_are_listed(here: Served) -> None:
    (newest,) = (await here.client().get("/v1/_audit/checkpoints")).json()["checkpoints"]
    assert (newest["topic"], newest["signature"], newest["unsigned"]) == (TOPIC, "valid", 4)


@pytest.mark.parametrize(
    "body",
    [
        {"run_id": "r_1", "partition": 1},
        {"entities": True, "channels": True},
        {"since": "yesterday"},
        {"partition": -1},
        {"everything": True},
    ],
)
async def test_what_makes_no_sense_is_refused_before_anything_is_read(here: Served, body: dict[str, object]) -> None:
    answer = await here.client().post(VERIFY, json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


async def test_a_client_that_leaves_ends_its_verification_and_makes_room(tmp_path: Path) -> None:
    log = SlowLog(log_with_signatures())
    async with served(tmp_path, log_access=memory_access(log)) as made:
        wire = Wire(made.app, "POST", VERIFY).begin()
        await until(lambda: wire.status == 200)
        busy = await made.client().post(VERIFY)
        assert (busy.status_code, busy.json()["code"]) == (429, "backpressure")
        assert "retry-after" in busy.headers
        wire.leave()
        assert wire.task is not None
        await wire.done()
        log.released.set()
        assert frames_of((await made.client().post(VERIFY)).text)[-1].event == "result"
        assert made.service.shares.open_streams == 0
