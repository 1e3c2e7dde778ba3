"""`loomlog import claude-code` over folders as Claude Code has them."""

import json
import subprocess
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from loomlog.connectors.configuration.load import load
from loomlog.services.cli.main import app

REVIEWER = """\
---
name: reviewer
description: Reviews code
tools: Read, Grep, mcp__github__list_issues
model: opus
---
You review code.

Be brief.
"""
TARGET = """\
# mine
defaults: { provider: mock, model: mock-hello }
agents:
  # the first
  first: { system_prompt: hello }  # keep
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".claude").mkdir()
    return tmp_path


def put(path: str, text: str | bytes) -> None:
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(text if isinstance(text, bytes) else dedent(text).encode())


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["import", "claude-code", "--from", ".claude", *arguments])


def report(*arguments: str) -> Any:
    result = run("--json", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def notes(name: str, *arguments: str) -> dict[str, str]:
    rows = [row for row in report(*arguments)["imported"] if row["name"] == name]
    return {note["field"]: note["hint"] for note in rows[0]["notes"]}


def actions(*arguments: str) -> dict[str, str]:
    return {row["name"]: row["action"] for row in report(*arguments)["imported"]}


def written(text: str = "", **environ: str) -> Any:
    """The configuration of the file after an import, which must be valid."""
    if text:
        Path("loomlog.yaml").write_text(text)
    result = run("--write", "--force")
    assert result.exit_code == 0, result.output
    load({"LOOMLOG_CODE_AGENTS_ENABLED": "0", **environ}, working_directory=Path.cwd())
    return yaml.safe_load(Path("loomlog.yaml").read_text())


def test_everything_is_imported_into_a_valid_configuration() -> None:
    put(".claude/agents/reviewer.md", REVIEWER)
    put(".claude/skills/pdf/SKILL.md", "---\nname: pdf\ndescription: Reads PDF\n---\nRead ref/a.md\n")
    put(".claude/skills/pdf/ref/a.md", "more\n")
    put(".mcp.json", '{"mcpServers": {"github": {"command": "npx", "args": ["-y", "server"]}}}')
    Path("loomlog.yaml").write_text(TARGET)
    Path("loomlog.yaml").chmod(0o600)
    result = run("--write")
    assert result.exit_code == 0
    assert "imported 4 into loomlog.yaml and skills" in result.stdout
    text = Path("loomlog.yaml").read_text()
    assert text.startswith(TARGET)
    assert "    # needs the MCP server github and its credentials\n" in text
    assert "    system_prompt: |-\n      You review code.\n\n      Be brief.\n" in text
    assert Path("loomlog.yaml").stat().st_mode & 0o777 == 0o600
    checked = load({"LOOMLOG_SKILLS_ROOT": "skills"}, working_directory=Path.cwd())
    agent = checked.configuration.agents["reviewer"]
    assert (agent.description, agent.model) == ("Reviews code", "opus")
    assert agent.tools == ("Read", "Grep", "mcp__github__list_issues")
    assert agent.system_prompt == "You review code.\n\nBe brief."
    assert checked.configuration.skills["pdf"].files == {"ref/a.md": "more\n"}
    server = {"transport": "stdio", "command": "npx", "args": ["-y", "server"]}
    assert yaml.safe_load(text)["mcp_servers"] == {"github": server}
    assert CliRunner().invoke(app, ["agents", "check"]).exit_code == 0


@pytest.mark.parametrize("arguments", [(), ("--report-only",), ("--json",), ("--dry-run",), ("--dry-run", "--json")])
def test_nothing_is_written_without_write(arguments: tuple[str, ...], folder: Path) -> None:
    put(".claude/agents/reviewer.md", REVIEWER)
    put(".claude/skills/pdf/SKILL.md", "Read it")
    before = sorted(folder.rglob("*"))
    result = run(*arguments)
    assert result.exit_code == 0
    assert "reviewer" in result.stdout
    assert sorted(folder.rglob("*")) == before


def test_the_diff_can_be_applied() -> None:
    put(".claude/agents/reviewer.md", REVIEWER)
    put("conf.yaml", TARGET.rstrip("\n"))
    diff = report("--dry-run", "--diff", "conf.yaml")["diff"]
    assert run("--write", "--diff", "conf.yaml").exit_code == 0
    after = Path("conf.yaml").read_text()
    put("conf.yaml", TARGET.rstrip("\n"))
    subprocess.run(["git", "apply", "-p0", "-"], input=diff, text=True, check=True)
    assert Path("conf.yaml").read_text() == after
    assert not Path("loomlog.yaml").exists()


def test_what_is_there_stays_without_force() -> None:
    put(".claude/agents/first.md", "---\ntools: [Read]\n---\nNew")
    put(".claude/skills/pdf/SKILL.md", "new")
    put("skills/pdf/SKILL.md", "old")
    Path("loomlog.yaml").write_text(TARGET)
    assert actions("--write") == {"first": "keep", "pdf": "keep"}
    assert Path("loomlog.yaml").read_text() == TARGET
    assert Path("skills/pdf/SKILL.md").read_text() == "old"
    assert "2 of the same name are kept; --force replaces them" in run().stdout
    assert actions("--write", "--force") == {"first": "replace", "pdf": "replace"}
    assert yaml.safe_load(Path("loomlog.yaml").read_text())["agents"]["first"]["system_prompt"] == "New"
    assert Path("skills/pdf/SKILL.md").read_text() == "new"
    assert actions("--write", "--force") == {"first": "same", "pdf": "same"}


@pytest.mark.parametrize(
    ("model", "file", "keys", "note"),
    [
        ("sonnet", "", {"model": "sonnet"}, None),
        ("claude-sonnet-4-5", "", {"provider": "anthropic", "model": "claude-sonnet-4-5"}, None),
        ("inherit", TARGET, {}, "it has none of its own; the model of `defaults` is used"),
        ("inherit", "", {"model": "sonnet"}, "it has none of its own; sonnet is used"),
        ("mine", "models: { mine: { provider: mock, model: mock-hello } }", {"model": "mine"}, None),
        (
            "best",
            "",
            {"model": "sonnet"},
            "best is not known; sonnet is used until agents.a has a provider and a model",
        ),
    ],
)
def test_models(model: str, file: str, keys: dict[str, str], note: str | None) -> None:
    put(".claude/agents/a.md", f"---\nmodel: {model}\ntools: [Read]\n---\nHi")
    put("loomlog.yaml", file)
    assert notes("a").get("model") == note
    agent = written(file)["agents"]["a"]
    assert {key: agent[key] for key in ("provider", "model") if key in agent} == keys


@pytest.mark.parametrize(
    ("tools", "granted", "left"),
    [
        ("Read, Write", ["Read", "Write"], set()),
        ("[Task, WebFetch, MultiEdit, Edit, LS]", ["Agent", "WebFetch", "Edit", "Glob"], {"Task", "MultiEdit", "LS"}),
        ("mcp__github, mcp__a__b", ["mcp__github__*", "mcp__a__b"], {"mcp__github"}),
        ("Bash(git diff:*, rm), Read", ["Read"], {"Bash(git diff:*, rm)"}),
        ("Read, TodoWrite, Reed", ["Read"], {"TodoWrite", "Reed"}),
        ('["mcp__a\\nb: c__d", Read]', ["Read"], {"mcp__a\nb: c__d"}),
        ('"*"', ["*"], set()),
    ],
)
def test_tools(tools: str, granted: list[str], left: set[str]) -> None:
    put(".claude/agents/a.md", f"---\ntools: {tools}\n---\nHi")
    assert left <= notes("a").keys()
    assert written()["agents"]["a"]["tools"] == granted


@pytest.mark.parametrize(
    ("tools", "disallowed", "granted"),
    [
        ("Read, Bash", "Bash", ["Read"]),
        ("Read, Bash", "Bash(rm:*)", ["Read"]),
        ("Read, MultiEdit", "Edit", ["Read"]),
        ("Read, mcp__github", "mcp__github__delete", ["Read"]),
        ("Read, mcp__github__delete", "mcp__github", ["Read"]),
        ("'*', Read", "Bash", ["Read"]),
    ],
)
def test_a_disallowed_tool_is_never_granted(tools: str, disallowed: str, granted: list[str]) -> None:
    put(".claude/agents/a.md", f"---\ntools: [{tools}]\ndisallowedTools: {disallowed}\n---\nHi")
    assert written()["agents"]["a"]["tools"] == granted


def test_each_field_without_a_counterpart_has_a_hint() -> None:
    fields = (
        "hooks: {}\noutput_style: x\ntemperature: 1\ntop_p: 1\nsubagents: [a]\ncolor: red\nmaxturn: 3\nmax_tokens: 9"
    )
    put(".claude/agents/a.md", f"---\nname: b\n{fields}\n---\nHi")
    hints = notes("a")
    assert hints["name"] == "b is not used: the name of the file counts, a"
    assert hints["temperature"] == "set agents.a.sampling.temperature"
    assert hints["max_tokens"] == "set agents.a.max_tokens"
    assert hints["maxturn"] == "no equivalent; docs/SETTINGS.md has the keys of agents"
    assert "agents.a.tools lists them" in hints["tools"]
    assert {"hooks", "output_style", "top_p", "subagents", "color"} <= hints.keys()


@pytest.mark.parametrize(
    ("name", "key", "scope"),
    [
        ("daily-scheduler", "schedule_def_scopes", "any"),
        ("an-orchestrator", "schedule_def_scopes", "any"),
        ("prompt-evolver", "agent_def_scopes", "self"),
        ("skill-author", "agent_def_scopes", "self"),
        ("a-meta-agent", "agent_def_scopes", "self"),
        ("scheduler", None, ""),
        ("authority", None, ""),
    ],
)
def test_names_that_grant_a_scope(name: str, key: str | None, scope: str) -> None:
    put(f".claude/agents/{name}.md", "Hi")
    expected = {key: [scope]} if key else {}
    assert {field for field in notes(name) if field.endswith("scopes")} == expected.keys()
    assert {field: value for field, value in written()["agents"][name].items() if field.endswith("scopes")} == expected


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("a.md", "---\nmodel: x\n", "line 1: the frontmatter has no closing line ---"),
        ("a.md", "---\n- x: [\n---\nHi", "line 2: not YAML"),
        ("a.md", "---\nmodel: x\n---\n\n", "it has no prompt"),
        ("a.md", b"\xff", "it is not UTF-8: invalid start byte at byte 0"),
        ("a.md", "---\ntools: {a: b}\n---\nHi", "tools: expected a list of names"),
        ("a.md", "---\ndescription: [a]\n---\nHi", "description: expected a text"),
        ("a b.md", "Hi", "'a b' is no name of an agent"),
        ("a\udcff.md", "Hi", "'a\ufffd' is no name of an agent"),
        ("a.md", "x" * (128 * 1024 + 1), "it has more than 131072 bytes"),
        ("a.md", "Key: ${LOOMLOG_ENCRYPTION_KEY}", "${LOOMLOG_ENCRYPTION_KEY} is a secret of the installation"),
        ("a.md", "{{tool:Nothing}}", "{{tool:Nothing}} is no placeholder"),
    ],
)
def test_a_malformed_agent_is_skipped_and_the_rest_goes_on(file: str, text: str | bytes, reason: str) -> None:
    put(f".claude/agents/{file}", text)
    put(".claude/agents/good.md", "Hi")
    skipped = report()["skipped"]
    assert [one["source"] for one in skipped] == [f"agents/{file}".replace("\udcff", "\ufffd")]
    assert skipped[0]["reason"].startswith(reason)
    assert list(written()["agents"]) == ["good"]


def test_a_frontmatter_with_colons_is_read_line_by_line() -> None:
    text = "---\nname: a\ndescription: Use it when: asked. Example: x\ntools: Read, Grep\n---\nHi"
    put(".claude/agents/a.md", text)
    assert "line 3: not YAML" in notes("a")["frontmatter"]
    agent = written()["agents"]["a"]
    assert agent["description"] == "Use it when: asked. Example: x"
    assert agent["tools"] == ["Read", "Grep"]


EXAMPLES = """\
---
name: {name}
description: Use this after a change. Examples:\\n\\n<example>\\nContext: a new form
user: "Check it"
assistant: "I use it."
<commentary>
To find mistakes early.

  tools: not a key, as it is indented
</commentary>
color: green
tools: Read, Grep
---

You review changes.
"""
LINES = [
    "Use this after a change. Examples:\\n\\n<example>\\nContext: a new form",
    'user: "Check it"',
    'assistant: "I use it."',
    "<commentary>",
    "To find mistakes early.",
    "",
    "  tools: not a key, as it is indented",
    "</commentary>",
]


def test_a_description_over_several_lines_is_all_lines_up_to_the_next_known_key() -> None:
    put(".claude/agents/reviewer.md", EXAMPLES.format(name="reviewer"))
    assert report()["skipped"] == []
    agent = written()["agents"]["reviewer"]
    assert agent["description"].split("\n") == LINES
    assert (agent["tools"], agent["system_prompt"]) == (["Read", "Grep"], "You review changes.")
    assert set(notes("reviewer")) == {"frontmatter", "color", "model"}


def test_a_skill_with_such_a_description_is_copied_in_yaml_that_is_read_at_the_start() -> None:
    put(".claude/skills/check/SKILL.md", EXAMPLES.format(name="check"))
    assert "line 3: not YAML" in notes("check", "--write")["frontmatter"]
    skill = load({"LOOMLOG_SKILLS_ROOT": "skills"}, working_directory=Path.cwd()).configuration.skills["check"]
    assert skill.description.split("\n") == LINES
    assert (skill.tools, skill.body) == (("Read", "Grep"), "You review changes.")
    assert actions()["check"] == "same"


def test_a_character_that_two_escapes_write_is_imported_and_half_of_one_is_not() -> None:
    put(".claude/agents/emoji.md", '---\ndescription: "Review \\ud83d\\ude80 fast"\nmodel: haiku\n---\nHi')
    put(".claude/agents/half.md", '---\ndescription: "Review \\ud83d fast"\n---\nHi')
    put(".claude/mcp.json", '{"mcpServers": {"a": {"command": "x\\u0000y"}}}')
    reasons = {one["source"]: one["reason"] for one in report()["skipped"]}
    assert reasons["agents/half.md"].startswith("line 2: this text cannot be used: it has \\ud83d, half of a")
    assert reasons["mcp.json: a"] == '"command" cannot be used: it has the character U+0000, which no text may have'
    agents = written()["agents"]
    assert {name: agent["description"] for name, agent in agents.items()} == {"emoji": "Review \U0001f680 fast"}


def test_the_folder_of_commands_is_reported() -> None:
    put(".claude/commands/git/fix.md", "Fix it")
    reason = "commands have no counterpart; make it a skill or a prompt"
    assert report()["skipped"] == [{"source": "commands/git/fix.md", "reason": reason}]
    assert not Path("loomlog.yaml").exists()


def servers(**servers: Any) -> None:
    put(".claude/mcp.json", json.dumps({"mcpServers": servers}))


def test_servers_of_both_files_and_keys() -> None:
    servers(a={"type": "http", "url": "https://a"}, b={"type": "streamableHttp", "url": "https://b"})
    put(".mcp.json", '{"mcpServers": {"a": {"command": "x"}}, "registries": {"c": {"command": "y", "env": {"N": 1}}}}')
    assert report()["skipped"] == [{"source": "../.mcp.json: a", "reason": "mcp.json has a server of this name too"}]
    assert written()["mcp_servers"] == {
        "a": {"transport": "http", "url": "https://a"},
        "b": {"transport": "streamable-http", "url": "https://b"},
        "c": {"transport": "stdio", "command": "y", "env": {"N": "1"}},
    }


def test_secrets_stay_out_of_the_configuration() -> None:
    token = "ghp_" + "a1" * 20
    servers(
        github={"command": "x", "args": ["--key", token], "env": {"API_KEY": "short", "MODE": "fast", "T": token}},
        web={"url": f"https://a/?api_key={token}", "headers": {"Authorization": "Bearer abc", "X": "${X:-d}"}},
    )
    assert token not in run("--dry-run").stdout
    file = written(LOOMLOG_MCP_WEB_URL="https://a")["mcp_servers"]
    assert token not in Path("loomlog.yaml").read_text()
    assert file["github"] == {
        "transport": "stdio",
        "command": "x",
        "args": ["--key", "${LOOMLOG_MCP_GITHUB_1}"],
        "env": {"API_KEY": "${LOOMLOG_MCP_GITHUB_API_KEY}", "MODE": "fast", "T": "${LOOMLOG_MCP_GITHUB_T}"},
    }
    assert file["web"] == {
        "transport": "http",
        "url": "${LOOMLOG_MCP_WEB_URL}",
        "headers": {"Authorization": "${LOOMLOG_MCP_WEB_AUTHORIZATION}", "X": "${LOOMLOG_MCP_X}"},
    }
    assert notes("web") == {
        "url": "its value is not written; set LOOMLOG_MCP_WEB_URL in the environment",
        "headers.Authorization": "its value is not written; set LOOMLOG_MCP_WEB_AUTHORIZATION in the environment",
        "headers.X": "${X} is LOOMLOG_MCP_X here; its default is d",
    }


UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"


@pytest.mark.parametrize(
    ("server", "secret"),
    [
        ({"command": "npx", "args": ["-y", "server", "postgresql://app:S3cretPw@db.example.com/app"]}, "S3cretPw"),
        ({"command": "npx", "args": ["--url=https://u:S3cretPw@h/"]}, "S3cretPw"),
        ({"command": "npx", "args": ["https://S3cretPw@h/path"]}, "S3cretPw"),
        ({"command": "uvx", "args": ["thing", "--token", UUID]}, UUID),
        ({"command": "uvx", "args": ["thing", "--api-key", "abc"]}, "abc"),
        ({"command": "uvx", "args": ["thing", "--password=x y"]}, "x y"),
        ({"command": "uvx", "args": ["thing", UUID]}, UUID),
        ({"url": "https://api.example.com/mcp?secretKey=tw_9a8b7c6d5e4f3a2b1c"}, "tw_9a8b7c6d5e4f3a2b1c"),
        ({"url": "https://api.example.com/mcp?a=1&k=s3"}, None),
        ({"url": "https://api.example.com/mcp?a=1&apikey=s3"}, "s3"),
        ({"url": "https://api.example.com/mcp?profile=hunterhunter"}, "hunterhunter"),
        ({"url": "https://u:hunter2@${HOST}/mcp"}, "hunter2"),
        ({"command": "x", "env": {"API_URL": "https://u:hunter2@h.example.com"}}, "hunter2"),
        ({"command": "x", "env": {"PGPASSWD": "hunter2"}}, "hunter2"),
        ({"command": "x", "env": {"DATABASE_DSN": "app/hunter2"}}, "hunter2"),
        ({"command": "x", "env": {"ID": "a1b2c3d4e5f6a7b8c9d0e1"}}, "a1b2c3d4e5f6a7b8c9d0e1"),
        ({"command": "x", "env": {"API_KEY": "${MY_KEY:-hunter2}"}}, "hunter2"),
        ({"url": "https://h/", "headers": {"X-Auth": "hunter2"}}, "hunter2"),
        ({"url": "https://h/", "headers": {"Cookie": "sid=hunter2"}}, "hunter2"),
        ({"url": "https://h/", "headers": {"X-Forward": "Bearer a1b2c3d4e5f6a7b8c9"}}, "a1b2c3d4e5f6a7b8c9"),
        ({"command": "x", "args": ["--port", "8080", "-y", "@scope/server-postgres@1.2.3"]}, None),
        ({"command": "x", "args": ["--directory", "/srv/data/project-2026"], "env": {"LOG_LEVEL": "debug"}}, None),
    ],
)
def test_no_secret_of_a_server_is_written_or_shown(server: Any, secret: str | None) -> None:
    servers(a=server)
    shown = run("--dry-run").stdout + run("--json").stdout
    assert run("--write").exit_code == 0
    text = Path("loomlog.yaml").read_text()
    if secret is None:
        assert "${LOOMLOG_MCP" not in text
    else:
        assert "${LOOMLOG_MCP" in text
        assert secret not in text + shown


def test_references_that_are_expanded_stay() -> None:
    servers(a={"command": "x", "env": {"T": "${GITHUB_TOKEN}", "U": "${LOOMLOG_U}", "V": "a${my-x}"}})
    assert written()["mcp_servers"]["a"]["env"] == {"T": "${GITHUB_TOKEN}", "U": "${LOOMLOG_U}", "V": "a${my-x}"}


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        ({"type": "sse", "url": "x"}, "the transport 'sse' is not supported"),
        ({"type": ["x"], "url": "x"}, "the transport ['x'] is not supported"),
        ({}, "a server over http needs a url"),
        ({"type": "stdio"}, "a server over stdio needs a command"),
        ("x", "expected an object with a command or a url"),
        ({"command": "x", "args": "y"}, '"args" must be a list of texts'),
        ({"command": "x", "env": ["y"]}, '"env" must be an object of texts'),
        ({"command": "x", "env": {"a": {}}}, '"env.a" must be a text'),
        ({"command": "${LOOMLOG_ENCRYPTION_KEY}"}, "${LOOMLOG_ENCRYPTION_KEY} is a secret of the installation"),
    ],
)
def test_a_malformed_server_is_skipped(server: Any, reason: str) -> None:
    servers(**{"bad": server, "good": {"command": "x"}, "no name": {"command": "x"}})
    first, second = report()["skipped"]
    assert first["source"] == "mcp.json: bad"
    assert first["reason"].startswith(reason)
    assert second["reason"] == "the name must have 1 to 64 letters, digits, _ and -"
    assert list(written()["mcp_servers"]) == ["good"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "it is not JSON"),
        ("[]", 'expected an object with "mcpServers"'),
        ('{"mcpServers": [1]}', '"mcpServers" must be an object with a server for each name'),
        ("[" * 5000, "it is not JSON"),
    ],
)
def test_a_malformed_server_file_is_skipped(text: str, reason: str) -> None:
    put(".claude/mcp.json", text)
    put(".mcp.json", '{"mcpServers": {"good": {"command": "x"}}}')
    skipped = report()["skipped"]
    assert skipped[0]["source"] == "mcp.json"
    assert skipped[0]["reason"].startswith(reason)
    assert list(written()["mcp_servers"]) == ["good"]


def test_files_of_skills_that_no_tool_can_read_stay_behind() -> None:
    put(".claude/skills/pdf/SKILL.md", "---\nallowed-tools: Read, Bash(git:*)\nlicense: MIT\n---\nRead a.txt")
    put(".claude/skills/pdf/a.txt", "a")
    put(".claude/skills/pdf/logo.png", b"\xff")
    put(".claude/skills/pdf/big.txt", "x" * 1024 * 1024)
    put(".claude/skills/pdf/.git/config", "x")
    put(".claude/skills/pdf/inner/SKILL.md", "x")
    Path(".claude/skills/pdf/link.txt").symlink_to("/etc/hostname")
    hints = notes("pdf", "--write", "--skills-dest", "mine")
    assert "no grant of an agent covers it" in hints["Bash(git:*)"]
    text = run().stdout
    assert "license has no effect" in text
    for left_out in ("logo.png: it is not UTF-8", "big.txt: the files of a skill have at most", "link.txt"):
        assert left_out in text
    assert sorted(path.name for path in Path("mine").rglob("*.*")) == ["SKILL.md", "a.txt"]
    assert not Path("skills").exists()


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("pdf", "---\nname: other\n---\nHi", "name: 'other' is not the name by the path of the file"),
        ("pdf", "---\nname: pdf\n---\n", "body is empty"),
        ("p d f", "Hi", "'p d f' is no name of a skill"),
        ("pdf", "---\na: b: c\n---\nHi", "not YAML"),
        ("pdf", "---\ntools: {a: b}\n---\nHi", "tools: expected a list"),
        ("pdf", "${LOOMLOG_ENCRYPTION_KEY}", "${LOOMLOG_ENCRYPTION_KEY} is a secret of the installation"),
    ],
)
def test_a_malformed_skill_is_skipped(name: str, text: str, reason: str) -> None:
    put(f".claude/skills/{name}/SKILL.md", text)
    put(".claude/skills/good/SKILL.md", "Hi")
    skipped = report("--write")["skipped"]
    assert skipped[0]["reason"].startswith(reason)
    assert [path.name for path in Path("skills").iterdir()] == ["good"]
    load({"LOOMLOG_SKILLS_ROOT": "skills"}, working_directory=Path.cwd())


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--write", "--dry-run"), 2, "exclude each other"),
        (("--emit-recipes",), 2, "no recipes of MCP servers"),
        (("--no-yaml",), 2, "--no-yaml only goes with --emit-recipes"),
        (("--from", "nowhere"), 4, "There is no folder nowhere"),
        (("--no-recipe-match",), 4, ".claude has no agents/*.md, skills/*/SKILL.md or mcp.json"),
    ],
)
def test_use_that_is_refused(arguments: tuple[str, ...], code: int, message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == code
    assert message in result.output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "agents: {a: {system_prompt: x}}\n",
            "agents is not written as a block of indented lines; write it so. Nothing",
        ),
        ("agents: [\n", "loomlog.yaml:2: not YAML"),
        (b"\xff", "loomlog.yaml: the file is not UTF-8"),
    ],
)
def test_a_configuration_that_cannot_be_edited_stays_as_it_is(text: str | bytes, message: str) -> None:
    put(".claude/agents/new.md", "Hi")
    put(".claude/skills/pdf/SKILL.md", "Hi")
    put("loomlog.yaml", text)
    before = Path("loomlog.yaml").read_bytes()
    result = run("--write")
    assert result.exit_code == 1
    assert message in result.output
    assert Path("loomlog.yaml").read_bytes() == before
    assert not Path("skills").exists()


def test_a_collection_of_more_than_a_file_holds_is_reported_and_written_to_several() -> None:
    body = ("x" * 99 + "\n") * 900
    for number in range(13):
        put(f".claude/agents/a{number}.md", f"---\ndescription: d\ntools: Read\nmodel: haiku\n---\n{body}")
    assert len(report()["imported"]) == 14
    assert "loomlog.yaml alone would have more than the 1048576 bytes that are read of a file" in run().stdout
    assert "loomlog.yaml and loomlog-2.yaml" in run("--dry-run").stdout
    result = run("--write")
    assert result.exit_code == 0
    assert "export LOOMLOG_CONFIG_FILES=loomlog.yaml:loomlog-2.yaml" in result.stdout
    loaded = load({"LOOMLOG_CONFIG_FILES": "loomlog.yaml:loomlog-2.yaml"}, working_directory=Path.cwd())
    assert set(loaded.configuration.agents) == {f"a{number}" for number in range(13)}
    assert set(actions().values()) == {"same"}


def test_a_link_to_the_configuration_stays_a_link() -> None:
    put("real/loomlog.yaml", TARGET)
    Path("loomlog.yaml").symlink_to("real/loomlog.yaml")
    put(".claude/agents/a.md", "Hi")
    assert run("--write").exit_code == 0
    assert Path("loomlog.yaml").is_symlink()
    assert "system_prompt: Hi" in Path("real/loomlog.yaml").read_text()
