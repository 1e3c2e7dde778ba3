"""Ten reviewers with one call over MCP, then a report; the caller never reads the code. In the top folder of a clone:

    pip install httpx
    python docs/examples/review_fanout/review.py --base-url http://127.0.0.1:8787

The token is read from LOOMLOG_TOKEN. The agents are those of loomlog.yaml in this folder.
"""

import argparse
import os
import uuid
from typing import Any

import httpx

REVISION = "2026-07-28"
TOPICS = (
    "errors that are swallowed",
    "input that is not checked",
    "secrets and credentials",
    "races and shared state",
    "resources that are not closed",
    "limits that are missing",
    "names that mislead",
    "tests that cannot fail",
    "code that is dead",
    "documents that are wrong",
)


def call_tool(client: httpx.Client, name: str, arguments: dict[str, Any]) -> Any:
    """Return what a tool answers. Raises SystemExit with what is wrong."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.loomlog/idempotencyKey": str(uuid.uuid4()),
    }
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": name, "arguments": arguments, "_meta": meta},
    }
    headers = {"mcp-protocol-version": REVISION, "mcp-method": "tools/call", "mcp-name": name}
    answer = client.post("/v1/_mcp", json=message, headers=headers).json()
    if "result" not in answer or answer["result"]["isError"]:
        raise SystemExit(f"{name}: {answer}")
    return answer["result"]["structuredContent"]


def main() -> None:
    """Review, then report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base-url", default="http://127.0.0.1:8787")
    options = parser.parse_args()
    token = os.environ.get("LOOMLOG_TOKEN")
    headers = {"authorization": f"Bearer {token}"} if token else {}
    with httpx.Client(base_url=options.base_url, headers=headers, timeout=3_600) as client:
        spawns = [{"agent": "fanout-reviewer", "prompt": f"Topic: {topic}"} for topic in TOPICS]
        reviewed = call_tool(client, "spawn_runs", {"spawns": spawns, "mode": "join"})
        for topic, result in zip(TOPICS, reviewed["results"], strict=True):
            print(f"{result['status']:10} {topic}: {result['final_text'].splitlines()[:1]}")
        report = call_tool(client, "spawn_run", {"agent": "fanout-editor", "prompt": "Write the report."})
    print(report["final_text"])


if __name__ == "__main__":
    main()
