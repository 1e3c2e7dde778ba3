"""What is called around tool calls: it may change a call before it is made, deny it, and change its result.

Before: services/runtime/tools/tool_calls.py asks for it. After: services/families/hook/runner.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from loomlog.schemas.generated.values import HookAct
from loomlog.schemas.records import Value


class HookedCall(Value, frozen=True, kw_only=True):
    """Facts about a call that its hooks receive, apart from its input."""

    tenant: str
    agent: str
    user_id: str
    agent_id: str
    run_id: str
    session_id: str
    turn: int
    index: int
    attempt: int
    call_id: str
    name: str
    effect_class: str
    """Effect class of the intent in the log."""


class HookedResult(Value, frozen=True, kw_only=True):
    """A result on its way through the hooks after a call."""

    text: str
    is_error: bool


@dataclass(slots=True, kw_only=True)
class PreHookResult:
    """Outcome of the hooks before a call."""

    input: Mapping[str, Any]
    denial: HookedResult | None = None
    added_hosts: list[str] = field(default_factory=list)
    """Entries for the allowed hosts of this one call."""
    acts: list[HookAct] = field(default_factory=list)


class HookChain(Protocol):
    """The hooks of one call, as registered when it began. Raises no errors of theirs."""

    @property
    def sees_results(self) -> bool:
        """Whether any is called after the call."""
        ...

    async def run_pre_hooks(
        self, call: HookedCall, arguments: Mapping[str, Any], classify_effect: Callable[[Mapping[str, Any]], str]
    ) -> PreHookResult:
        """Return the call as changed before it is made."""
        ...

    async def run_post_hooks(
        self, call: HookedCall, arguments: Mapping[str, Any], result: HookedResult
    ) -> tuple[HookedResult, Sequence[HookAct]]:
        """Return the changed result, and what was done to it."""
        ...


class ToolHooks(Protocol):
    """The hooks of a process."""

    def find_chain(self, tenant: str, agent: str, tool: str) -> HookChain | None:
        """Return the hooks to call; None when there are none."""
        ...
