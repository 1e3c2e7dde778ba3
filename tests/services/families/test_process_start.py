"""What passes the check of a configuration does not stop a service, and what stops one is named with its place."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.configuration.principals import build_token_table
from loomlog.connectors.configuration.providers import build_providers
from loomlog.connectors.configuration.volumes import prepare_volumes
from loomlog.connectors.models.catalog import build_models
from loomlog.services.api import main as api
from loomlog.services.cli.main import app
from loomlog.services.families.channel.declarations import configured_channels
from loomlog.services.families.definition.files import configured_definitions
from loomlog.services.families.memory.services import read_options as memory_options
from loomlog.services.families.process_start import SERVICES, check_tiers_of_runtime, load_for_start
from loomlog.services.runtime import main as runtime
from loomlog.services.runtime.effects import build_process_tools, file_skills

AGENT = "agents: {a: {provider: mock, model: m}}\n"
HALF = r"\ud83d"
BAD: Mapping[str, tuple[str, str]] = {
    "half of a pair": (f'agents:\n  a: {{provider: mock, model: m, system_prompt: "x {HALF}"}}', "loomlog.yaml:2: "),
    "the other half": (r'skills: {s: {body: "\ude80 x"}}', "loomlog.yaml:1: "),
    "halves the wrong way round": (r'channels: {c: {scope: user, description: "\ude80\ud83d"}}', "loomlog.yaml:1: "),
    "a NUL in a prompt": (r'agents: {a: {provider: mock, model: m, system_prompt: "a\0b"}}', "loomlog.yaml:1: "),
    "half a pair in a free key": (
        AGENT + f'scheduled_runs:\n  s: {{agent: a, schedule: "@daily", metadata: {{"k{HALF}": 1}}}}',
        "loomlog.yaml:3: ",
    ),
    "half a pair in a user": (
        AGENT + f'scheduled_runs:\n  s: {{agent: a, schedule: "@daily", user_id: "u{HALF}"}}',
        "loomlog.yaml:3: ",
    ),
    "a number beyond all": (
        AGENT + "webhooks:\n  w: {agent: a, auth: {kind: none}, metadata: {x: 1e999}}",
        "loomlog.yaml:3: webhooks.w.metadata: ",
    ),
    "a wrong time": (AGENT + 'scheduled_runs:\n  s: {agent: a, schedule: "0 9 * * 8"}', "loomlog.yaml:3: "),
    "an option of a driver": (
        "providers:\n  p: {driver: ollama, options: {num_ctx: many}}\nagents: {a: {provider: p, model: m}}",
        "loomlog.yaml:2: providers.p: num_ctx is 'many'",
    ),
    "an embedder without its key": (
        "memory:\n  embedder: {provider: openai, model: text-embedding-3-small}",
        "loomlog.yaml:2: memory.embedder: OPENAI_API_KEY is not set",
    ),
    "a tier that leads nowhere": (
        "tiers: {low: [{provider: openai, model: m}]}\nagents:\n  a: {tier: low}",
        "loomlog.yaml:3: agents.a.tier: tier low resolves to nothing",
    ),
    "a folder that cannot be made": (
        "volumes: {v: {path: loomlog.yaml/below, mode: rw}}",
        "volumes.v: cannot make the folder",
    ),
    "a token that is not there": (
        "principals: {p: {tenant: t, subject: s, scopes: [runs:read], token_env: LOOMLOG_P}}",
        "principals.p: its token should be in LOOMLOG_P",
    ),
    "a channel with a period of an agent": (
        "channels:\n  c: {scope: user, publisher: system, period: 1m}",
        "loomlog.yaml:2: channels.c.scope",
    ),
}
GOOD: Mapping[str, str] = {
    "an escaped emoji": r'agents: {a: {provider: mock, model: m, system_prompt: "Answer with \ud83d\ude80"}}',
    "the same in JSON": json.dumps({"agents": {"a": {"provider": "mock", "model": "m", "description": "\U0001f680"}}}),
    "fractions where the author is free": AGENT
    + 'scheduled_runs: {s: {agent: a, schedule: "@daily", metadata: {share: 0.5, parts: [0.1, {x: 2.5}]}}}\n'
    + "webhooks: {w: {agent: a, auth: {kind: none}, metadata: {share: 0.5}}}\n"
    + "remote_tools: {t: {description: d, input_schema: {type: object, properties: {x: {minimum: 0.5}}}}}",
    "bands of an agent": "agents: {a: {provider: mock, model: m, memory_consolidation: {merge_threshold: 0.9}}}",
    "a payload with fractions": AGENT
    + 'scheduled_runs: {s: {agent: a, schedule: "@daily", user_id: u, '
    + "on_complete: [{kind: memory.set, scope: user, key: k, payload: {x: 1.5}}]}}",
}
CORPUS = Path(__file__).parents[2] / "connectors" / "configuration" / "corpus"


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder and an environment of its own for each test."""
    for name in os.environ:
        if name.startswith(("LOOMLOG_", "LOOMCYCLE_")) or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def checked() -> dict[str, Any]:
    result = CliRunner().invoke(app, ["agents", "check", "--json"])
    answer: dict[str, Any] = json.loads(result.stdout)
    assert answer["ok"] is (result.exit_code == 0)
    return answer


def start(folder: Path) -> None:
    """Build of the configuration what the services build before they connect to anything."""
    loaded = load_for_start(os.environ, working_directory=folder, open_on_this_machine=True)
    configured_definitions(loaded.configuration)
    configured_channels(loaded.configuration)
    file_skills(loaded)
    build_process_tools(loaded)
    memory_options(loaded, os.environ)
    providers = build_providers(loaded.configuration, loaded.settings, os.environ)
    build_models({name: one for name, one in providers.items() if one.is_usable})
    check_tiers_of_runtime(loaded, os.environ)
    build_token_table(loaded.configuration, loaded.settings, os.environ)
    prepare_volumes(loaded.configuration)


@pytest.mark.parametrize("name", BAD)
def test_the_check_finds_what_would_stop_a_service_and_names_the_place(
    name: str, alone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, place = BAD[name]
    (alone / "loomlog.yaml").write_text(text, encoding="utf-8")
    findings = checked()["findings"]
    assert any(finding.startswith(place) for finding in findings), findings
    # The services say the same and do not start: each finding stops at least one of them.
    codes = [api.main([]), runtime.main()]
    said = capsys.readouterr().err
    assert 2 in codes
    assert all(finding in said for finding in findings)


@pytest.mark.parametrize("name", GOOD)
def test_what_passes_the_check_stops_no_service(name: str, alone: Path) -> None:
    (alone / "loomlog.yaml").write_text(GOOD[name], encoding="utf-8")
    assert checked()["ok"]
    start(alone)


@pytest.mark.parametrize("file", sorted(CORPUS.glob("*.yaml")), ids=lambda file: file.stem)
def test_files_of_the_reference_start(file: Path, alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"MOCK_ENABLED": "1", "CODE_AGENTS_ENABLED": "1"}.items():
        monkeypatch.setenv(f"LOOMLOG_{name}", value)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    (alone / "loomcycle.yaml").write_bytes(file.read_bytes())
    assert checked()["findings"] == []
    start(alone)


def test_a_pair_of_escapes_is_one_character(alone: Path) -> None:
    (alone / "loomlog.yaml").write_text(GOOD["an escaped emoji"], encoding="utf-8")
    loaded = load_for_start(os.environ, working_directory=alone, open_on_this_machine=True)
    assert loaded.configuration.agents["a"].system_prompt == "Answer with \U0001f680"


def test_a_prompt_of_a_file_and_a_value_of_the_environment_are_read_as_strictly(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (alone / "prompt.md").write_bytes(b"a\0b")
    (alone / "loomlog.yaml").write_text(
        "agents:\n  a: {provider: mock, model: m, system_prompt_file: prompt.md}\n"
        "  b: {provider: mock, model: m, system_prompt: '${LOOMLOG_TEXT}'}\n"
    )
    monkeypatch.setenv("LOOMLOG_TEXT", os.fsdecode(b"\xff"))
    assert [finding.partition(": ")[0] for finding in checked()["findings"]] == ["loomlog.yaml:2", "loomlog.yaml:3"]


def test_all_mistakes_of_the_start_come_together(alone: Path) -> None:
    text = BAD["an option of a driver"][0] + "\n" + BAD["an embedder without its key"][0]
    (alone / "loomlog.yaml").write_text(text)
    with pytest.raises(ConfigurationError) as problem:
        load_for_start(os.environ, working_directory=alone, services=SERVICES, open_on_this_machine=True)
    assert len(problem.value.findings) == 2


def test_an_api_that_knows_no_key_starts_where_its_runtimes_know_them(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (alone / "loomlog.yaml").write_text(BAD["a tier that leads nowhere"][0])
    assert load_for_start(os.environ, working_directory=alone, services=["api"], open_on_this_machine=True)
    with pytest.raises(ConfigurationError):
        load_for_start(os.environ, working_directory=alone, services=["runtime"])
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    assert load_for_start(os.environ, working_directory=alone, services=["runtime"])
