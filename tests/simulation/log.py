"""The simulated log: topics with partitions of records, each with the name of who wrote it.

It does what a broker's disk does and nothing else: it keeps what it was given, in order. What goes wrong on the way to
it is in broker.py.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence

from loomlog.connectors.protocols import ConsumerRecord, ProducerRecord
from loomlog.services.stream.family import Topics

TOPICS, ENTITIES = Topics.of("run"), Topics.of("entity")


class Record(ConsumerRecord, frozen=True):
    """A stored record, and who wrote it."""

    writer: str


class SimulatedLog:
    """All topics of a cluster. `landed` is called after every append, `grown` of a topic wakes its tails."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self.landed: Callable[[Sequence[Record]], None] = lambda records: None
        self.grown: dict[str, list[Callable[[], None]]] = defaultdict(list)
        self._records: dict[tuple[str, int], list[Record]] = defaultdict(list)
        self.clock_ms = clock_ms

    def records(self, topic: str, partition: int) -> list[Record]:
        return self._records[topic, partition]

    def append(self, topic: str, partition: int, outgoing: Sequence[ProducerRecord], writer: str) -> int:
        """One batch; the offset of its first record."""
        log = self._records[topic, partition]
        base, at_ms = len(log), self.clock_ms()
        log += [
            Record(topic, partition, offset, at_ms, record.key, record.value, record.headers, writer)
            for offset, record in enumerate(outgoing, start=base)
        ]
        self.landed(log[base:])
        for wake in self.grown[topic]:
            wake()
        return base
