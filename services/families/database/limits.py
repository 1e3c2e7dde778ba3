"""Bounds of databases: defaults are those of the reference (runtime 5.3), others bound one record or one row."""

from loomlog.schemas.records import Value
from loomlog.services.core.families import ITEMS_MAX

DEPTH_MAX = 16
"""Transactions inside of each other; the state has a savepoint for each."""
IDLE_MS_MAX = 3_600_000
TRANSACTION_CHANGES_MAX = 10_000
"""Changes of an open transaction: a rollback removes their rows in one decision."""
CHANGES_PER_COPY = 1_000
"""Changes after which the writer adds a full copy: a process without the file reads so many rows at most."""
COPY_AFTER_BYTES = 8 * 1024 * 1024
"""Packed bytes of changes, or the size of the database if that is more, after which it adds one earlier."""
ROWS_PER_EVENT = ITEMS_MAX
PAGE_COUNT_MAX = 2**31
INLINE_BYTES = 64 * 1024
"""Packed pages in an event; more of them go to the blob store."""
BLOBS_MAX = 1_000
"""Blobs of one change or copy, 4 MiB of pages each."""
CHAIN_DIGITS = 64
RUN_IDLE_MS = 7 * 24 * 3_600_000
"""Time without a change after which the database of a tree of runs is dropped by its timer. A tree that ends drops it
at once; this is for an owner that died just then. A run may wait for a person for a day, and be paused for longer.
"""


class SqlLimits(Value, frozen=True, kw_only=True):
    """What the operator sets (SQLMEM_)."""

    rows_max: int = 10_000
    statement_s: float = 30.0
    idle_s: float = 30.0
    transactions_max: int = 64
    """Open transactions that this process began."""
    depth_max: int = DEPTH_MAX
    quota_bytes: int = 50 * 1024 * 1024
    """Size of a database, unless its agent has a smaller bound, or one of a file."""
    busy_wait_s: float = 5.0
    """How long a statement waits for another one, or for another transaction."""
    files_max: int = 200
    files_bytes_max: int = 1024 * 1024 * 1024
    """Files of databases that a process has at a time, and their bytes; others are made again from the log."""
