"""A table of this installation beside the read models, in a schema that no rebuild of them touches.

Connections are opened when the table is used first, and the first write creates it. Most installations have none of
these tables, and a query of a missing one is an error in the server's log each time, so its existence is asked for.

Before: run_credentials.py, request_keys.py. After: postgres.py.
"""

from collections.abc import Sequence
from typing import Any

from psycopg import sql
from psycopg_pool import AsyncConnectionPool

from loomlog.connectors.errors import Permanent
from loomlog.connectors.storage.postgres import PostgresOptions, open_pool, translate_errors


class SideTable:
    """Executes statements in which `{}` is the table. All methods raise ConnectorError."""

    def __init__(
        self,
        options: PostgresOptions,
        *,
        schema: str,
        name: str,
        columns: str,
        about: str,
        lock_id: int,
        max_connections: int,
    ) -> None:
        """`columns`: their definitions, with `expires_at` among them, which gets an index. `about`: what the table has,
        for messages. `lock_id`: number of the advisory lock under which the table is created.
        """
        self._options = options
        self._schema = sql.Identifier(schema)
        self._table = sql.Identifier(schema, name)
        self._index = sql.Identifier(f"{name}_expire")
        self._columns = sql.SQL(columns)
        self._about = about
        self._lock_id = lock_id
        self._max_connections = max_connections
        self._pool: AsyncConnectionPool[Any] | None = None
        self._is_seen = False

    async def write(self, statement: sql.SQL, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return the rows of a statement; the table is created before where it is missing."""
        if not await self._exists():
            await self._create()
        try:
            return await self._execute(statement, values)
        except Permanent as error:
            if error.kind != "not_found":
                raise
            await self._create()  # it was dropped meanwhile
            return await self._execute(statement, values)

    async def read(self, statement: sql.SQL, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return the rows of a statement; none where the table is missing."""
        if not await self._exists():
            return []
        try:
            return await self._execute(statement, values)
        except Permanent as error:
            if error.kind != "not_found":
                raise
            return []

    async def close(self) -> None:
        """Close the connections."""
        if self._pool is not None:
            await self._pool.close()

    async def _exists(self) -> bool:
        if not self._is_seen:
            rows = await self._execute(sql.SQL("SELECT to_regclass(%s) IS NOT NULL"), (self._table.as_string(),))
            self._is_seen = bool(rows[0][0])
        return self._is_seen

    async def _execute(self, statement: sql.SQL, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        pool = await self._open_pool()
        async with translate_errors(f"reach {self._about}"), pool.connection() as connection:
            answer = await connection.execute(statement.format(self._table), values)
            return await answer.fetchall() if answer.description is not None else []

    async def _create(self) -> None:
        pool = await self._open_pool()
        async with (
            translate_errors(f"make the table of {self._about}"),
            pool.connection() as connection,
            connection.transaction(),
        ):
            # Two processes that create it at once would conflict in the catalog.
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (self._lock_id,))
            await connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(self._schema))
            await connection.execute(sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(self._table, self._columns))
            await connection.execute(
                sql.SQL("CREATE INDEX IF NOT EXISTS {} ON {} (expires_at)").format(self._index, self._table)
            )
        self._is_seen = True

    async def _open_pool(self) -> AsyncConnectionPool[Any]:
        if self._pool is None:
            self._pool = await open_pool(self._options, max_connections=self._max_connections, min_connections=0)
        return self._pool
