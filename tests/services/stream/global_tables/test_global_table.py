import contextlib

import pytest

from loomlog.connectors.errors import Transient
from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import LogTail, ProducerRecord
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.stream_records import ModelMarked
from loomlog.services.stream.global_tables.global_table import GlobalTable, GlobalTables
from loomlog.services.stream.global_tables.providers import PROVIDERS

TOPIC = "providers"
CODEC = local_codec()
STALLED = ModelMarked(provider="p", model="m", mark="stalled", at_ms=1)


async def test_a_table_is_read_whole_when_it_is_opened_also_after_a_failed_attempt() -> None:
    log = MemoryLog({TOPIC: 1})
    log.put(TOPIC, 0, [ProducerRecord(key=None, value=CODEC.encode(STALLED))])
    starts = []

    async def open_tail(topic: str, offsets: object) -> LogTail:
        starts.append(offsets)
        if len(starts) == 1:
            raise Transient("no broker", kind="unavailable")
        return log.tail(topic, {0: 0})

    table = GlobalTable(CODEC, TOPIC, PROVIDERS)
    async with contextlib.AsyncExitStack() as stack:
        tables = GlobalTables(stack, log, open_tail)
        with pytest.raises(Transient):
            await tables.open(table)
        assert not tables.followers
        await tables.open(table)
        assert table.table.status("p", "m").is_stalled
        assert (list(tables.followers), starts) == ([TOPIC], [{0: 1}, {0: 1}])


async def test_an_empty_record_is_left_out_unless_the_fold_accepts_it() -> None:
    log = MemoryLog({TOPIC: 1})
    log.put(TOPIC, 0, [ProducerRecord(key=b"k", value=None), ProducerRecord(key=None, value=CODEC.encode(STALLED))])
    table = GlobalTable(CODEC, TOPIC, PROVIDERS)
    await table.catch_up(log)
    assert (table.next_offset, table.table.status("p", "m").is_stalled) == (2, True)


def test_an_invalid_record_of_this_process_is_refused() -> None:
    table = GlobalTable(CODEC, TOPIC, PROVIDERS)
    with pytest.raises(ValueError, match="odd"):
        table.apply_locally(ModelMarked(provider="p", model="m", mark="odd"))
