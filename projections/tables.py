"""Common parts of all projection tables: the MetaData, the JSON column, the scope of a query, page tokens.

Tables carry no schema: each build of the projections lives in a Postgres schema of its own
(projections/engine/builds.py), readers go through the views of the live build. A row is a named tuple, its fields are
the columns in order: `define_table` makes the table from it, and it is handed to the driver as it is.

JSON columns are Postgres `json`, not `jsonb`: written once and read whole, they keep key order and bytes (what was
streamed is what is stored, to the byte), they take \\u0000 and lone surrogates, which models do produce and jsonb
refuses, and they cost less to write. In Python they are JSON text, read and written; the connections of
loomlog.connectors.storage.postgres do not parse them.

Before: projections/engine/projection.py and the API.
"""

import base64
import binascii
from collections.abc import Collection, Sequence
from enum import Enum
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Float,
    Index,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    any_,
    literal,
    true,
)
from sqlalchemy.types import TypeEngine, UserDefinedType

metadata = MetaData()
"""The tables of one build of the projections of runs."""
entity_metadata = MetaData()
"""The tables of one build of the projection of entities."""


class JsonText(UserDefinedType[str]):
    """A `json` column that is a str in Python."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "JSON"


class BytesText(Text):
    """A `text` column in the order of its bytes, whatever the collation of the database: its index finds prefixes."""

    def __init__(self) -> None:
        super().__init__(collation="C")


Json = Annotated[str, JsonText]
"""A field of a row that holds JSON text."""
OrderedText = Annotated[str, BytesText]
"""A field of a row by whose beginnings rows are listed."""
COLUMN_TYPES: dict[Any, type[TypeEngine[Any]]] = {
    str: Text,
    int: BigInteger,
    bool: Boolean,
    float: Float,
    bytes: LargeBinary,
    Json: JsonText,
    OrderedText: BytesText,
}


def define_table(
    name: str,
    row: type[Any],
    *indexes: Index,
    key: Sequence[str],
    fillfactor: int = 100,
    metadata: MetaData = metadata,
) -> Table:
    """The table whose columns are the fields of a named tuple. `fillfactor` below 100 leaves room for updates."""
    columns = []
    for field, hint in get_type_hints(row, include_extras=True).items():
        is_whole = get_origin(hint) in (Annotated, Literal)
        kinds = [hint] if is_whole else [k for k in get_args(hint) or [hint] if k is not NoneType]
        kind = str if get_origin(kinds[0]) is Literal else kinds[0]
        columns.append(Column(field, COLUMN_TYPES[kind](), nullable=NoneType in get_args(hint)))
    options = {"fillfactor": fillfactor}
    return Table(name, metadata, *columns, PrimaryKeyConstraint(*key), *indexes, postgresql_with=options)


def in_schema(table: Table, schema: str) -> Table:
    """The table in that schema; without one, in the schema that the reader searches."""
    return table.to_metadata(MetaData(), schema=schema) if schema else table


class EveryTenant(Enum):
    """The scope of an operator's query across tenants. A type of its own, so that a forgotten value cannot mean it."""

    EVERY_TENANT = "every tenant"


EVERY_TENANT = EveryTenant.EVERY_TENANT
Scope = str | EveryTenant


def in_scope(column: ColumnElement[str], scope: Scope) -> ColumnElement[bool]:
    """The WHERE condition for a tenant, or for all tenants."""
    return true() if isinstance(scope, EveryTenant) else column == scope


def one_of(column: ColumnElement[Any], values: Collection[Any]) -> ColumnElement[bool]:
    """The WHERE condition that the column has one of the values. They are one parameter, so that the statement has the
    same text for any number of them, and is compiled once (connectors/storage/postgres.py). A single one is compared,
    because only then an index gives the rows in the order of its further columns.
    """
    of = Text() if isinstance(column.type, Text) else column.type
    condition: ColumnElement[bool] = column == (
        next(iter(values)) if len(values) == 1 else any_(literal(list(values), ARRAY(of)))
    )
    return condition


class InvalidPageToken(ValueError):
    """A page token that the list did not issue."""


def page_token(*parts: object) -> str:
    """An opaque token for a position in a sorted list, from the sort keys of the last row shown."""
    return base64.urlsafe_b64encode("\n".join(map(str, parts)).encode()).decode().rstrip("=")


def parse_page_token(token: str, count: int) -> list[str]:
    """The sort keys in a token. Raises InvalidPageToken."""
    try:
        parts = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True).decode().split("\n")
    except (binascii.Error, UnicodeDecodeError, ValueError) as error:
        raise InvalidPageToken(f"{token[:80]!r} is not a page token: use `next` of an earlier answer") from error
    if len(parts) != count or any("\x00" in part for part in parts):
        raise InvalidPageToken(f"{token[:80]!r} is not a page token of this list: use `next` of an earlier answer")
    return parts


def parse_token_number(part: str) -> int:
    """A number in a token. Raises InvalidPageToken."""
    try:
        return int(part)
    except ValueError as error:
        raise InvalidPageToken(
            f"{part[:20]!r} in a page token is not a number: use `next` of an earlier answer"
        ) from error
