"""The family of docs/FAMILIES.md, through every way in: command line, HTTP, Kafka, and the tool of an agent."""

import asyncio
import json
import os
import re
import signal

import httpx
import pytest

from loomlog.connectors.kafka import KafkaAppender, KafkaOptions
from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.counter_commands import IncrementCounter
from loomlog.schemas.generated.values import CommandEnvelope
from loomlog.services.core.families import aggregate_id, aggregate_key
from tests.acceptance.installation import REPOSITORY, Installation
from tests.services.api.answer_schemas import check_blocking_response

PAGE = REPOSITORY / "docs" / "FAMILIES.md"
COUNTER = REPOSITORY / "docs" / "examples" / "counter" / "counter.py"
DOCUMENTS = REPOSITORY / "docs" / "examples" / "documents" / "documents.py"
WAIT_S = 30.0


def api(stack: Installation) -> httpx.Client:
    return httpx.Client(
        base_url=f"http://{stack.environ['LOOMLOG_LISTEN_ADDR']}",
        timeout=WAIT_S,
        trust_env=False,
        event_hooks={"response": [check_blocking_response]},
    )


def value(stack: Installation, name: str) -> int:
    return int(stack.loomlog("counter", "show", name, "--json").json["state"]["value"])


def test_the_page_shows_what_is_in_the_examples() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) >= 9
    examples = [_lines(path.read_text()) for path in (COUNTER, DOCUMENTS)]
    for block in blocks:
        shown = [_lines(block) in example for example in examples]
        assert any(shown), f"docs/FAMILIES.md shows what no example has:\n{block}"


def test_the_counter_has_fewer_than_a_hundred_lines() -> None:
    assert len(COUNTER.read_text().splitlines()) < 100


def _lines(text: str) -> str:
    """Return the lines without indentation, and without what holds a part of a larger expression."""
    return "\n".join(line.strip() for line in text.splitlines() if line.strip() not in ("", "(", ")"))


@pytest.mark.stack
def test_a_counter_is_raised_by_the_command_line_http_and_a_tool_and_survives_its_owner(stack: Installation) -> None:
    done = stack.loomlog("counter", "increment", "--name", "page", "--by", "3", "--json").json
    assert (done["value"], done["position"].partition("/")[0]) == (3, "loom.entity.events")
    with api(stack) as client:
        answers = [
            client.post("/v1/_counter/increment", json={"name": "page", "by": 2}, headers={"Idempotency-Key": "once"})
            for _ in range(2)
        ]
        assert [answer.json()["value"] for answer in answers] == [5, 5]
        refused = client.post("/v1/_counter/increment", json={"name": "page", "by": 0})
        assert (refused.status_code, refused.json()["code"]) == (400, "bad_request")
    stack.loomlog("run", "tally", "page")
    assert value(stack, "page") == 10
    children = stack.loomlog("status", "--json").json["children"]
    os.kill(next(child["pid"] for child in children if child.get("role") == "owner"), signal.SIGKILL)
    assert stack.loomlog("counter", "increment", "--name", "page", "--by", "1", "--json").json["value"] == 11
    replayed = stack.loomlog("replay", "counter:default/page")
    assert "equal" in replayed.out


@pytest.mark.stack
async def test_a_counter_is_raised_by_a_record_of_a_service(stack: Installation) -> None:
    kafka = stack.loomlog("status", "--json").json["kafka"]
    appender = KafkaAppender(KafkaOptions(bootstrap=kafka))
    await appender.start()
    try:
        key = aggregate_key(aggregate_id("counter", "default", "service"))
        envelope = CommandEnvelope(command_id="from-a-service", tenant="default", subject="service")
        record = ProducerRecord(
            key=key, value=local_codec().encode(IncrementCounter(envelope=envelope, name="service", by=4))
        )
        partition = partition_of(key, await appender.partitions("loom.entity.commands"))
        for _ in range(2):  # a service that does not know whether its record arrived sends it again
            await appender.append("loom.entity.commands", partition, [record])
    finally:
        await appender.close()
    base_url = f"http://{stack.environ['LOOMLOG_LISTEN_ADDR']}"
    async with asyncio.timeout(WAIT_S):
        async with httpx.AsyncClient(base_url=base_url, trust_env=False) as client:
            while True:
                shown = await client.get("/v1/_counter/show", params={"id": "service"})
                if shown.status_code == 200:
                    break
    assert json.loads(shown.text)["state"]["value"] == 4


def test_an_unknown_module_is_said_to_be_so(stack: Installation) -> None:
    stack.environ["LOOMLOG_FAMILIES"] = "counter,nothing.of.the.kind"
    try:
        ended = stack.loomlog("agents", "check", code=2)
        assert "nothing.of.the.kind" in ended.out + ended.err
    finally:
        stack.environ["LOOMLOG_FAMILIES"] = "counter"
