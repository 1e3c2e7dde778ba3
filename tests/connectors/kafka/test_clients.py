import asyncio
from collections.abc import Collection

import pytest
from aiokafka.errors import KafkaConnectionError

from loomlog.connectors.kafka.clients import enable_rebootstrap, stop


class Client:
    """An AIOKafkaClient that was told `given` and knows `known`; brokers are `up` or not."""

    def __init__(self, *, given: set[str], known: set[str], up: set[str]) -> None:
        self.given, self.known, self.up = given, known, up
        self.asked = 0

    async def _metadata_update(self, cluster: object, topics: Collection[str]) -> bool:
        self.asked += 1
        return bool(self.known & self.up)

    async def bootstrap(self) -> None:
        if not self.given & self.up:
            raise KafkaConnectionError("Unable to bootstrap")
        self.known = set(self.up)


async def test_a_client_that_knows_only_brokers_that_are_gone_asks_where_it_began() -> None:
    client = Client(given={"1", "2", "3"}, known={"2"}, up={"1", "3"})
    enable_rebootstrap(client)
    assert await client._metadata_update(object(), ())
    assert client.known == {"1", "3"}


async def test_a_client_that_knows_a_broker_that_is_up_asks_nobody_else() -> None:
    client = Client(given={"1", "2", "3"}, known={"2"}, up={"2"})
    enable_rebootstrap(client)
    assert await client._metadata_update(object(), ())
    assert (client.known, client.asked) == ({"2"}, 1)


async def test_while_all_brokers_are_away_an_update_fails_and_may_be_tried_again() -> None:
    client = Client(given={"1", "2", "3"}, known={"2"}, up=set())
    enable_rebootstrap(client)
    assert not await client._metadata_update(object(), ())
    client.up = {"3"}
    assert await client._metadata_update(object(), ())


class Resting:
    """A consumer whose fetch rests after an error: stop() lets its cancellation out before the client is closed."""

    def __init__(self) -> None:
        self._client = self
        self.closed = False

    async def stop(self) -> None:
        resting = asyncio.create_task(asyncio.Event().wait())
        resting.cancel()
        await resting

    async def close(self) -> None:
        self.closed = True


async def test_the_cancellation_of_a_fetch_does_not_end_who_stops_its_consumer() -> None:
    consumer = Resting()
    await stop(consumer)
    assert consumer.closed


async def test_who_is_cancelled_while_stopping_a_consumer_stays_cancelled() -> None:
    consumer = Resting()
    closing = asyncio.create_task(stop(consumer))
    await asyncio.sleep(0)  # into stop()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert not consumer.closed
