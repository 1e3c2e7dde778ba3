import hashlib
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from loomlog.connectors.definitions import KINDS
from loomlog.services.cli.main import app

AGENT_FILE = """\
---
description: Reviews <code>
model: opus
tools: Read, Grep
sampling: { temperature: 0 }
compaction: { enabled: true }
volumes: [source]
---
You review code.
"""
CONFIGURATION = """\
models: { opus: { provider: mock, model: mock-hello } }
volumes: { source: { path: . } }
agents:
  reviewer:
    description: Reviews <code>
    model: opus
    tools: [Read, Grep]
    sampling: { temperature: 0 }
    compaction: { enabled: true }
    volumes: [source]
    system_prompt: "You review code.\\r\\n"
"""
OVERLAY = {
    "description": "Reviews <code>",
    "model": "opus",
    "tools": ["Read", "Grep"],
    "sampling": {"temperature": 0},
    "compaction": {"enabled": True},
    "volumes": ["source"],
    "system_prompt": "You review code.",
}


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["hash", *arguments])


def hash_of(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout.strip()


def sha256(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def test_file_configuration_and_stored_version_have_one_hash() -> None:
    put("agents/reviewer.md", AGENT_FILE)
    put("loomlog.yaml", CONFIGURATION)
    stored = KINDS["agent"].hash("reviewer", KINDS["agent"].compose("reviewer", OVERLAY))
    assert hash_of("agent", "agents/reviewer.md") == stored
    assert hash_of("agent", "--config", "loomlog.yaml", "reviewer") == stored


def test_the_hash_of_an_agent_is_that_of_its_json() -> None:
    put("a.md", "---\nmodel: opus\ntools: Read\n---\nAnswer.\n")
    expected = '{"model":"opus","name":"a","system_prompt":"Answer.","tools":["Read"]}'
    assert hash_of("agent", "a.md") == sha256(expected)
    assert hash_of("agent", "a.md", "--name", "group/b") == sha256(expected.replace('"a"', '"group/b"'))


def test_a_file_with_a_prompt_beside_it_is_hashed_by_the_configuration() -> None:
    put("loomlog.yaml", CONFIGURATION.replace('system_prompt: "You review code.\\r\\n"', "system_prompt_file: p.txt"))
    put("p.txt", "You review code.")
    stored = KINDS["agent"].hash("reviewer", KINDS["agent"].compose("reviewer", OVERLAY))
    assert hash_of("agent", "--config", "loomlog.yaml", "reviewer") == stored
    put("reviewer.md", "---\nsystem_prompt_file: p.txt\n---\n")
    result = run("agent", "reviewer.md")
    assert result.exit_code == 1
    assert "system_prompt_file names a file that is part of the agent" in result.output


def test_the_hash_of_a_skill_is_that_of_its_json() -> None:
    put("pdf/SKILL.md", "---\nname: pdf\ndescription: Reads\nallowed-tools: Read\n---\nRead it.  \n")
    expected = sha256('{"body":"Read it.","description":"Reads","name":"pdf","tools":["Read"]}')
    assert hash_of("skill", "pdf") == expected
    assert hash_of("skill", "pdf/SKILL.md") == expected
    assert json.loads(hash_of("skill", "pdf", "--json")) == {"name": "pdf", "content_sha256": expected}


def test_the_files_of_a_skill_are_hashed() -> None:
    put("pdf/SKILL.md", "Read it.")
    put("pdf/ref/a.md", "more")
    put("pdf/other/SKILL.md", "another skill")
    content = KINDS["skill"].compose("pdf", {"body": "Read it.", "files": {"ref/a.md": "more"}})
    assert hash_of("skill", "pdf") == KINDS["skill"].hash("pdf", content)
    put("pdf/ref/a.md", "changed")
    assert hash_of("skill", "pdf") != KINDS["skill"].hash("pdf", content)


def test_a_skill_may_be_the_current_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    put("pdf/SKILL.md", "---\nname: pdf\n---\nRead it.")
    expected = hash_of("skill", "pdf")
    monkeypatch.chdir("pdf")
    assert hash_of("skill", ".") == expected


def test_references_are_expanded_as_the_services_do_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOMLOG_HASH_TEST", "opus")
    put("a.md", "---\nmodel: ${LOOMLOG_HASH_TEST}\n---\nHi")
    assert hash_of("agent", "a.md") == sha256('{"model":"opus","name":"a","system_prompt":"Hi"}')


@pytest.mark.parametrize(
    ("file", "text", "arguments", "code", "message"),
    [
        ("x", "", ("agent", "nowhere.md"), 4, "There is no file nowhere.md; an agent of a configuration is named with"),
        ("a.md", "---\nmodell: x\n---\nHi", ("agent", "a.md"), 1, "did you mean model?"),
        ("a.md", "---\nmax_tokens: x\n---\nHi", ("agent", "a.md"), 1, "a.md: max_tokens: "),
        ("a b.md", "Hi", ("agent", "a b.md"), 1, "--name gives another"),
        ("loomlog.yaml", CONFIGURATION, ("agent", "--config", "loomlog.yaml", "revewer"), 4, "did you mean reviewer?"),
        ("loomlog.yaml", "agents: 1", ("agent", "--config", "loomlog.yaml", "reviewer"), 1, "loomlog.yaml:1: agents"),
        ("x", "", ("agent", "--config", "nowhere.yaml", "a"), 1, "nowhere.yaml does not exist"),
        ("x", "", ("skill", "pdf"), 4, "There is no file pdf/SKILL.md."),
        ("pdf/SKILL.md", "---\nname: x\n---\nHi", ("skill", "pdf"), 1, "'x' is not the name by the path"),
        ("pdf/SKILL.md", "---\ntools: {a: b}\n---\nHi", ("skill", "pdf"), 1, "pdf: tools: "),
    ],
)
def test_what_cannot_be_hashed(file: str, text: str, arguments: tuple[str, ...], code: int, message: str) -> None:
    put(file, text)
    result = run(*arguments)
    assert result.exit_code == code
    assert message in result.output


def test_a_code_agent_needs_its_script(monkeypatch: pytest.MonkeyPatch) -> None:
    put("loomlog.yaml", "agents: { coder: { code: coder } }")
    result = run("agent", "--config", "loomlog.yaml", "coder")
    assert result.exit_code == 1
    assert "set LOOMLOG_CODE_AGENTS_ENABLED=1" in result.output
