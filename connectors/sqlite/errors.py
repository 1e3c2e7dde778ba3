"""What a database refuses, and what is wrong with its file.

Before: database.py, statement.py raise them. After: services/families/database/operations.py answers with them.
"""

REFUSED, TIMEOUT, QUOTA = "sql_refused", "sql_timeout", "sql_quota_exceeded"


class StatementRefused(Exception):
    """The statement has changed nothing. `code` is REFUSED, TIMEOUT or QUOTA; the text says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def too_slow(timeout_s: float) -> StatementRefused:
    """Return the refusal of a statement that did not end at its deadline."""
    return StatementRefused(TIMEOUT, f"the statement took over {timeout_s:g} s and was stopped")


class FileFailed(Exception):
    """The file or its disk does not work, or the pages are not those of the chain; another file can be made."""


class FileDamaged(FileFailed):
    """SQLite calls the content of the file wrong. A statement can bring that about too, such as a check of an index."""
