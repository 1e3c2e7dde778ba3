"""How much callers may ask: what transports ask before each request and each stream.

Before: services/api. After: services/families/identity/quotas.py.
"""

from collections.abc import Callable
from typing import Protocol

from loomlog.services.core.access.decide import Caller


class CallerQuotas(Protocol):
    """Counts what callers do against their quotas. All raise Refused(tenant_quota_exhausted)."""

    def admit_call(self, caller: Caller) -> None:
        """Count a request."""
        ...

    def take_stream(self, caller: Caller) -> Callable[[], None]:
        """Count an open stream until what is returned is called."""
        ...
