"""The plugin for Claude Code: its files are well formed, and name only tools and commands that there are."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from loomlog.services.api.mcp.server import mcp_server
from tests.services.application.world import ADMIN_CALLER

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "deploy" / "claude_code"
TOOL = re.compile(r"mcp__plugin_loomlog_loomlog__(\w+)")
COMMANDS = sorted((PLUGIN / "commands").glob("*.md"))
SKILLS = sorted((PLUGIN / "skills").glob("*/SKILL.md"))


@pytest.mark.parametrize("path", sorted(PLUGIN.rglob("*.json")), ids=lambda path: path.name)
def test_a_file_of_json_is_an_object(path: Path) -> None:
    assert isinstance(json.loads(path.read_text()), dict)


def test_the_server_is_the_thin_client_with_the_token_in_its_environment() -> None:
    [server] = json.loads((PLUGIN / ".mcp.json").read_text())["mcpServers"].values()
    options = json.loads((PLUGIN / ".claude-plugin" / "plugin.json").read_text())["userConfig"]
    assert server["args"][:2] == ["mcp", "--upstream"]
    assert set(re.findall(r"\$\{user_config\.(\w+)\}", json.dumps(server))) == set(options)
    assert options["auth_token"]["sensitive"] is True
    assert "auth_token" not in json.dumps(server["args"])


@pytest.mark.parametrize("path", [*COMMANDS, *SKILLS], ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_command_or_skill_has_a_description_and_names_tools_that_there_are(path: Path) -> None:
    text = path.read_text()
    assert re.match(r"---\n(name: \S+\n)?description: \S.*\n", text)
    known = {tool["name"] for tool in mcp_server("1").list_tools(ADMIN_CALLER, is_stateless=False)["tools"]}
    assert set(TOOL.findall(text)) <= known


def test_hooks_are_off_and_never_fail() -> None:
    hooks = json.loads((PLUGIN / "hooks" / "hooks.json").read_text())["hooks"]["PostToolUse"]
    named = re.findall(r"hooks/(\w+\.sh)", json.dumps(hooks))
    assert sorted(named) == sorted(path.name for path in (PLUGIN / "hooks").glob("*.sh"))
    for name in named:
        done = subprocess.run(
            [PLUGIN / "hooks" / name], input="{}", capture_output=True, text=True, env={}, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_telemetry_is_a_line_of_json_for_each_call(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    environ = {"LOOMLOG_PLUGIN_TELEMETRY": "1", "LOOMLOG_PLUGIN_TELEMETRY_FILE": str(file), "PATH": "/usr/bin:/bin"}
    for _ in range(2):
        call = json.dumps({"tool_name": "spawn_run"}, indent=1)
        subprocess.run([PLUGIN / "hooks" / "capture_run_telemetry.sh"], input=call, text=True, env=environ, check=True)
    assert [json.loads(line) for line in file.read_text().splitlines()] == [{"tool_name": "spawn_run"}] * 2


def test_the_page_has_every_command() -> None:
    page = (ROOT / "docs" / "CLAUDE_CODE.md").read_text()
    assert [path.stem for path in COMMANDS if f"/loomlog:{path.stem}" not in page] == []
