"""Commands of the database family for the contract suite."""

from collections.abc import Sequence
from typing import Any

from loomlog.connectors.sqlite.pages import GENESIS
from loomlog.schemas.generated.database_commands import (
    BeginTransaction,
    ChangeDatabase,
    DropDatabase,
    EndTransaction,
    PutCopy,
)
from loomlog.schemas.generated.values import BlobRef, CommandEnvelope, MemorySource

SOURCE = MemorySource(origin="agent_explicit", run_id="r_1")
QUOTA = 1_000_000


def chain(number: int) -> str:
    """A chain value for tests of rules; they never compute one."""
    return GENESIS if not number else f"{number:064x}"


def examples(envelope: CommandEnvelope) -> Sequence[Any]:
    """A database that grows, in transactions too, is copied, dropped, and grows again; one whose pages are a blob."""
    ada: dict[str, Any] = {"envelope": envelope, "scope": "user", "scope_id": "ada", "source": SOURCE}
    run: dict[str, Any] = ada | {"scope": "run", "scope_id": "r_1"}

    def change(base: int, after: int, **fields: Any) -> ChangeDatabase:
        made: dict[str, Any] = {
            **ada,
            "base_revision": base,
            "base_chain": chain(base),
            "chain": chain(after) if after else "",
            "page_count": 3,
            "pages": "cGFnZXM=",
            "packed_bytes": 6,
            "statement": "INSERT INTO t VALUES (1)",
            "quota_bytes": QUOTA,
        }
        return ChangeDatabase(**made | fields)

    def begin(root: str, **fields: Any) -> BeginTransaction:
        return BeginTransaction(**ada | fields, root_run_id=root)

    def end(root: str, committed: bool) -> EndTransaction:
        return EndTransaction(**ada, root_run_id=root, committed=committed)

    blob = BlobRef(sha256="0" * 64, size_bytes=70_000)
    return [
        change(0, 1),
        change(1, 2, rows_affected=1, last_insert_id=1),
        change(1, 3),
        change(2, 0),
        begin("r_1"),
        change(2, 3),
        change(2, 3, root_run_id="r_1"),
        begin("r_1"),
        change(3, 4, root_run_id="r_1"),
        begin("r_2"),
        end("r_1", False),
        end("r_1", True),
        end("r_1", True),
        begin("r_2"),
        change(3, 4, root_run_id="r_2"),
        end("r_2", False),
        PutCopy(
            envelope=envelope,
            scope="user",
            scope_id="ada",
            revision=3,
            chain=chain(3),
            copy_chain=chain(9),
            page_count=3,
            pages="Y29weQ==",
            packed_bytes=4,
        ),
        change(3, 4, page_count=5_000),
        change(-1, 0, refusal="sql_timeout"),
        DropDatabase(**run, reason="the run has ended"),
        change(0, 1, scope="run", scope_id="r_1", pages="", blobs=(blob,)),
        DropDatabase(**run, reason="the run has ended"),
        change(3, 4),
        begin("r_3", idle_ms=60_000),
        change(4, 5, root_run_id="r_3"),
    ]
