"""Record batches are compressed into what any Kafka reader decodes."""

import os

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from loomlog.connectors.kafka.compression import CODECS, compress_batch

VALUES = [b"run.events.ToolCallReturned " * 20 + bytes([number]) for number in range(30)]


def build(values: list[bytes]) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=7, producer_epoch=1, base_sequence=42,
        batch_size=1_000_000,
    )  # fmt: skip
    for number, value in enumerate(values):
        builder.append(number, 1_700_000_000_000, b"key", value, [("ce_id", b"c_1")])
    return bytes(builder.build())


@pytest.mark.parametrize("codec", CODECS)
def test_a_compressed_batch_has_the_same_records_and_a_valid_crc(codec: str) -> None:
    plain = build(VALUES)
    batch = DefaultRecordBatch(compress_batch(plain, codec))
    assert batch.validate_crc()
    assert (batch.compression_type, batch.producer_id, batch.base_sequence) == (CODECS[codec], 7, 42)
    assert [(record.key, record.value, record.headers) for record in batch] == [
        (b"key", value, [("ce_id", b"c_1")]) for value in VALUES
    ]


def test_repetitive_records_get_smaller_and_random_ones_stay_as_they_are() -> None:
    assert len(compress_batch(build(VALUES), "lz4")) < len(build(VALUES)) / 10
    random = build([os.urandom(2_000)])
    assert compress_batch(random, "lz4") == random
