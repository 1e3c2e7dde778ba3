"""The second stack of the session: it has gRPC, MCP servers, rules for approvals, and may call this machine.

It is apart from the first, whose commands and pages show no server that is away.
"""

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loomlog.services.cli.stack.ports import pick_port
from tests.acceptance.installation import Installation, running_installation
from tests.connectors.mcp.authorization_server import GuardedServer
from tests.connectors.mcp.test_sessions import SCRIPT

START_S = 60.0
CONFIGURATION = """
mcp_servers:
  desk: {{ transport: stdio, command: {python}, args: [{script}, notes, {notes}] }}
  painter: {{ transport: stdio, command: {python}, args: [{script}, asks, {notes}] }}
  patient: {{ transport: stdio, command: {python}, args: [{script}, needs, {notes}] }}
  guarded: {{ transport: http, url: "{guarded}" }}
  away: {{ transport: http, url: "http://127.0.0.1:1/mcp" }}
local_api: {{ spec: api.json, base_url: "http://{address}", tool_name_prefix: own_ }}
approvals:
  rules:
    - {{ name: never, tools: ["mcp__desk__*"], when: [{{ argument: $.text, equals: secret }}], then: deny, reason: no }}
    - name: large
      tools: ["mcp__desk__*"]
      when: [{{ argument: $.text, equals: large }}]
      then: ask
      ask: {{ scopes: ["substrate:tenant"], within_s: 600 }}
agents:
  clerk:
    provider: code-js
    model: code
    tools: ["mcp__desk__*", "mcp__away__*"]
    code_body: |
      function run(input) {{
        try {{ return mcp__desk__echo({{ text: input.prompt }}) }} catch (error) {{ return "failed: " + error.message }}
      }}
  painter:
    provider: code-js
    model: code
    tools: ["mcp__painter__*"]
    code_body: |
      function run(input) {{
        try {{ return mcp__painter__echo({{ text: input.prompt }}) }}
        catch (error) {{ return "failed: " + error.message }}
      }}
  patient:
    provider: code-js
    model: code
    tools: ["mcp__patient__*"]
    code_body: "function run(input) {{ return mcp__patient__echo({{ text: input.prompt }}) }}"
  guest:
    provider: code-js
    model: code
    tools: ["mcp__guarded__*"]
    code_body: |
      function run(input) {{
        try {{ return mcp__guarded__echo({{ text: input.prompt }}) }}
        catch (error) {{ return "failed: " + error.message }}
      }}
  prober:
    provider: code-js
    model: code
    tools: ["own_*"]
    code_body: "function run(input) {{ return own_health({{}}) }}"
"""
API = {"openapi": "3.1.0", "paths": {"/healthz": {"get": {"operationId": "health"}}}}


def notes_of(stack: Installation) -> Path:
    """The file to which the MCP servers write what they are told."""
    return stack.folder / "notes.txt"


@contextmanager
def serve_guarded() -> Iterator[GuardedServer]:
    """A server that asks for tokens, on a thread of its own."""
    loop, server = asyncio.new_event_loop(), GuardedServer()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result(START_S)
    yield server
    asyncio.run_coroutine_threadsafe(server.__aexit__(), loop).result(START_S)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@contextmanager
def running_second_stack(guarded: GuardedServer) -> Iterator[Installation]:
    def prepare(stack: Installation) -> None:
        notes, more = notes_of(stack), stack.folder / "mcp.yaml"
        notes.touch()
        address = stack.environ["LOOMLOG_LISTEN_ADDR"]
        more.write_text(
            CONFIGURATION.format(
                python=sys.executable, script=SCRIPT, notes=notes, address=address, guarded=guarded.url
            )
        )
        (stack.folder / "api.json").write_text(json.dumps(API))
        stack.environ["LOOMLOG_CONFIG_FILES"] += f":{more}"
        stack.environ["LOOMLOG_GRPC_ADDR"] = f"127.0.0.1:{pick_port()}"
        stack.environ["LOOMLOG_HTTP_PRIVATE_HOST_ALLOWLIST"] = "127.0.0.1"

    with running_installation("second", prepare) as stack:
        yield stack
