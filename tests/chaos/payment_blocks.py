"""What the stack is told about calls that need approval: agents with rules, and an MCP server.

Before: stack.  After: payments.
"""

import sys

from tests.connectors.mcp.test_sessions import SCRIPT

AGENTS = """\
  payer:
    provider: mock
    model: mock-ledger
    tools: [Ledger]
    disable_context: true
    system_prompt: "You pay."
    approvals:
      rules:
        - { name: enough, reach: tree, tools: [Ledger], when: [{ count: [Ledger], at_least: 3 }], then: deny }
        - name: first
          tools: [Ledger]
          when: [{ count: [Ledger], less_than: 1 }]
          then: ask
          ask: { scopes: ["runs:read"], within_s: 2, escalate: [{ scopes: ["substrate:tenant"], within_s: 4 }] }
  teller:
    provider: code-js
    model: code
    tools: ["mcp__desk__*"]
    approvals:
      rules:
        - name: third
          tools: ["mcp__desk__*"]
          when: [{ argument: $.text, matches: "*-0" }]
          then: ask
          ask: { scopes: ["runs:read"], within_s: 3, escalate: [{ scopes: ["substrate:tenant"], within_s: 3 }] }
    code_body: |
      function run(input) {
        try { return mcp__desk__echo({ text: input.prompt }) } catch (error) { return "refused: " + error.message }
      }
"""


def servers_of(notes: str) -> str:
    """The block of the MCP server, which writes to that file."""
    return (
        f"mcp_servers:\n  desk: {{ transport: stdio, command: {sys.executable}, args: [{SCRIPT}, notes, {notes}] }}\n"
    )
