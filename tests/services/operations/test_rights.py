"""Where rights are decided: the modules that may ask for them, and those of transports that reach use cases by hand.

A line here is for review: another module decides twice what a declaration says, or serves what nothing has decided.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ASKING: Mapping[str, set[str]] = {
    # Whether a caller may ask for an operation, or for what is served by hand.
    "require_access": {
        "services/application/dispatch.py",
        "services/api/app.py",  # before it reads a body
        "services/api/client_endpoints.py",  # before a handshake
        "services/api/mcp/endpoint.py",  # a cancel, which is a message without an answer
        "services/api/mcp/operations.py",  # a call that a question ends, or that goes on with the answer
        "services/application/runs/start.py",  # the hooks of a run
        "services/grpc/front.py",  # before it reads a message
    },
    # Whether a run is open to a caller who sees it.
    "can_control": {"services/application/queries/runs.py"},
    # What is shown to a caller.
    "may_call": {
        "services/application/authentication.py",
        "services/api/mcp/tools.py",  # the tools that are listed
        "services/families/identity/user_handlers.py",  # what a user may call
    },
    "has_scope": {
        "services/application/authentication.py",  # the operator's keys of providers
        "services/families/budget/spending_limits.py",  # limits of operators among those of a tenant
        "services/families/webhook/endpoints.py",  # webhooks of the files, which no tenant has
        "services/families/webhook/receiving.py",  # what an event starts or publishes
        "services/grpc/operations.py",  # how much of the configuration is shown
    },
}
USE_CASES = re.compile(
    r"(?<!services\.)application\.(audit_log|audits|backups|batches|bulk|clients|compactions|control|dead_letters"
    r"|definition_runs|erasure|forks|health|histories|imports|interrupts|limits|log|partitions|probes|queries|repairs"
    r"|run_feed|run_states|runs|state_restore|usage)\b"
)
REACHING: Mapping[str, set[str]] = {
    # Streams and files: their rows name the access (services/application/operations/streams.py).
    "services/api/audit_endpoints.py": {"audits"},
    "services/api/client_endpoints.py": {"clients"},
    "services/api/history_endpoints.py": {"forks", "histories", "imports"},
    "services/api/run_endpoints.py": {"queries", "run_states", "runs"},
    "services/api/snapshot_endpoints.py": {"backups", "state_restore"},
    "services/grpc/streams.py": {"queries", "run_states", "runs"},
    "services/api/metrics.py": {"queries"},  # GET /metrics
    "services/api/mcp/events.py": {"run_feed"},  # after a poll, which the dispatch has
    "services/api/mcp/endpoint.py": {"control"},  # a cancel
    # Handlers, which the dispatch calls.
    "services/api/mcp/event_operations.py": {"run_feed"},
    "services/api/mcp/operations.py": {"control", "interrupts", "queries", "run_states", "runs"},
    "services/api/mcp/state_file_operations.py": {"backups"},
    "services/api/mcp/tasks.py": {"control", "queries"},
    "services/api/metric_handlers.py": {"queries"},
    "services/api/process_handlers.py": {"health", "probes"},
    "services/grpc/operations.py": {"backups"},
}


def sources(*folders: str) -> Mapping[str, str]:
    """Return the texts of modules by path."""
    paths = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return {str(path.relative_to(ROOT)): path.read_text() for path in paths}


@pytest.mark.parametrize("name", ASKING)
def test_rights_are_asked_for_in_few_places(name: str) -> None:
    asks = re.compile(rf"(?<!def )\b{name}\(")
    found = {path for path, text in sources("services").items() if asks.search(text)}
    assert found - {"services/core/access/decide.py"} == ASKING[name]


def test_transports_reach_use_cases_in_few_places() -> None:
    found = {
        path: reached
        for path, text in sources("services/api", "services/grpc").items()
        if (reached := set(USE_CASES.findall(text)))
    }
    assert found == REACHING


def test_processes_that_serve_no_requests_have_no_use_cases() -> None:
    """Runs and timers act without a principal: a use case would find nothing to decide by."""
    folders = [f"services/{name}" for name in ("core", "families", "runtime", "projector", "insights", "auditor")]
    assert [path for path, text in sources(*folders).items() if "loomlog.services.application" in text] == []
