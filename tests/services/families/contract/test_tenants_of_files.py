"""A definition of the files that has a tenant of its own is used for no other tenant, whichever kind it is."""

import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import pytest

from loomlog.connectors.configuration.schedule_block import ScheduleBlock
from loomlog.connectors.configuration.secret_registry import NO_SECRETS
from loomlog.connectors.configuration.webhook_block import WebhookAuth, WebhookBlock
from loomlog.connectors.definitions import KINDS
from loomlog.services.families.definition import FAMILY
from loomlog.services.families.definition.table import DefinitionTable, file_definition
from loomlog.services.families.schedule.arming import ActiveSchedules, schedule_options
from loomlog.services.families.webhook.definition import WebhookDefinitions
from tests.services.entities import MemoryEntities
from tests.services.families.definition.volume_world import Process

OWNERS = {"of-acme": "acme", "of-default": "default"}
BLOCKS: Mapping[str, Any] = {
    "schedule": ScheduleBlock(agent="a", schedule="@hourly", enabled=True),
    "webhook": WebhookBlock(agent="a", auth=WebhookAuth(kind="none")),
}
"""A block of each kind whose definitions of files may have a tenant."""


async def schedule(table: DefinitionTable, blocks: Mapping[str, Any], tenant: str, name: str) -> Any:
    options = schedule_options(blocks, is_enabled=True, secrets=NO_SECRETS)
    return ActiveSchedules(table, cast(Any, None), options).resolve(tenant, name)


async def webhook(table: DefinitionTable, blocks: Mapping[str, Any], tenant: str, name: str) -> Any:
    definitions = WebhookDefinitions(table, blocks)
    found = [await definitions.find_owned(tenant, name, address=address) for address in ("", tenant, "acme", "globex")]
    assert len({one is None for one in found}) == 1
    return found[0]


USES: Mapping[str, Callable[..., Awaitable[Any]]] = {"schedule": schedule, "webhook": webhook}
"""By kind: what a tenant may use under a name without another proof."""


def test_every_kind_with_a_tenant_is_here() -> None:
    with_tenant = {
        name for name, kind in KINDS.items() if "tenant_id" in getattr(kind.block, "__dataclass_fields__", ())
    }
    assert with_tenant == BLOCKS.keys() == USES.keys()


@pytest.mark.parametrize("kind", sorted(BLOCKS))
async def test_a_file_of_one_tenant_is_of_no_use_to_another(kind: str) -> None:
    blocks = {name: dataclasses.replace(BLOCKS[kind], tenant_id=owner) for name, owner in OWNERS.items()}
    blocks["unnamed"] = BLOCKS[kind]
    files = {(kind, name): file_definition(kind, name, KINDS[kind].content_of(block)) for name, block in blocks.items()}
    table = Process(MemoryEntities(FAMILY), None, files).definitions
    for tenant in ("acme", "globex", "default"):
        usable = {name for name in blocks if await USES[kind](table, blocks, tenant, name) is not None}
        assert usable == {name for name in blocks if (OWNERS | {"unnamed": "default"})[name] == tenant}
