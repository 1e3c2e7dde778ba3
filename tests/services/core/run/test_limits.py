"""The bounds and defaults that clients know (reference runtime 1.5-1.19, 3.4, 5.8, 5.10), and what of ours keeps them.

A row that changes is a change of what clients may rely on: then docs/decisions says why.
"""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.tools.agent import IDLE_TTL_S
from loomlog.services.core.run import limits
from loomlog.services.core.run.conversation import compaction

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


def default_of(record: Any, name: str) -> object:
    return next(field.default for field in fields(record) if field.name == name)


@pytest.mark.parametrize(
    ("ours", "known"),
    [
        # 1.5 turns
        (limits.MAX_ITERATIONS_DEFAULT, 16),
        (limits.ITERATIONS_BACKSTOP, 1 << 20),
        # 1.8 retries
        (limits.RETRY_ATTEMPTS_MAX, 5),
        (limits.RETRY_BACKOFF_MS, (100, 300, 900, 2_700, 8_100)),
        (limits.RATE_LIMIT_ATTEMPTS, 5),
        (limits.RATE_LIMIT_BACKOFF_MS, (10_000, 20_000, 40_000, 60_000, 120_000)),
        (limits.RETRY_WAIT_MAX_MS, 5 * MINUTE_MS),
        # 1.6 and 1.9 fallback
        (limits.FALLBACKS_DEFAULT, 3),
        (limits.FALLBACK_CAUSE_MAX, 200),
        # 1.11 tools of a turn
        (default_of(Settings, "tool_parallelism"), 8),
        # 1.12 steering
        (limits.MAX_WAITING_INPUTS, 16),
        # 1.17 and 3.4 sub-agents
        (limits.DEPTH_MAX, 3),
        (limits.SPAWNS_MAX, 32),
        (limits.RESIDENTS_MAX, 8),
        (limits.CANCEL_TURN_WAIT_MS, 15_000),
        (IDLE_TTL_S, 30 * 60),
        (limits.CONCURRENT_CHILDREN_DEFAULT, 4),
        (default_of(Settings, "max_interactive_children"), 8),
        (default_of(Settings, "interactive_child_idle_ttl_ms"), 30 * MINUTE_MS),
        # 5.8 compaction
        (compaction.DEFAULT_POLICY.enabled, False),
        (compaction.DEFAULT_POLICY.target_percentage, 10),
        (compaction.DEFAULT_POLICY.keep_last_n, 4),
        (compaction.DEFAULT_POLICY.keep_first, True),
        (compaction.DEFAULT_POLICY.autocompact_at_pct, 80),
        (limits.TARGET_PCT, (10, 50)),
        (limits.AUTO_PCT, (50, 95)),
        (limits.COMPACTION_MESSAGES_MIN, 4),
        (limits.COMPACTION_TAIL_PCT, 50),
        (limits.CHARACTERS_PER_TOKEN, 4),
    ],
)
def test_the_bounds_and_defaults_are_those_clients_know(ours: object, known: object) -> None:
    assert ours == known


def test_every_bound_says_why_it_is_there() -> None:
    """A name without a reason under it is a number nobody dares to change."""
    source = Path(limits.__file__).read_text().splitlines()
    names = [number for number, line in enumerate(source) if line[:1].isupper() and " = " in line]
    assert len(names) > 40
    assert [source[number] for number in names if not source[number + 1].startswith('"""')] == []


def test_the_bounds_agree_with_each_other() -> None:
    assert len(limits.RETRY_BACKOFF_MS) == limits.RETRY_ATTEMPTS_MAX
    assert len(limits.RATE_LIMIT_BACKOFF_MS) >= limits.RATE_LIMIT_ATTEMPTS - 1
    assert limits.LOSSES_MAX < limits.LOST_ATTEMPTS_MAX
