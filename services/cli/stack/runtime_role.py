"""Role of a runtime, as its metrics tell: owner of partitions, spare, or neither yet; and what waits for it.

A runtime serves its metrics on a port of its own choice, so the ports on which its process listens are tried.

Before: readiness.py, services/cli/doctor/status.py. After: services/runtime/telemetry/exposition.py.
"""

import re
from dataclasses import dataclass
from typing import Literal

from loomlog.services.cli.stack.liveness import read_responses

RoleName = Literal["owner", "spare", "idle"]
GAUGE = re.compile(rb"^loomlog_(partitions_owned|partitions_watched|ingress_lag_records) ([0-9.e+]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeRole:
    """`partitions`: those it owns, or those whose owner it watches as a spare. `ingress_lag`: deliveries and events of
    other producers that it has not carried out.
    """

    name: RoleName
    partitions: int
    ingress_lag: int = 0


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
    if b"partitions_owned" not in gauges:
        return None
    owned, watched = gauges[b"partitions_owned"], gauges.get(b"partitions_watched", 0)
    lag = gauges.get(b"ingress_lag_records", 0)
    if owned:
        return RuntimeRole(name="owner", partitions=owned, ingress_lag=lag)
    return RuntimeRole(name="spare" if watched else "idle", partitions=watched, ingress_lag=lag)
