"""Which subjects are confined to what is their own.

Before: services/runtime/process.py provides it. After: services.py of the families that act for runs by themselves.
"""

from typing import Protocol


class Isolation(Protocol):
    """Tells whether a subject of a tenant is confined to its own memory and channels."""

    def __call__(self, tenant: str, subject: str, /) -> bool: ...
