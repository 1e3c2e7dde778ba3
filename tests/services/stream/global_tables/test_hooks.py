from loomlog.connectors.kafka.memory_log import MemoryLog
from loomlog.connectors.protocols import ProducerRecord
from loomlog.schemas.codec import local_codec
from loomlog.schemas.generated.stream_records import HookRegistered, HookRemoved, ModelMarked
from loomlog.services.stream.global_tables.hooks import HookGlobalTable

TOPIC = "hooks"
CODEC = local_codec()


def hook(name: str, phase: str = "pre") -> HookRegistered:
    return HookRegistered(
        hook_id=f"h_{name}", tenant="acme", owner="ops", name=name, phase=phase, callback_url="http://x.example"
    )


def put(log: MemoryLog, *changes: HookRegistered | HookRemoved | ModelMarked) -> int:
    return log.put(TOPIC, 0, [ProducerRecord(key=None, value=CODEC.encode(change)) for change in changes])


async def known(log: MemoryLog) -> list[str]:
    board = HookGlobalTable(CODEC, TOPIC)
    await board.catch_up(log)
    return [one.name for one in board.table.entries.values()]


async def test_a_new_process_knows_what_was_registered_and_removed_before_it() -> None:
    log = MemoryLog({TOPIC: 1})
    put(log, hook("a"), hook("b"), HookRemoved(hook_id="h_a"))
    assert await known(log) == ["b"]


async def test_records_that_do_not_belong_there_hide_nothing() -> None:
    log = MemoryLog({TOPIC: 1})
    log.put(TOPIC, 0, [ProducerRecord(key=None, value=b"junk")])
    put(log, hook("odd", phase="during"), ModelMarked(provider="p", model="m", mark="stalled"), hook("a"))
    assert await known(log) == ["a"]
