"""Check that a command is under the key of its run, in the partition of that key.

A record elsewhere was produced with another partitioner or another key. Its run would never be found there, so it is
refused and written to the dead letters with the reason.

Before: command_handler.py and start_handler.py, before they look for a run. After: a dead letter, or nothing.
"""

from loomlog.connectors.kafka.partitioner import partition_of
from loomlog.connectors.protocols import LogRecord
from loomlog.schemas.ids import ID_PATTERN, partition_key


def check_partition(
    record: LogRecord, run_id: str, partitions: int, *, related_id: str = "", related_kind: str = ""
) -> None:
    """Check a command's key and partition. `related_id` is the session or run (`related_kind`) whose partition the run
    must share; empty: none. Raises ValueError.
    """
    if not ID_PATTERN.match(run_id):
        raise ValueError(f"run_id {run_id!r}: expected 1 to 128 of A-Z a-z 0-9 _ -")
    key = (record.key or b"").decode(errors="replace")
    for what, name in (("run", run_id), (related_kind, related_id)):
        if name and partition_key(name) != key:
            raise ValueError(
                f"the record's key is {key!r}, but the {what} {name} belongs under {partition_key(name)!r}"
            )
    expected = partition_of(record.key or b"", partitions)
    if record.partition != expected:
        raise ValueError(
            f"the record is in partition {record.partition}, but its key belongs in {expected}: "
            "produce with the murmur2 partitioner"
        )
