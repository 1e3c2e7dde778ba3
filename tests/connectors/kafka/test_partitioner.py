from aiokafka.partitioner import DefaultPartitioner

from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.schemas.ids import fresh_token


def test_a_key_belongs_where_kafkas_own_producers_put_it() -> None:
    for partitions in (1, 4, 7, 24):
        everywhere = list(range(partitions))
        for number in range(200):
            key = fresh_token(1_780_000_000_000 + number, number.to_bytes(10, "big")).encode()
            assert partition_of(key, partitions) == DefaultPartitioner()(key, everywhere, everywhere)


def test_known_hashes_of_the_java_client_come_out() -> None:
    # From Kafka's own test of murmur2 (UtilsTest): hash & 0x7fffffff, then modulo.
    for text, hashed in ((b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536)):
        assert partition_of(text, 1_000_003) == (hashed & 0x7FFFFFFF) % 1_000_003
