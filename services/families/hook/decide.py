"""Decisions about hooks: what is no registration is refused, and so is the removal of a hook of another tenant.

Before: services/stream/entities/handler.py passes a command. After: state.py folds the event in every process.
"""

from collections.abc import Sequence
from typing import assert_never

from loomlog.schemas.generated.entity_events import CommandRefused
from loomlog.schemas.generated.hook_commands import RegisterHook, RemoveHook
from loomlog.schemas.generated.hook_events import HookRegistered, HookRemoved
from loomlog.schemas.records import copy_as
from loomlog.services.core.canonical import StateCodec
from loomlog.services.core.families import At
from loomlog.services.families.hook import limits
from loomlog.services.families.hook.state import (
    FAIL_MODES,
    PHASES,
    WILDCARD,
    Hook,
    HookEvent,
    HookTable,
    hook_of,
    with_hook,
)

HOOKS = StateCodec(Hook)

HookCommand = RegisterHook | RemoveHook


def decide(table: HookTable, command: HookCommand, at: At) -> Sequence[HookEvent | CommandRefused]:
    """Return the events that follow a command."""
    match command:
        case RegisterHook():
            event = copy_as(HookRegistered, command, by=at.caller)
            wrong = _registration_error(command) or _bounds_error(table, hook_of(event, at.caller, at.at_ms))
            return [CommandRefused(code="invalid_registration", message=wrong)] if wrong else [event]
        case RemoveHook(hook_id=hook_id, of_tenant=tenant):
            hook = table.find(hook_id)
            if hook is None or (tenant is not None and hook.tenant != tenant):
                return [CommandRefused(code="not_found", message=f"there is no hook {hook_id[:80]}")]
            return [HookRemoved(hook_id=hook_id, by=at.caller)]
        case _:
            assert_never(command)


def _registration_error(command: RegisterHook) -> str:
    """Return what is wrong with a registration by itself; empty if nothing is."""
    for field, name in (("hook_id", command.hook_id), ("owner", command.owner), ("name", command.name)):
        if not _is_name(name):
            return f"{field}: expected 1 to {limits.NAME_BYTES_MAX} bytes of printable characters"
    if command.tenant and not _is_name(command.tenant):
        return f"tenant: expected at most {limits.NAME_BYTES_MAX} bytes of printable characters"
    if command.phase not in PHASES:
        return f"phase is {command.phase[:60]!r}: expected pre or post"
    if command.fail_mode not in FAIL_MODES:
        return f"fail_mode is {command.fail_mode[:60]!r}: expected open or closed"
    if not 0 <= command.timeout_ms <= limits.TIMEOUT_MS_MAX:
        return f"timeout_ms is {command.timeout_ms}: expected 1 to {limits.TIMEOUT_MS_MAX}, or 0 for the default"
    if not command.callback_url or len(command.callback_url) > limits.URL_CHARACTERS_MAX:
        return f"callback_url: expected at most {limits.URL_CHARACTERS_MAX} characters"
    for field, names in (("agents", command.agents), ("tools", command.tools)):
        if len(names) > limits.NAMES_MAX:
            return f"{field}: {len(names)} entries, at most {limits.NAMES_MAX}"
    for agent in command.agents:
        if not _is_name(agent):
            return f"agents: {agent[:60]!r} is no name of an agent"
    for tool in command.tools:
        if not _is_name(tool) or WILDCARD in tool.removesuffix(WILDCARD):
            return f"tools: {tool[:60]!r}: expected a name, or the beginning of one and a star"
    return ""


def _is_name(text: str) -> bool:
    return 0 < len(text.encode()) <= limits.NAME_BYTES_MAX and text.isprintable()


def _bounds_error(table: HookTable, hook: Hook) -> str:
    """Return which bound the table with that hook would exceed; empty if none."""
    after = with_hook(table, hook).entries
    of_tenant = [entry for entry in after if entry.tenant == hook.tenant]
    if len(after) > len(table.entries):
        if len(of_tenant) > limits.HOOKS_PER_TENANT_MAX:
            return f"there are {limits.HOOKS_PER_TENANT_MAX} hooks already; remove one first"
        if len(after) > limits.HOOKS_MAX:
            return f"there are {limits.HOOKS_MAX} hooks of all tenants already; one must be removed first"
    size = sum(len(HOOKS.encode(entry)) for entry in of_tenant)
    if size > limits.TENANT_BYTES_MAX:
        return f"the hooks would have {size} bytes, at most {limits.TENANT_BYTES_MAX}: name fewer agents or tools"
    return ""
