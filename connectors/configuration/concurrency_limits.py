"""Limits on concurrent runs and calls: the file's `concurrency` block, overridden by settings.

Before: model.py, settings.py. After: the command layer (admission) and the runtime (queues of providers).
"""

from dataclasses import dataclass

from loomlog.connectors.configuration.model import Configuration
from loomlog.connectors.configuration.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ConcurrencyLimits:
    """Limits in force. 0 per user means no limit; the provider queue defaults to the queue of the installation."""

    max_concurrent_runs: int
    max_queue_depth: int
    queue_timeout_ms: int
    max_concurrent_runs_per_user: int
    provider_queue_depth: int
    provider_queue_timeout_ms: int


def resolve_limits(configuration: Configuration, settings: Settings) -> ConcurrencyLimits:
    """Return the limits of this installation."""
    concurrency = configuration.concurrency
    return ConcurrencyLimits(
        max_concurrent_runs=concurrency.max_concurrent_runs,
        max_queue_depth=concurrency.max_queue_depth,
        queue_timeout_ms=concurrency.queue_timeout_ms,
        max_concurrent_runs_per_user=_first_set(
            settings.max_concurrent_runs_per_user, concurrency.max_concurrent_runs_per_user
        ),
        provider_queue_depth=_first_set(
            settings.provider_queue_depth, concurrency.provider_queue_depth, concurrency.max_queue_depth
        ),
        provider_queue_timeout_ms=_first_set(
            settings.provider_queue_timeout_ms, concurrency.provider_queue_timeout_ms, concurrency.queue_timeout_ms
        ),
    )


def _first_set(*values: int | None) -> int:
    return next(value for value in values if value is not None)
