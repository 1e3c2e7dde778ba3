"""JSON of every refusal.

Before: services/api/responses.py. After: services/api/openapi.py.
"""

from typing_extensions import TypedDict


class Error(TypedDict):
    """A refusal. Further keys belong to the code."""

    code: str
    error: str
