"""A row for each version of a tenant's rules, so that earlier ones are found without a fold.

Before: the projection of entities. After: handlers.py.
"""

from collections.abc import Sequence

import orjson

from loomlog.schemas.generated.approvals_events import PolicySet
from loomlog.schemas.generated.values import Envelope
from loomlog.services.core.families import Item
from loomlog.services.families.approvals.state import TenantPolicy

VERSION_ITEM = "version"
DIGITS = 12
"""Digits of the id of a version, so that ids are in the order of the numbers."""


def version_id(version: int) -> str:
    """Return the id of the row of a version."""
    return f"{version:0{DIGITS}d}"


def items(policy: TenantPolicy, event: PolicySet, envelope: Envelope) -> Sequence[Item]:
    """Return the row of a version."""
    document = orjson.dumps(event.to_avro()).decode()
    return [Item(kind=VERSION_ITEM, id=version_id(event.version), number=float(event.version), document=document)]
