"""Events that are sent to others: verified, signed, in order, again until they are taken, and on after a death."""

import asyncio
import base64
import contextlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Mapping
from hashlib import sha256
from typing import Any

import pytest
import pytest_asyncio

from loomlog.connectors.crypto.installation_key import SecretKey
from loomlog.connectors.errors import Permanent, Transient
from loomlog.services.application.event_webhooks import SUBSCRIPTIONS_MAX, EndpointRefused, EventWebhooks
from loomlog.services.application.runs.requests import RunRequest
from loomlog.services.application.streaming.run_feed import ENDED
from loomlog.services.core.refusals import Refused
from tests.connectors.storage.memory import MemorySubscriptionRows
from tests.services.application.owner import WAIT_S
from tests.services.application.world import ACME, GLOBEX, World, until, world

URL = "https://hooks.example/in"
SECRET = "whsec_" + base64.b64encode(b"s" * 32).decode()


class Receiver:
    """Stands for the client that posts: what arrived, and how it is answered."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, Any], Mapping[str, str], bytes]] = []
        self.errors: list[Exception] = []
        self.echoes = True

    @property
    def runs(self) -> list[str]:
        return [body["data"]["run_id"] for body, _, _ in self.got]

    async def post(self, url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float) -> bytes:
        self._verify(body, headers)
        asked = json.loads(body)
        return json.dumps({"challenge": asked["challenge"] if self.echoes else "another"}).encode()

    async def notify(self, url: str, body: bytes, headers: Mapping[str, str], *, timeout_s: float) -> int:
        if self.errors:
            raise self.errors.pop(0)
        self._verify(body, headers)
        self.got.append((json.loads(body), headers, body))
        return 204

    def _verify(self, body: bytes, headers: Mapping[str, str]) -> None:
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        expected = base64.b64encode(hmac.new(b"s" * 32, signed, sha256).digest()).decode()
        assert headers["webhook-signature"] == f"v1,{expected}"

    async def close(self) -> None:
        """Nothing is open."""


@pytest_asyncio.fixture(loop_scope="session")
async def here() -> AsyncIterator[World]:
    async with world() as made:
        yield made


def process(here: World, receiver: Receiver, rows: MemorySubscriptionRows, name: str = "one") -> EventWebhooks:
    async def no_pause(seconds: float) -> None:
        await asyncio.sleep(0)

    return EventWebhooks(
        rows,
        SecretKey(keys=(b"k" * 32,)),
        receiver,  # type: ignore[arg-type]  # its two methods are all that is used
        here.layer.run_feed,
        private_hosts=("localhost",),
        process=name,
        clock_ms=lambda: time.time_ns() // 1_000_000,
        new_token=lambda: "challenge",
        sleep=no_pause,
    )


@contextlib.asynccontextmanager
async def delivering(webhooks: EventWebhooks) -> AsyncIterator[None]:
    task = asyncio.create_task(webhooks.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def subscribed(webhooks: EventWebhooks, caller: Any = ACME, **more: Any) -> Any:
    given = {"url": URL, "secret": SECRET, "cursor": None, "lifetime_s": 3_600.0, **more}
    return await webhooks.subscribe(caller, ENDED, {}, **given)


async def run_to_end(here: World, prompt: str = "go") -> str:
    started = await here.layer.runs.start(ACME, RunRequest(agent="soaker", prompt=prompt))
    while await started.stream.next() is not None:
        pass
    return started.run_id


async def test_events_are_sent_in_order_signed_and_under_their_ids(here: World) -> None:
    receiver, rows = Receiver(), MemorySubscriptionRows()
    webhooks = process(here, receiver, rows)
    made = await subscribed(webhooks)
    async with delivering(webhooks):
        runs = [await run_to_end(here) for _ in range(3)]
        await until(lambda: len(receiver.got) == 3)
    assert receiver.runs == runs
    body, headers, _ = receiver.got[0]
    assert (headers["webhook-id"], headers["X-MCP-Subscription-Id"]) == (body["eventId"], made.id)
    assert body["eventId"].startswith("loom.run.events/")


async def test_a_receiver_that_is_down_gets_everything_once_it_is_up(here: World) -> None:
    receiver, rows = Receiver(), MemorySubscriptionRows()
    webhooks = process(here, receiver, rows)
    made = await subscribed(webhooks)
    receiver.errors = [Transient("down", kind="network") for _ in range(6)]
    async with delivering(webhooks):
        runs = [await run_to_end(here) for _ in range(2)]
        await until(lambda: len(receiver.got) == 2)
    assert (receiver.runs, rows.kept[made.id].row.error) == (runs, "")


async def test_an_event_that_is_declined_is_passed_over(here: World) -> None:
    receiver, rows = Receiver(), MemorySubscriptionRows()
    webhooks = process(here, receiver, rows)
    await subscribed(webhooks)
    receiver.errors = [Permanent("gone", kind="refused", status=410)]
    async with delivering(webhooks):
        _, second = [await run_to_end(here) for _ in range(2)]
        await until(lambda: len(receiver.got) == 1)
    assert receiver.runs == [second]


async def test_another_process_goes_on_after_a_death_and_loses_nothing(here: World) -> None:
    receiver, rows = Receiver(), MemorySubscriptionRows()
    first, second = process(here, receiver, rows, "one"), process(here, receiver, rows, "two")
    await subscribed(first)
    async with delivering(first):
        runs = [await run_to_end(here)]
        await until(lambda: len(receiver.got) == 1)
    runs.append(await run_to_end(here))
    rows.drop("one")
    async with delivering(second):
        runs.append(await run_to_end(here))
        await until(lambda: len({body["eventId"] for body, _, _ in receiver.got}) == 3)
    assert list(dict.fromkeys(receiver.runs)) == runs


async def test_nothing_of_others_is_sent(here: World) -> None:
    receiver, rows = Receiver(), MemorySubscriptionRows()
    webhooks = process(here, receiver, rows)
    await subscribed(webhooks, caller=GLOBEX)
    mine = await subscribed(webhooks)
    async with delivering(webhooks):
        await run_to_end(here)
        await until(lambda: len(receiver.got) == 1)
    assert {headers["X-MCP-Subscription-Id"] for _, headers, _ in receiver.got} == {mine.id}


async def test_the_same_again_renews_and_keeps_the_place(here: World) -> None:
    rows = MemorySubscriptionRows()
    webhooks = process(here, Receiver(), rows)
    first = await subscribed(webhooks)
    await run_to_end(here)
    again = await subscribed(webhooks)
    assert (again.id, again.cursor) == (first.id, first.cursor)
    assert await webhooks.unsubscribe(ACME, ENDED, {}, url=URL)
    assert not await webhooks.unsubscribe(ACME, ENDED, {}, url=URL)


async def test_an_address_that_does_not_echo_gets_nothing(here: World) -> None:
    receiver, rows = Receiver(), MemorySubscriptionRows()
    receiver.echoes = False
    with pytest.raises(EndpointRefused) as refused:
        await subscribed(process(here, receiver, rows))
    assert (refused.value.reason, rows.kept) == ("challenge_failed", {})


@pytest.mark.parametrize(
    "more",
    [
        {"url": "http://hooks.example/in"},
        {"url": "ftp://hooks.example"},
        {"url": "https://"},
        {"url": "https://[::1"},
        {"url": "https://a/" + "x" * 3_000},
        {"secret": "hunter2"},
        {"secret": "whsec_c2hvcnQ="},
        {"secret": "whsec_!!!"},
        {"cursor": "forged"},
    ],
    ids=str,
)
async def test_what_is_wrong_is_refused(here: World, more: dict[str, Any]) -> None:
    with pytest.raises(Refused) as refused:
        await subscribed(process(here, Receiver(), MemorySubscriptionRows()), **more)
    assert refused.value.code == "bad_request"


async def test_a_principal_has_a_bounded_number(here: World) -> None:
    webhooks = process(here, Receiver(), MemorySubscriptionRows())
    for number in range(SUBSCRIPTIONS_MAX):
        await subscribed(webhooks, url=f"{URL}/{number}")
    with pytest.raises(Refused) as refused:
        await subscribed(webhooks)
    assert refused.value.code == "share_exhausted"
    async with asyncio.timeout(WAIT_S):
        await subscribed(webhooks, url=f"{URL}/1")
