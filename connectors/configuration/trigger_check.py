"""Checks of the blocks `scheduled_runs` and `webhooks`: the rules of their definitions, and what files alone need.

Before: schedule_block.py, webhook_block.py. After: check.py.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from loomlog.connectors.configuration.findings import did_you_mean
from loomlog.connectors.configuration.schedule_block import ScheduleBlock
from loomlog.connectors.configuration.tree import KeyPath
from loomlog.connectors.configuration.webhook_block import WebhookBlock


def iter_schedule_errors(
    schedules: Mapping[str, ScheduleBlock], agents: Mapping[str, Any]
) -> Iterator[tuple[KeyPath, str]]:
    """Yield the place and the text of each mistake."""
    # Here, because the package of definitions is made of the blocks of this one.
    from loomlog.connectors.definitions.schedule import check_schedule

    for name, schedule in schedules.items():
        yield from _iter_errors(("scheduled_runs", name), schedule, check_schedule, agents)


def iter_webhook_errors(
    webhooks: Mapping[str, WebhookBlock], agents: Mapping[str, Any]
) -> Iterator[tuple[KeyPath, str]]:
    """Yield the place and the text of each mistake."""
    from loomlog.connectors.definitions.webhook import check_webhook

    for name, webhook in webhooks.items():
        yield from _iter_errors(("webhooks", name), webhook, check_webhook, agents)


def _iter_errors(
    path: KeyPath, block: Any, check: Callable[[Any], None], agents: Mapping[str, Any]
) -> Iterator[tuple[KeyPath, str]]:
    """Yield what the rules of the definition refuse, and an agent that is not declared; a webhook may have none."""
    from loomlog.connectors.definitions import DefinitionProblem

    try:
        check(block)
    except DefinitionProblem as problem:
        yield path, str(problem)
    if block.agent and block.agent not in agents:
        yield (*path, "agent"), f"there is no agent {block.agent}{did_you_mean(block.agent, agents)}"
