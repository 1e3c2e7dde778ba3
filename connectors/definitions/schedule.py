"""The kind schedule: runs that start at given times. One without a user is a template that is forked for each user.

Before: kind.py, cron.py, triggers.py. After: kinds.py.
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
from loomlog.connectors.definitions.cron import find_cron_problem, is_time_zone
from loomlog.connectors.definitions.kind import Kind
from loomlog.connectors.definitions.problems import DefinitionProblem
from loomlog.connectors.definitions.triggers import CompletionHook, CredentialReference, check_hooks


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
    """Content of a schedule. `enabled` None: true for one made at run time, false for one in a file."""

    __pydantic_config__ = FORBID_EXTRA
    agent: AgentName
    prompt: tuple[PromptSegment, ...] = ()
    schedule: str = ""
    user_tier_schedules: Mapping[str, str] = field(default_factory=dict)
    timezone: str = ""
    enabled: Switch | None = None
    catch_up_max: NonNegativeInt = 0
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


def _check(schedule: ScheduleBlock) -> None:
    times = {"schedule": schedule.schedule} if schedule.schedule else {}
    times |= {f"user_tier_schedules.{tier}": text for tier, text in schedule.user_tier_schedules.items()}
    if not times:
        raise DefinitionProblem("missing_field", "missing required field: schedule (or user_tier_schedules)")
    if schedule.schedule and schedule.user_tier_schedules:
        raise DefinitionProblem("invalid_definition", "schedule and user_tier_schedules: expected one of them")
    for path, text in times.items():
        if problem := find_cron_problem(text):
            raise DefinitionProblem("invalid_definition", f"{path}: {problem}")
    if schedule.timezone and not is_time_zone(schedule.timezone):
        raise DefinitionProblem("invalid_definition", "timezone: expected a name such as Europe/Berlin")
    check_hooks(schedule.on_complete)


SCHEDULE = Kind(
    name="schedule",
    tool="ScheduleDef",
    block=ScheduleBlock,
    file_only={"tenant_id": "a definition belongs to the tenant of its author"},
    server_set=frozenset({"operator_key_restricted", "isolated"}),
    alternatives=(frozenset({"schedule"}), frozenset({"user_tier_schedules"})),
    check=_check,
)
