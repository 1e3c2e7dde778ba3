"""The log on a Kafka-compatible broker, over aiokafka: tails, ranges, appends, and the group that proposes ownership.

Correctness does not depend on this package. A tail has no consumer group and its caller keeps the positions; an append
returns the broker's base offset, or raises UnknownOutcome when the outcome is unknown; the group only proposes who
should own which partition. Transactions are not used: only plain, idempotent producers write, so the offsets of an
events partition are dense.

    options.py      how to reach the broker, and the limits of every client
    appender.py     appends batches to partitions; tail.py: follows a topic. Both use aiokafka's connections and record
                    format with a request loop of our own, because its producer and consumer cost twice the CPU
    ranges.py       reads the past, one range at a time; group.py, assignment.py: proposed ownership; on its consumer
    clients.py      starts clients, and adds what aiokafka's lack to survive the loss of their brokers
    broker_time.py  what time it is at the broker
    admin.py        counts the partitions of a topic, deletes records

Not chosen: confluent-kafka (its asyncio producer cannot send headers).
"""

from loomlog.connectors.kafka.admin import count_partitions, delete_records
from loomlog.connectors.kafka.appender import KafkaAppender
from loomlog.connectors.kafka.group import KafkaGroup
from loomlog.connectors.kafka.options import MAX_BATCH_BYTES, KafkaOptions
from loomlog.connectors.kafka.ranges import KafkaRanges, RangeIterator, open_ranges
from loomlog.connectors.kafka.tail import KafkaTail, open_tail

__all__ = [
    "MAX_BATCH_BYTES",
    "KafkaAppender",
    "KafkaGroup",
    "KafkaOptions",
    "KafkaRanges",
    "KafkaTail",
    "RangeIterator",
    "count_partitions",
    "delete_records",
    "open_ranges",
    "open_tail",
]
