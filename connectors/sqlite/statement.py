"""What a statement may be and do: its first word, its values, and what it touches.

Three lines of defence, because the statement is written by a model: the first word is one of a few, SQLite asks the
authorizer for every action that it compiles, and the connection itself has limits and neither extensions nor other
files (database.py).

Before: services/families/database/operations.py, database.py. After: apsw.
"""

import base64
import binascii
import math
import re
from array import array
from collections.abc import Sequence
from operator import mul
from typing import Any

import apsw

from loomlog.connectors.sqlite.errors import REFUSED, StatementRefused

STATEMENT_BYTES_MAX = 64 * 1024
"""Longest statement: it is in the event of its change, for audit. Values are bound and may be longer together."""
ARGS_MAX = 32_766
"""SQLITE_MAX_VARIABLE_NUMBER."""
READS = ("SELECT", "WITH")
WRITES = ("CREATE", "DROP", "ALTER", "INSERT", "UPDATE", "DELETE", "REPLACE", "WITH")
DEFINITIONS = frozenset({"CREATE", "DROP", "ALTER"})
"""First words of statements that affect no rows."""
SPACE = re.compile(r"(?:[ \t\n\f\r;]|--[^\n]*|/\*(?:[^*]|\*(?!/))*(?:\*/|\Z))*+")
"""Spaces, comments and semicolons."""
WORD = re.compile(r"[A-Za-z]+")
INTEGER_MAX = 2**63
EMBED, BLOB = "$embed", "$blob"
MODULES = frozenset({"fts5", "fts5vocab", "rtree", "rtree_i32", "geopoly"})
"""Virtual tables that keep their content in the file and read nothing else."""
PRAGMAS = frozenset({"data_version", "page_size"})
"""Read by FTS5 and R*Tree inside of other statements."""
FUNCTIONS_REFUSED = frozenset({"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit"})
ALLOWED = frozenset(
    {
        apsw.SQLITE_SELECT,
        apsw.SQLITE_READ,
        apsw.SQLITE_RECURSIVE,
        apsw.SQLITE_INSERT,
        apsw.SQLITE_UPDATE,
        apsw.SQLITE_DELETE,
        apsw.SQLITE_CREATE_TABLE,
        apsw.SQLITE_CREATE_INDEX,
        apsw.SQLITE_CREATE_TRIGGER,
        apsw.SQLITE_CREATE_VIEW,
        apsw.SQLITE_DROP_TABLE,
        apsw.SQLITE_DROP_INDEX,
        apsw.SQLITE_DROP_TRIGGER,
        apsw.SQLITE_DROP_VIEW,
        apsw.SQLITE_DROP_VTABLE,
        apsw.SQLITE_ALTER_TABLE,
        apsw.SQLITE_REINDEX,  # compiled for CREATE INDEX
    }
)
"""Actions on the database of the scope that need no look at their object."""
OWN_DATABASE = "main"
SCHEMA_OF_TEMPORARY = "sqlite_temp_master"
"""ALTER TABLE is compiled to reads and updates of this table, too; it is empty, and statements cannot name it."""


def check_statement(statement: Any, words: Sequence[str]) -> str:
    """Return the first word of a statement, in upper case. Raises StatementRefused unless it is one of `words`."""
    if not isinstance(statement, str):
        raise refused("statement: expected text")
    try:
        size = len(statement.encode())
    except UnicodeEncodeError as error:
        raise refused("statement: it has half a surrogate pair, which is no character") from error
    if size > STATEMENT_BYTES_MAX:
        raise refused(f"statement: {size} bytes, at most {STATEMENT_BYTES_MAX}; bind long values as args")
    if "\0" in statement:
        raise refused("statement: it has a NUL character; bind such a value as an arg")
    word = WORD.match(statement, _skip_space(statement))
    if word is None and _skip_space(statement) == len(statement):
        raise refused("statement: it is empty")
    first = word[0].upper() if word is not None else statement[_skip_space(statement) :][:20]
    if first not in words:
        raise refused(f"statement: {first} is not allowed here; expected {', '.join(words)}")
    return first


def check_rest(rest: str) -> None:
    """Refuse what follows a statement, unless it is space and comments."""
    if _skip_space(rest) < len(rest):
        raise refused("statement: expected one statement a call; use sql_begin and sql_commit for several")


def _skip_space(text: str) -> int:
    match = SPACE.match(text)
    return match.end() if match else 0


def refused(message: str) -> StatementRefused:
    """Return a refusal of the statement itself."""
    return StatementRefused(REFUSED, message)


# --- values ----------------------------------------------------------------------------------------------------------


def texts_to_embed(args: Any) -> list[str]:
    """Return the texts of args that are to be bound as vectors, in their order. Raises StatementRefused."""
    if args is None:
        return []
    if not isinstance(args, list | tuple):
        raise refused("args: expected a list of values, one for each ? of the statement")
    if len(args) > ARGS_MAX:
        raise refused(f"args: {len(args)} values, at most {ARGS_MAX}")
    return [_embed_text(arg[EMBED], place) for place, arg in enumerate(args) if _is_single(arg, EMBED)]


def _embed_text(text: Any, place: int) -> str:
    if not isinstance(text, str) or not text.strip():
        raise refused(f'args[{place}]: expected text in {{"{EMBED}": text}}')
    return _checked_text(text, place)


def _is_single(arg: Any, key: str) -> bool:
    return isinstance(arg, dict) and len(arg) == 1 and key in arg


def bind_values(args: Any, vectors: Sequence[Sequence[float]]) -> tuple[Any, ...]:
    """Return the values to bind; `vectors` are those of `texts_to_embed(args)`. Raises StatementRefused."""
    rest = iter(vectors)
    return tuple(
        encode_vector(next(rest)) if _is_single(arg, EMBED) else _value(arg, place)
        for place, arg in enumerate(args or ())
    )


def _value(arg: Any, place: int) -> Any:
    match arg:
        case None | bool():
            return None if arg is None else int(arg)
        case int() if -INTEGER_MAX <= arg < INTEGER_MAX:
            return arg
        case int():
            raise refused(f"args[{place}]: the number has more than 64 bits; bind it as text")
        case float() if math.isfinite(arg):
            return arg
        case float():
            raise refused(f"args[{place}]: expected a finite number, not {arg}")
        case str():
            return _checked_text(arg, place)
        case dict() if _is_single(arg, BLOB) and isinstance(arg[BLOB], str):
            try:
                return base64.b64decode(arg[BLOB], validate=True)
            except (binascii.Error, ValueError) as error:
                raise refused(f'args[{place}]: expected base64 in {{"{BLOB}": ...}}: {error}') from error
    expected = f'null, true, false, a number, text, {{"{EMBED}": text}} or {{"{BLOB}": base64}}'
    raise refused(f"args[{place}]: expected {expected}; pass lists and objects as JSON text")


def _checked_text(text: str, place: int) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise refused(f"args[{place}]: it has half a surrogate pair, which is no character") from error
    return text


def result_bytes(value: Any) -> int:
    """Return about how many bytes of JSON a value of a row is."""
    match value:
        case str():
            return len(value) if value.isascii() else len(value.encode())
        case bytes():
            return 4 * len(value) // 3
        case _:
            return 8


def result_value(value: Any) -> Any:
    """Return a value of a row as JSON."""
    match value:
        case bytes():
            return {BLOB: base64.b64encode(value).decode()}
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case _:
            return value


def encode_vector(vector: Sequence[float]) -> bytes:
    """Return a vector as little-endian float32."""
    return _little_endian(array("f", vector)).tobytes()


def _decode_vector(value: Any) -> "array[float] | None":
    if not isinstance(value, bytes) or not value or len(value) % 4:
        return None
    vector = array("f")
    vector.frombytes(value)
    return _little_endian(vector)


def _little_endian(vector: "array[float]") -> "array[float]":
    if IS_BIG_ENDIAN:
        vector.byteswap()
    return vector


IS_BIG_ENDIAN = array("H", [1]).tobytes()[0] == 0


def vector_distance(*vectors: Any) -> float | None:
    """Return the cosine distance, 0 to 2, of two vectors; None (NULL) for other values, other lengths and zeros."""
    one, other = map(_decode_vector, vectors)
    if one is None or other is None or len(one) != len(other):
        return None
    norms = math.sqrt(sum(map(mul, one, one))) * math.sqrt(sum(map(mul, other, other)))
    distance = 1 - sum(map(mul, one, other)) / norms if norms > 0 else math.nan
    return distance if math.isfinite(distance) else None


# --- actions ---------------------------------------------------------------------------------------------------------


def refused_action(action: int, first: str | None, second: str | None, database: str | None) -> str:
    """Return why SQLite must not compile an action; empty when it may. The parameters are those of an authorizer.

    What is not in the file is not in the log either, so an action on another database than OWN_DATABASE is refused
    whatever it is.
    """
    name = first if action == apsw.SQLITE_ALTER_TABLE else database
    if name not in (None, OWN_DATABASE) and not _is_compiled_by_alter(action, first):
        return f"the database {name} is not allowed, only {OWN_DATABASE}: nothing in it would be kept"
    if action in ALLOWED:
        return ""
    match action:
        case apsw.SQLITE_FUNCTION:
            return f"the function {second} is not allowed" if (second or "").lower() in FUNCTIONS_REFUSED else ""
        case apsw.SQLITE_CREATE_VTABLE:
            allowed = ", ".join(sorted(MODULES))
            return "" if (second or "").lower() in MODULES else f"virtual tables of {second} are not allowed: {allowed}"
        case apsw.SQLITE_PRAGMA:
            return "" if first in PRAGMAS and second is None else f"PRAGMA {first} is not allowed"
    action_name: Any = apsw.mapping_authorizer_function.get(action, action)
    return f"{str(action_name).removeprefix('SQLITE_').replace('_', ' ')} is not allowed"


def _is_compiled_by_alter(action: int, table: str | None) -> bool:
    return table == SCHEMA_OF_TEMPORARY and action in (apsw.SQLITE_READ, apsw.SQLITE_UPDATE)
