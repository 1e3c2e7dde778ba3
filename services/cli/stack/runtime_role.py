"""Role of a runtime, as its metrics tell: owner of partitions, spare, or neither yet.

A runtime serves its metrics on a port of its own choice, so the ports on which its process listens are tried.

Before: readiness.py, services/cli/doctor/status.py. After: services/runtime/telemetry/exposition.py.
"""

import re
from dataclasses import dataclass
from typing import Literal

from loomlog.services.cli.stack.liveness import read_responses

RoleName = Literal["owner", "spare", "idle"]
GAUGE = re.compile(rb"^loomlog_partitions_(owned|watched) ([0-9.]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeRole:
    """`partitions`: those it owns, or those whose owner it watches as a spare."""

    name: RoleName
    partitions: int


async def read_role(pid: int) -> RuntimeRole | None:
    """Return the role of the runtime with that process id; None without metrics, or when it does not answer."""
    for page in await read_responses(pid):
        role = parse_role(page)
        if role is not None:
            return role
    return None


def parse_role(page: bytes) -> RuntimeRole | None:
    """Return the role in a page of metrics; None when it is no such page."""
    gauges = {name: int(float(value)) for name, value in GAUGE.findall(page)}
    if b"owned" not in gauges:
        return None
    owned, watched = gauges[b"owned"], gauges.get(b"watched", 0)
    if owned:
        return RuntimeRole(name="owner", partitions=owned)
    return RuntimeRole(name="spare" if watched else "idle", partitions=watched)
