"""Role of a runtime, as its metrics tell: owner of partitions, spare, or neither yet; and what waits for it.

A runtime serves its metrics on a port of its own choice, so the ports on which its process listens are tried.

Before: readiness.py, services/cli/doctor/status.py. After: services/runtime/telemetry/exposition.py.
"""

import re
from dataclasses import dataclass
from typing import Literal

from loomlog.services.cli.stack.liveness import read_responses

RoleName = Literal["owner", "spare", "idle"]
GAUGE = re.compile(
    rb"^loomlog_(partitions_owned|partitions_watched|ingress_lag_records|clock_offset_seconds|clock_believed) "
    rb"([0-9.e+-]+)$",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeRole:
    """`partitions`: those it owns, or those whose owner it watches as a spare. `ingress_lag`: deliveries and events of
    other producers that it has not carried out. `clock_offset_s`: by how much its clock is ahead of the broker's, while
    that keeps it from owning anything; None while its clock is believed.
    """

    name: RoleName
    partitions: int
    ingress_lag: int = 0
    clock_offset_s: float | None = None

    @property
    def clock_problem(self) -> str:
        """Why its clock keeps it from owning anything; empty when it does not."""
        if self.clock_offset_s is None:
            return ""
        if not self.clock_offset_s:
            return "its clock could not be compared with the broker's yet; its log says why"
        direction = "ahead of" if self.clock_offset_s > 0 else "behind"
        return f"its clock is {abs(self.clock_offset_s):,.0f} s {direction} the broker's, so it decides nothing"


async def read_role(pid: int) -> RuntimeRole | None:
    """Return the role of the runtime with that process id; None without metrics, or when it does not answer."""
    for page in await read_responses(pid):
        role = parse_role(page)
        if role is not None:
            return role
    return None


def parse_role(page: bytes) -> RuntimeRole | None:
    """Return the role in a page of metrics; None when it is no such page."""
    gauges = {name: float(value) for name, value in GAUGE.findall(page)}
    if b"partitions_owned" not in gauges:
        return None
    owned, watched = int(gauges[b"partitions_owned"]), int(gauges.get(b"partitions_watched", 0))
    is_believed = gauges.get(b"clock_believed", 1.0) == 1.0
    return RuntimeRole(
        name="owner" if owned else "spare" if watched else "idle",
        partitions=owned or watched,
        ingress_lag=int(gauges.get(b"ingress_lag_records", 0)),
        clock_offset_s=None if is_believed else gauges.get(b"clock_offset_seconds", 0.0),
    )
