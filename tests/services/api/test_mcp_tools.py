"""Every tool that existing clients know: present, or why it is not."""

import re
from typing import Any

import pytest

from loomlog.services.api.mcp.operations import OPERATIONS
from loomlog.services.api.mcp.server import mcp_server
from loomlog.services.api.mcp.tools import McpTools
from loomlog.services.application.operations import product_operations
from tests.services.application.world import ACME, ADMIN_CALLER

MISSING = {
    "path": "there are no paths yet",
    "document": "there are no documents yet",
    "history": "there is no tool History yet",
}
TOOLS = re.findall(
    r"\w+",
    """
    spawn_run spawn_runs cancel_run get_run compact_run list_runs directory erasure register_agent
    unregister_agent list_agents memory channel channeldef agentdef skilldef teamdef mcpserverdef scheduledef
    webhookdef a2aservercarddef a2aagentdef memorybackenddef documentsourcedef operatortokendef volumedef
    credentialdef path document history evaluation context pause_runtime resume_runtime get_runtime_state
    resolve_probe create_snapshot list_snapshots get_snapshot export_snapshot delete_snapshot restore_snapshot
    interruption_resolve register_hook list_hooks delete_hook list_channels publish_channel subscribe_channel
    peek_channel ack_channel stream_user_run_states
    """,
)
OURS = {"approvals", "approve_call", "deny_call"}
"""Tools that existing clients do not know."""


def listed(caller: Any) -> set[str]:
    return {tool["name"] for tool in mcp_server("1").list_tools(caller, is_stateless=False)["tools"]}


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_is_present_or_its_feature_is_missing(name: str) -> None:
    assert (name in listed(ADMIN_CALLER)) == (name not in MISSING)


def test_there_are_52_and_those_of_ours() -> None:
    assert len(TOOLS) == 52
    assert listed(ADMIN_CALLER) - set(TOOLS) == OURS


def test_an_approval_over_mcp_says_so() -> None:
    place = {"run_id": "r_1", "approval_id": "intr_1"}
    target = McpTools((*product_operations(), *OPERATIONS), {}).find("approve_call", place, ACME)
    assert target is not None
    assert (target.operation.name, target.fields) == ("approvals.approve", {**place, "surface": "mcp"})


@pytest.mark.parametrize(
    ("tool", "arguments", "fields"),
    [
        ("erasure", {"subject": "ada"}, {"subject": "ada", "tenant": ADMIN_CALLER.tenant}),
        ("erasure", {"subject": "ada", "tenant": "umbrella"}, {"subject": "ada", "tenant": "umbrella"}),
        ("delete_hook", {"id": "hook_1"}, {"hook_id": "hook_1"}),
        ("create_snapshot", {"description": "now", "since_ts": "2026-01-01T00:00:00Z"},
         {"label": "now", "include_history_since": "2026-01-01T00:00:00Z"}),
    ],
)  # fmt: skip
def test_fields_have_the_names_of_the_tool(tool: str, arguments: Any, fields: Any) -> None:
    target = McpTools((*product_operations(), *OPERATIONS), {}).find(tool, arguments, ADMIN_CALLER)
    assert target is not None
    assert target.fields == fields


def test_an_erasure_without_op_is_a_report() -> None:
    target = McpTools((*product_operations(), *OPERATIONS), {}).find("erasure", {"subject": "ada"}, ADMIN_CALLER)
    assert target is not None
    assert target.operation.name == "erasure.report"
