"""Starting runs by producing records: no API is called. Needs aiokafka.

Once the broker has acknowledged the record the run will start, whatever happens to this program or to loomlog. The
record carries the id of its run, so sending it again is harmless.

Before: programs of users. After: schemas/producer.py, aiokafka.
"""

from typing import Any, NamedTuple, Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from loomlog.connectors.client.errors import Unreachable
from loomlog.schemas.producer import COMMANDS_TOPIC, start_run_record


class StartedRun(NamedTuple):
    """A run whose start is in the log."""

    run_id: str
    position: str
    """`topic/partition/offset` of the command."""


class RunProducer:
    """Produces StartRun records: `async with RunProducer("127.0.0.1:19092") as producer`.

    `subject` names the requesting service; `options` are those of AIOKafkaProducer.
    """

    def __init__(self, bootstrap: str, *, subject: str = "", topic: str = COMMANDS_TOPIC, **options: Any) -> None:
        self._bootstrap = bootstrap
        self._subject = subject
        self._topic = topic
        # aiokafka's default partitioner is Kafka's own (murmur2): the key decides the partition, whose owner decides
        # about the run. acks="all" is what makes "accepted" mean durable.
        self._producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, **options)

    async def __aenter__(self) -> Self:
        try:
            await self._producer.start()
        except KafkaError as error:
            await self._producer.stop()
            raise Unreachable(f"the broker at {self._bootstrap} does not answer: {error}") from error
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._producer.stop()

    async def start_run(self, agent: str, prompt: str = "", **fields: Any) -> StartedRun:
        """Start a run; `fields` are those of `start_run_record`, such as `tenant` and `idempotency_key`.

        Raises Unreachable when the record is not acknowledged: it may be in the log nevertheless, so repeat it with the
        same `run_id` or `idempotency_key`. Raises ValueError for an invalid id or a missing prompt.
        """
        record = start_run_record(**{"agent": agent, "prompt": prompt, "subject": self._subject, **fields})
        try:
            sent = await self._producer.send_and_wait(
                self._topic, key=record.key, value=record.value, headers=record.headers
            )
        except KafkaError as error:
            raise Unreachable(
                f"the start of {record.run_id} was not acknowledged ({type(error).__name__}: {error}); "
                "it may be in the log nevertheless"
            ) from error
        return StartedRun(record.run_id, f"{sent.topic}/{sent.partition}/{sent.offset}")
