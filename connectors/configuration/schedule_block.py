"""The block `scheduled_runs` of the files: runs that start at given times. A definition of a schedule is one too.

Before: field_types.py, trigger_block.py. After: model.py; connectors/definitions/schedule.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field

from loomlog.connectors.configuration.field_types import (
    FORBID_EXTRA,
    AgentName,
    EnvName,
    NonNegativeInt,
    StringList,
    Switch,
)
from loomlog.connectors.configuration.trigger_block import CompletionHook, CredentialReference
from loomlog.connectors.cron import CATCH_UP_MAX, JITTER_MS_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptBlock:
    """A text of a prompt. `kind`: where an untrusted text comes from."""

    __pydantic_config__ = FORBID_EXTRA
    type: Literal["trusted-text", "untrusted-block"]
    text: str
    kind: str = ""
    cacheable: Switch = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSegment:
    """A part of a prompt with one role."""

    __pydantic_config__ = FORBID_EXTRA
    role: Literal["system", "user"]
    content: Annotated[tuple[PromptBlock, ...], Field(min_length=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleBlock:
    """Value of scheduled_runs.<name>. `enabled` None: true for one made at run time, false for one in a file."""

    __pydantic_config__ = FORBID_EXTRA
    agent: AgentName
    prompt: tuple[PromptSegment, ...] = ()
    schedule: str = ""
    user_tier_schedules: Mapping[str, str] = field(default_factory=dict)
    timezone: str = ""
    enabled: Switch | None = None
    overlap: Literal["skip", "queue_one", "cancel", "allow"] = "skip"
    catch_up_max: Annotated[NonNegativeInt, Field(le=CATCH_UP_MAX)] = 1
    jitter_ms: Annotated[NonNegativeInt, Field(le=JITTER_MS_MAX)] = 0
    max_fires: NonNegativeInt = 0
    user_id: str = ""
    user_tier: str = ""
    required_credentials: StringList = ()
    user_credentials: Mapping[str, CredentialReference] = field(default_factory=dict)
    user_credentials_from_env: Mapping[str, EnvName] = field(default_factory=dict)
    on_complete: tuple[CompletionHook, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    tenant_id: str = ""
    operator_key_restricted: Switch = False
    isolated: Switch = False
