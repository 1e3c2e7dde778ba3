from loomlog.connectors.configuration.concurrency_limits import ConcurrencyLimits, resolve_limits
from tests.connectors.configuration.conftest import Folder


def bounds(folder: Folder, text: str, environ: dict[str, str] | None = None) -> ConcurrencyLimits:
    loaded = folder.load(text, environ)
    return resolve_limits(loaded.configuration, loaded.settings)


def test_the_defaults_are_those_of_the_reference(folder: Folder):
    assert bounds(folder, "agents: {}") == ConcurrencyLimits(
        max_concurrent_runs=1_000,
        max_queue_depth=4_000,
        queue_timeout_ms=30_000,
        max_concurrent_runs_per_user=0,
        provider_queue_depth=4_000,
        provider_queue_timeout_ms=30_000,
    )


def test_the_environment_wins_over_the_file_and_the_file_over_the_defaults(folder: Folder):
    text = "concurrency: {max_concurrent_runs_per_user: 6, provider_queue_depth: 1, provider_queue_timeout_ms: 400}"
    assert bounds(folder, text).provider_queue_depth == 1
    limits = bounds(folder, text, {"LOOMCYCLE_PROVIDER_QUEUE_DEPTH": "0", "LOOMLOG_MAX_CONCURRENT_RUNS_PER_USER": "9"})
    assert (limits.provider_queue_depth, limits.max_concurrent_runs_per_user, limits.provider_queue_timeout_ms) == (
        0,
        9,
        400,
    )
