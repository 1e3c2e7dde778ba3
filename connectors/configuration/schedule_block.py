"""The block `scheduled_runs` of the files: runs that start at given times. A definition of a schedule is one too.

Before: field_types.py, trigger_block.py. After: model.py; connectors/definitions/schedule.py.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Literal

from pydantic import Field

from loomlog.connectors.configuration.field_classes import BOUND, NEUTRAL, Bound, Grant, Order
from loomlog.connectors.configuration.field_types import (
    AgentName,
    EnvName,
    JsonObject,
    NonNegativeInt,
    StringList,
    Switch,
    configuration_block,
)
from loomlog.connectors.configuration.trigger_block import CompletionHook, CredentialReference
from loomlog.connectors.cron import CATCH_UP_MAX, JITTER_MS_MAX


@configuration_block
class PromptBlock:
    """A text of a prompt. `kind`: where an untrusted text comes from."""

    type: Literal["trusted-text", "untrusted-block"]
    text: str
    kind: str = ""
    cacheable: Switch = False


@configuration_block
class PromptSegment:
    """A part of a prompt with one role."""

    role: Literal["system", "user"]
    content: Annotated[tuple[PromptBlock, ...], Field(min_length=1)]


@configuration_block
class ScheduleBlock:
    """Value of scheduled_runs.<name>. `enabled` None: true for one made at run time, false for one in a file."""

    agent: Annotated[AgentName, Grant(order=Order.NAMES, held="agents")]
    prompt: Annotated[tuple[PromptSegment, ...], NEUTRAL] = ()
    schedule: Annotated[str, NEUTRAL] = ""
    user_tier_schedules: Annotated[Mapping[str, str], NEUTRAL] = field(default_factory=dict)
    timezone: Annotated[str, NEUTRAL] = ""
    enabled: Annotated[Switch | None, NEUTRAL] = None
    overlap: Annotated[Literal["skip", "queue_one", "cancel", "allow"], NEUTRAL] = "skip"
    catch_up_max: Annotated[NonNegativeInt, Field(le=CATCH_UP_MAX), Bound(counts_zero=True)] = 1
    jitter_ms: Annotated[NonNegativeInt, Field(le=JITTER_MS_MAX), NEUTRAL] = 0
    max_fires: Annotated[NonNegativeInt, BOUND] = 0
    user_id: Annotated[str, Grant(order=Order.USER, held="user")] = ""
    user_tier: Annotated[str, Grant(order=Order.SAME, held="user_tier")] = ""
    required_credentials: Annotated[StringList, NEUTRAL] = ()
    user_credentials: Annotated[Mapping[str, CredentialReference], Grant(order=Order.UNSET)] = field(
        default_factory=dict
    )
    user_credentials_from_env: Annotated[Mapping[str, EnvName], Grant(order=Order.UNSET)] = field(default_factory=dict)
    on_complete: Annotated[tuple[CompletionHook, ...], Grant(order=Order.HOOKS, held="hosts", of_origin=False)] = ()
    metadata: Annotated[JsonObject, NEUTRAL] = field(default_factory=dict)
    tenant_id: Annotated[str, NEUTRAL] = ""
    operator_key_restricted: Annotated[Switch, NEUTRAL] = False
    isolated: Annotated[Switch, NEUTRAL] = False
