"""What the process knows of the providers of models.

Before: services/runtime/process.py provides it. After: services.py of families that tell others of it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from loomlog.services.core.availability import AvailabilityTable


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderAvailability:
    """The providers and models of the process."""

    table: Callable[[], AvailabilityTable]
    """Returns what is known now; another object once something has changed."""
