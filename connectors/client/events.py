"""Events of runs from the log, by the term rule. Needs aiokafka.

    async with EventReader("127.0.0.1:19092", positions) as reader:
        async for batch in reader:
            for event in batch:
                record = event.decode().record
            save(reader.positions)         # after the work: a crash repeats work and loses none

Three things make a consumer correct:

- The term rule: late records of a fenced owner are in the topic too; `TermReader` (schemas/reader.py) leaves them out.
- Positions and the results up to them are saved together, after the work.
- The work is idempotent: event ids (`ids.event_id`) are the same at every delivery.

There is no consumer group: each reader keeps its own positions.

Before: programs of users. After: schemas/reader.py, aiokafka.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from loomlog.connectors.client.errors import ClientError, Unreachable
from loomlog.schemas.codec import Undecodable
from loomlog.schemas.producer import EVENTS_TOPIC
from loomlog.schemas.reader import RawEvent, TermReader

POLL_MS = 500
Positions = Mapping[str, Sequence[int]]
"""By partition: offset of the next record and the term in force there. Plain JSON."""


class EventReader:
    """Reads accepted events of all partitions from saved positions (or from the start), in batches, forever.

    `on_undecodable` receives topic, partition, offset and the error of a record that is unreadable (another program's,
    or a newer schema's); it is skipped.
    """

    def __init__(
        self,
        bootstrap: str,
        positions: Positions | None = None,
        *,
        topic: str = EVENTS_TOPIC,
        on_undecodable: Callable[[str, int, int, Exception], None] | None = None,
        **options: Any,
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._saved = positions or {}
        self._options = options
        self._on_undecodable = on_undecodable
        self._readers: dict[int, TermReader] = {}
        self._consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="none", **options)

    @property
    def positions(self) -> dict[str, list[int]]:
        """Positions after the last batch, to be saved with its results."""
        return {str(number): [reader.next_offset, reader.term] for number, reader in self._readers.items()}

    async def __aenter__(self) -> Self:
        try:
            await self._consumer.start()
            partitions = await self._partitions()
            self._consumer.assign(partitions)
            beginnings = await self._consumer.beginning_offsets(partitions)
        except KafkaError as error:
            await self._consumer.stop()
            raise Unreachable(f"the broker at {self._bootstrap} does not answer: {error}") from error
        except ClientError:
            await self._consumer.stop()
            raise
        for partition in partitions:
            offset, term = self._saved.get(str(partition.partition), (beginnings[partition], -1))
            self._readers[partition.partition] = TermReader(next_offset=offset, term=term)
            self._consumer.seek(partition, offset)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.stop()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[RawEvent]:
        """Return the next events; an empty batch when none came for half a second."""
        events: list[RawEvent] = []
        for partition, records in (await self._consumer.getmany(timeout_ms=POLL_MS)).items():
            reader = self._readers[partition.partition]
            for record in records:
                try:
                    event = reader.read(record.offset, record.value)
                except Undecodable as error:
                    if self._on_undecodable is not None:
                        self._on_undecodable(partition.topic, partition.partition, record.offset, error)
                    continue
                if event is not None:
                    events.append(event)
        return events

    async def _partitions(self) -> list[TopicPartition]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap, **self._options)
        await admin.start()
        try:
            (description,) = await admin.describe_topics([self._topic])
        finally:
            await admin.close()
        if description["error_code"]:
            raise ClientError(f"there is no topic {self._topic} at {self._bootstrap}")
        return [TopicPartition(self._topic, partition["partition"]) for partition in description["partitions"]]
