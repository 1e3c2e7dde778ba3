"""Checks of the block `scheduled_runs`: the rules of definitions of schedules, and what only files can be checked for.

Before: schedule_block.py. After: check.py.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from loomlog.connectors.configuration.findings import did_you_mean
from loomlog.connectors.configuration.schedule_block import ScheduleBlock
from loomlog.connectors.configuration.tree import KeyPath


def iter_schedule_errors(
    schedules: Mapping[str, ScheduleBlock], agents: Mapping[str, Any]
) -> Iterator[tuple[KeyPath, str]]:
    """Yield the place and the text of each mistake."""
    # Here, because the package of definitions is made of the blocks of this one.
    from loomlog.connectors.definitions import DefinitionProblem
    from loomlog.connectors.definitions.schedule import check_schedule

    for name, schedule in schedules.items():
        path: KeyPath = ("scheduled_runs", name)
        try:
            check_schedule(schedule)
        except DefinitionProblem as problem:
            yield path, str(problem)
        if schedule.agent not in agents:
            yield (*path, "agent"), f"there is no agent {schedule.agent}{did_you_mean(schedule.agent, agents)}"
