"""The parameters of lists of runs, read and checked.

Before: operations and streams over runs. After: projections/run_queries.py.
"""

from loomlog.projections.run_queries import WAITS
from loomlog.services.application import limits
from loomlog.services.application.errors import bad_request
from loomlog.services.application.runs.requests import check_id
from loomlog.services.core.run.limits import AGENT_NAME

RUN_STATUSES = ("running", "completed", "failed", "cancelled")


def parse_statuses(value: str) -> frozenset[str]:
    """Parse `all`, or some of the four statuses separated by commas; empty means all. Raises Refused."""
    if value in ("", "all"):
        return frozenset()
    statuses = frozenset(part.strip() for part in value.split(","))
    if not statuses <= set(RUN_STATUSES):
        raise bad_request(
            f"status is {value!r}: expected all, or some of {', '.join(RUN_STATUSES)} with commas between"
        )
    return statuses


def check_waiting(waiting: str) -> str:
    """Return what live runs wait for; empty for any. Raises Refused."""
    if waiting and waiting not in WAITS:
        raise bad_request(f"waiting is {waiting[:60]!r}: expected one of {', '.join(WAITS)}")
    return waiting


def check_agent(agent: str) -> str:
    """Return the name of an agent; empty for any. Raises Refused."""
    if agent and not AGENT_NAME.match(agent):
        raise bad_request("agent: expected the name of an agent")
    return agent


def check_filter_id(name: str, value: str) -> str:
    """Return an id; empty for any. Raises Refused."""
    if value:
        check_id(name, value)
    return value


def part_of_id(text: str) -> str:
    """Return what an id begins or ends with. People type and paste it: what can be in no id finds nothing."""
    part = text.strip().strip("…")
    if len(part) > limits.NAME_BYTES_MAX:
        raise bad_request(f"id_part: expected at most {limits.NAME_BYTES_MAX} characters, these are {len(part)}")
    return part
