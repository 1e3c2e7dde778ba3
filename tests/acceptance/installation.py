"""A fresh installation in a folder of its own: free ports, its own state, the project that is to be reviewed.

Only what a person has is used: the command line as another process, its output, its exit codes, the files it leaves.
"""

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loomlog.services.cli.stack.ports import pick_port
from tests.acceptance.lab_model import KEY

REPOSITORY = Path(__file__).parent.parent.parent
CACHE = REPOSITORY / ".loomlog" / "cache"
COMMAND_TIMEOUT_S = 60.0
START_TIMEOUT_S = 180.0
"""The first start on a machine fetches the broker's jars."""

PLANTED = {
    "shop/orders.py": {
        4: "    subprocess.run(command, shell=True)",
        8: "    return pickle.loads(data)",
        12: "    except:",
    },
    "shop/pay/card.py": {2: 'API_KEY = "sk-planted-000011112222"', 6: "def charge(amount, seen=[]):"},
    "deploy.sh": {3: "# TODO: ask before it replaces production"},
}
"""Findings by file and line; what stands in the other lines is fine."""
MORE_AGENTS = """
providers:
  slow: { driver: mock, options: { enabled: true, latency_ms: 120000 } }
  down: { driver: mock, options: { enabled: true, latency_ms: 0, latency_jitter_ms: 0, rate_500: 1.0 } }
  lab: { driver: openai, base_url: "http://127.0.0.1:LAB_PORT/v1", api_key_env: LAB_KEY }
  guest: { driver: openai, base_url: "http://127.0.0.1:LAB_PORT/v1", api_key_env: GUEST_KEY }
  lab-gemini: { driver: gemini, base_url: "http://127.0.0.1:LAB_PORT/v1beta", api_key_env: LAB_KEY }
  lab-ollama: { driver: ollama, base_url: "http://127.0.0.1:LAB_PORT" }
tiers:
  high: [{ provider: down, model: mock-generic }, { provider: mock, model: mock-generic }]
user_tiers:
  default: { provider_priority: [anthropic, openai, down, mock], fallback_on_error: true }
agents:
  resilient: { tier: high, retry_attempts: 1 }
  lab-reviewer: { provider: lab, model: lab-1, tools: [Glob, Grep, Read, Write], volumes: [source, out] }
  guest-reviewer: { provider: guest, model: lab-1, tools: [Glob, Grep, Read, Write], volumes: [source, out] }
  gemini-reviewer: { provider: lab-gemini, model: lab-1, tools: [Glob, Grep, Read, Write], volumes: [source, out] }
  ollama-reviewer: { provider: lab-ollama, model: lab-1, tools: [Glob, Grep, Read, Write], volumes: [source, out] }
  analyst:
    description: answers questions about the shop, and asks back
    provider: lab
    model: lab-1
    tools: [Glob, Grep, Read, Write, Memory, Channel, Interruption, Agent]
    volumes: [source, out]
    memory_scopes: [user]
    channels: { subscribe: [acceptance/issues], publish: [acceptance/reports] }
    interruption: { enabled: true, kinds: [question] }
    system_prompt: "You answer questions about a small shop. Look before you answer; ask when you cannot know."
  sleeper: { provider: slow, model: mock-generic }
  talker: { provider: mock, model: mock-generic }
  tree: { provider: mock, model: mock-tree, tools: [Agent] }
  puppet:
    provider: code-js
    model: code
    tools: [Interruption, Agent, Context]
    interruption: { enabled: true, kinds: [question] }
    code_body: |
      const tools = { Interruption, Context: typeof Context === "undefined" ? null : Context };
      function run(input) {
        const said = JSON.parse(input.prompt).map((step) => {
          if (step.spawn) return Agent.spawn({ name: step.spawn, prompt: step.prompt || "go" });
          return tools[step.tool](step.input);
        });
        return said.join(" | ");
      }
  tally:
    provider: code-js
    model: code
    tools: [Counter]
    code_body: |
      function run(input) {
        return Counter({ op: "increment", name: input.prompt, by: 5 });
      }
  teller:
    provider: code-js
    model: code
    tools: [Counter]
    approvals:
      rules:
        - name: every-payment
          tools: [Counter]
          when: [{ argument: $.by, greater_than: 1 }]
          then: ask
          reason: money leaves the house
          ask: { scopes: ["runs:read"], within_s: 3600 }
    code_body: |
      function run(input) {
        try {
          return Counter({ op: "increment", name: input.prompt, by: 5 });
        } catch (error) { return "refused: " + error.message }
      }
  rememberer: { provider: mock, model: mock-memory, tools: [Memory], memory_scopes: [user] }
  historian:
    provider: code-js
    model: code
    tools: [Memory]
    memory_scopes: [user]
    code_body: |
      function run(input) {
        return JSON.stringify(JSON.parse(input.prompt).map(([op, fields]) => Memory[op]({ scope: "user", ...fields })));
      }
  courier:
    provider: code-js
    model: code
    tools: [Channel]
    channels: { subscribe: [acceptance/issues], publish: [acceptance/reports] }
    code_body: |
      function run(input) {
        for (let wait = 0; wait < 3; wait++) {
          let message;
          try {
            [message] = Channel.subscribe({ channel: "acceptance/issues", wait_ms: 30000, max_messages: 1 }).messages;
          } catch (error) { /* its queue did not answer until the wait was over: ask again */ }
          if (!message) continue;
          Channel.publish({ channel: "acceptance/reports", value: { by: input.prompt, issue: message.value } });
          return message.value.issue;
        }
        return "no issue";
      }
  unlucky: { provider: down, model: mock-generic, retry_attempts: 0 }
  secretary:
    provider: code-js
    tools: ["client:add_note"]
    code_body: |
      function run(input) {
        try { return client__add_note({ text: input.prompt }) } catch (error) { return "failed: " + error.message }
      }
channels:
  acceptance/issues: { scope: tenant }
  acceptance/reports: { scope: tenant }
webhooks:
  issues:
    delivery: channel
    channel: acceptance/issues
    auth: { kind: hmac, signing_secret_env: GITHUB_WEBHOOK_SECRET, delivery_id_header: X-GitHub-Delivery }
  triage:
    agent: talker
    auth: { kind: hmac, signing_secret_env: GITHUB_WEBHOOK_SECRET, delivery_id_header: X-GitHub-Delivery }
    payload_mapping: { goal: $.title, user_id: $.sender }
pricing:
  models:
    lab/lab-1: { input: 3.00, output: 15.00 }
"""
"""Some on models of somebody else's, one of them for the web page, one that can be cancelled in peace, one that fails,
one that falls back, one whose prompt is the list of its calls, one that uses a tool of a client, one that uses the tool
of a family, two that use memory, one that passes messages from a channel to another."""
HOOK_SECRET = "acceptance-hook-secret"
"""Secret of the senders of webhooks."""


def link_cache(home: Path) -> None:
    """Give a state folder the broker's jars and class archive; all else is made as for the first time."""
    CACHE.mkdir(parents=True, exist_ok=True)
    home.mkdir(parents=True)
    (home / "cache").symlink_to(CACHE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(slots=True)
class Installation:
    """`loomlog(...)` runs a command and expects it to end with `code`."""

    folder: Path
    environ: dict[str, str] = field(default_factory=dict)
    lab_port: int = field(default_factory=pick_port)

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def report(self) -> Path:
        return self.project / ".loomlog" / "out" / "report.md"

    def make(self) -> None:
        for name, findings in PLANTED.items():
            path = self.project / name
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = [findings.get(number, f"fine_{number} = {number}") for number in range(1, max(findings) + 3)]
            path.write_text("\n".join(lines) + "\n")
        shutil.copy(REPOSITORY / "loomlog.yaml", self.project)
        more = self.folder / "more.yaml"
        more.write_text(MORE_AGENTS.replace("LAB_PORT", str(self.lab_port)))
        home = self.folder / "home"
        link_cache(home)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("LOOMLOG_", "LOOMCYCLE_"))}
        for key in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY"):
            kept.pop(key, None)  # the review here is the synthetic one, whoever runs the tests
        self.environ = kept | {
            "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'docs' / 'examples' / 'counter'}",
            "LOOMLOG_FAMILIES": "counter",
            "LOOMLOG_HOME": str(home),
            "LOOMLOG_CONFIG_FILES": f"{self.project / 'loomlog.yaml'}:{more}",
            "LAB_KEY": KEY,
            "LOOMLOG_OPERATOR_TOKEN_PEPPER": "a pepper of these tests",
            "LOOMLOG_SECRET_KEY": base64.b64encode(bytes(range(32))).decode(),
            "GITHUB_WEBHOOK_SECRET": HOOK_SECRET,
            "LOOMLOG_CODE_AGENTS_ENABLED": "1",
            # The processes are counted, and the default depends on the memory that is available.
            "LOOMLOG_SPARES": "1",
            "LOOMLOG_KAFKA_PORT": "0",
            "LOOMLOG_POSTGRES_PORT": "0",
            "LOOMLOG_LISTEN_ADDR": f"127.0.0.1:{pick_port()}",
            "LOOMLOG_INSIGHTS_PORT": str(pick_port()),
        }

    def loomlog(self, *arguments: str, code: int = 0, timeout_s: float = COMMAND_TIMEOUT_S) -> Ended:
        ended = subprocess.run(
            self.command(*arguments),
            cwd=self.project,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert ended.returncode == code, (
            f"loomlog {' '.join(arguments)}: {ended.returncode}\n{ended.stdout}{ended.stderr}"
        )
        return Ended(code=ended.returncode, out=ended.stdout, err=ended.stderr)

    def command(self, *arguments: str) -> Sequence[str]:
        return (sys.executable, "-P", "-m", "loomlog.services.cli.main", *arguments)

    def up(self) -> Ended:
        return self.loomlog("up", "--detach", timeout_s=START_TIMEOUT_S)


@contextmanager
def running_installation(
    name: str, prepare: Callable[[Installation], None] = lambda made: None
) -> Iterator[Installation]:
    """A whole stack in a temporary folder with that name in its own; stopped and deleted at the end.

    `prepare` changes what was made before it starts.

    Not pytest's own temporary folder: those of three sessions are kept, and a broker's is large.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"loomlog-{name}-"))
    installation = Installation(folder)
    installation.make()
    prepare(installation)
    try:
        installation.up()
        yield installation
    finally:
        installation.loomlog("down")
        shutil.rmtree(folder, ignore_errors=True)
