import json
import os
import socket
import sys
import sysconfig
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from loomlog.connectors.errors import Transient
from loomlog.services.cli.doctor import checks, doctor
from loomlog.services.cli.doctor.checks import run_checks
from loomlog.services.cli.errors import CliError
from loomlog.services.cli.main import app
from loomlog.services.cli.stack import home, java
from loomlog.services.core.check import FAIL, OFF, OK, WARN, Check
from tests.services.cli.log.test_projections import PROJECTOR, lag
from tests.services.cli.places import CONFIGURATION, child, configured, settings_in, with_stack

CONFIG_ARGS = sysconfig.get_config_var("CONFIG_ARGS") or ""
OUTSIDE = {"LOOMLOG_KAFKA": "k.test:1", "LOOMLOG_POSTGRES": "postgresql://p"}


async def found_in(tmp_path, **environ: str) -> dict[str, Check]:
    free = {"LOOMLOG_LISTEN_ADDR": "127.0.0.1:0", "LOOMLOG_INSIGHTS_PORT": "0"}
    cli = settings_in(tmp_path, **{**free, **OUTSIDE, **environ})
    return {check.name: check for check in await run_checks(cli, tmp_path)}


@pytest.mark.parametrize(
    ("base_prefix", "arguments", "is_optimised"),
    [
        ("/usr", "", True),
        ("/usr/local", "'--enable-optimizations' '--with-lto'", True),
        ("/home/a/.pyenv/versions/3.11.7", "'--prefix=/home/a'", False),
    ],
)
def test_an_interpreter_without_profile_guided_optimisation_is_told_apart(base_prefix, arguments, is_optimised):
    assert checks.is_optimised_python(base_prefix, arguments) == is_optimised


async def test_folders_of_volumes_are_looked_at(tmp_path):
    configured(tmp_path)
    check = (await found_in(tmp_path))["volumes"]
    assert (check.state, "volumes.source" in check.remedy) == (WARN, True)
    (tmp_path / "results").write_text("in the way")
    check = (await found_in(tmp_path))["volumes"]
    assert (check.state, "volumes.out: cannot make the folder" in check.remedy) == (FAIL, True)


async def test_a_machine_that_has_everything_is_well(tmp_path):
    configured(tmp_path)
    (tmp_path / "src").mkdir()
    actual = await found_in(tmp_path)
    assert {name: check.state for name, check in actual.items()} == {
        "python": OK if checks.is_optimised_python(sys.base_prefix, CONFIG_ARGS) else WARN,
        "state folder": OK,
        "configuration": OK,
        "volumes": OK,
        "models": WARN,
        "access": WARN,
        "ports": OK,
        "earlier stack": OK,
    }
    assert "script, not a model" in actual["models"].remedy


async def test_what_is_brought_along_is_looked_for_only_when_it_is_needed(tmp_path):
    configured(tmp_path)
    cli = settings_in(tmp_path, LOOMLOG_LISTEN_ADDR="127.0.0.1:0", LOOMLOG_INSIGHTS_PORT="0", LOOMLOG_KAFKA_PORT="0")
    names = {check.name for check in await run_checks(cli, tmp_path)}
    assert {"java", "broker's jars", "postgres"} <= names
    assert not {"java", "broker's jars", "postgres"} & set(await found_in(tmp_path))


async def test_no_java_is_said_with_how_to_get_one(tmp_path, monkeypatch):
    monkeypatch.setattr(java, "bundled_java_home", lambda: None)
    configured(tmp_path)
    actual = await found_in(tmp_path, LOOMLOG_KAFKA="", PATH=str(tmp_path))
    assert actual["java"].state == FAIL
    assert "apt-get install openjdk-17" in actual["java"].remedy
    assert actual["broker's jars"].state == FAIL
    assert "maven" in actual["broker's jars"].remedy


async def test_jars_that_are_there_need_no_maven(tmp_path):
    configured(tmp_path)
    jar = tmp_path / "home" / "cache" / "jars-abc" / "kafka.jar"
    jar.parent.mkdir(parents=True)
    jar.touch()
    assert (await found_in(tmp_path, LOOMLOG_KAFKA="", PATH=str(tmp_path)))["broker's jars"].state == OK


async def test_mistakes_of_the_configuration_are_all_told(tmp_path):
    configured(tmp_path, CONFIGURATION + "colour: red\nshape: round\n")
    check = (await found_in(tmp_path))["configuration"]
    assert (check.state, check.text) == (FAIL, "2 mistakes; no service would start")
    assert "colour" in check.remedy
    assert "shape" in check.remedy


async def test_a_key_makes_the_model_real(tmp_path):
    text = CONFIGURATION.replace("provider: mock, model: mock-reviewer", "provider: anthropic, model: claude-x")
    configured(tmp_path, text)
    assert (await found_in(tmp_path))["models"].state == FAIL
    real = (await found_in(tmp_path, ANTHROPIC_API_KEY="a-key-of-some-length"))["models"]
    assert (real.state, real.text) == (OK, "reviewer runs on anthropic/claude-x")
    assert "a-key-of-some-length" not in str(real)


async def test_providers_that_are_there_only_for_runs_with_a_key_are_named(tmp_path):
    configured(tmp_path)
    secret = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
    check = (await found_in(tmp_path, LOOMLOG_SECRET_KEY=secret, OPENAI_API_KEY="a-key"))["provider keys"]
    assert check.state == OK
    assert "anthropic (ANTHROPIC_API_KEY)" in check.text
    assert "openai" not in check.text
    assert "provider keys" not in await found_in(tmp_path)


async def test_access_is_open_by_token_or_impossible(tmp_path):
    configured(tmp_path)
    assert "open" in (await found_in(tmp_path))["access"].text
    assert (await found_in(tmp_path, LOOMLOG_AUTH_TOKEN="a-shared-token"))["access"].state == OK
    assert (await found_in(tmp_path, LOOMLOG_LISTEN_ADDR="0.0.0.0:0"))["access"].state == FAIL


async def test_a_port_in_use_names_who_has_it(tmp_path):
    configured(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        check = (await found_in(tmp_path, LOOMLOG_LISTEN_ADDR=f"127.0.0.1:{server.getsockname()[1]}"))["ports"]
    assert check.state == FAIL
    assert f"process {os.getpid()}" in check.text
    assert "LOOMLOG_LISTEN_ADDR" in check.remedy


async def test_too_small_a_disk_fails(tmp_path, monkeypatch):
    configured(tmp_path)
    monkeypatch.setattr(home, "MINIMUM_FREE_BYTES", 1 << 60)
    assert (await found_in(tmp_path))["state folder"].state == FAIL


async def test_a_home_that_was_started_before_is_not_asked_for_the_room_of_a_first_start(tmp_path, monkeypatch):
    configured(tmp_path)
    monkeypatch.setattr(home, "MINIMUM_FREE_BYTES", 1 << 60)
    settings_in(tmp_path).home.kafka_data.mkdir(parents=True)
    assert (await found_in(tmp_path))["state folder"].state == OK


async def test_what_an_earlier_stack_left_is_told(tmp_path):
    configured(tmp_path)
    cli = with_stack(
        settings_in(tmp_path, LOOMLOG_LISTEN_ADDR="127.0.0.1:0", **OUTSIDE), child("kafka"), supervised=False
    )
    actual = {check.name: check for check in await run_checks(cli, tmp_path)}
    assert actual["earlier stack"].state == WARN
    assert "kafka" in actual["earlier stack"].text


# --- what runs --------------------------------------------------------------------------------------------------------


def child_json(**changes):
    return {"name": "api", "state": "ready", "restarts": 0, "pid": 7, "role": None, "problem": None} | changes


OWNER = child_json(name="runtime", role="owner")
SPARE = child_json(name="runtime-2", role="spare")


def status(**changes):
    actual = {
        "children": [child_json()],
        "logs": "/logs",
        "spares": 1,
        "api": {"url": "http://x", "ready": True, "error": None},
        "projection": lag(lag=0),
        "insights": {"url": "http://i", "lag_records": 0},
    }
    return actual | changes


class ReadReplicas(list[str]):
    """Replicated aggregates; `broken` is one that is quarantined."""

    broken = ""

    def quarantined(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(id="budget:/installation", quarantine=self.broken)] if self.broken else []

    def entities(self, family: str, tenant: str) -> list[SimpleNamespace]:
        assert (family, tenant) == ("definition", "")
        return []


WELL = ReadReplicas(["budget:/installation"])
BROKEN = ReadReplicas()
BROKEN.broken = "offset 7: it does not follow"


async def checked_while_running(tmp_path, monkeypatch, found, topics=(), entities=WELL) -> dict[str, Check]:
    configured(tmp_path)

    async def given(cli):
        return found

    async def made(*_, **__):
        if isinstance(topics, Exception):
            raise topics
        return list(topics)

    monkeypatch.setattr(checks, "collect_status", given)

    async def read(*_):
        if isinstance(entities, Exception):
            raise entities
        return entities

    async def entities_are_well(cli):
        return [Check(name="entities", state=OK, text="none quarantined")]

    async def allow(dsn):
        return 100

    monkeypatch.setattr(checks, "read_max_connections", allow)
    monkeypatch.setattr(checks, "apply_topics", made)
    monkeypatch.setattr(checks, "check_entities", entities_are_well)

    async def no_open_letters(cli):
        return 0

    monkeypatch.setattr(checks, "read_replicas", read)
    monkeypatch.setattr(checks, "count_open_letters", no_open_letters)
    cli = with_stack(settings_in(tmp_path, LOOMLOG_LISTEN_ADDR="127.0.0.1:0", **OUTSIDE), child("api"))
    return {check.name: check for check in await run_checks(cli, tmp_path)}


async def test_a_stack_that_is_well_is_well_in_every_part(tmp_path, monkeypatch):
    actual = await checked_while_running(tmp_path, monkeypatch, status())
    parts = ("processes", "connections", "topics", "entities", "files", "api", "read models", "insights")
    assert {name: actual[name].state for name in parts} == dict.fromkeys(parts, OK)
    assert "ports" not in actual, "they are in use by us"


@pytest.mark.parametrize(
    ("changes", "part", "state", "said"),
    [
        ({"children": [child_json(state="failed")]}, "processes", FAIL, "api is failed"),
        ({"children": [child_json(restarts=3)]}, "processes", WARN, "api 3 times"),
        ({"children": [child_json(state="silent")]}, "processes", FAIL, "api is silent (process 7)"),
        ({"children": [child_json(state="suspended")]}, "processes", FAIL, "api is suspended"),
        ({"children": [OWNER, SPARE]}, "spares", OK, "1 runtime of 1 ready to take over"),
        ({"children": [OWNER]}, "spares", WARN, "0 runtimes of 1 ready"),
        ({"children": [OWNER, SPARE]}, "clocks", OK, "they agree"),
        ({"children": [OWNER, SPARE | {"problem": "its clock is"}]}, "clocks", FAIL, "runtime-2: its clock is"),
        ({"children": [OWNER, SPARE]}, "connections", WARN, "100 are allowed, and the processes open at most 118"),
        ({"api": {"url": "http://x", "ready": False, "error": "away"}}, "api", FAIL, "away"),
        ({"projection": {"error": "no tables"}}, "read models", FAIL, "no tables"),
        ({"projection": lag(projectors=[])}, "read models", FAIL, "ever"),
        ({"projection": lag(projectors=[PROJECTOR | {"said_s_ago": 60.0}])}, "read models", FAIL, "1 min 00 s"),
        ({"projection": lag(problems=2)}, "read models", WARN, "2 records could not"),
        ({"insights": {"error": "away"}}, "insights", WARN, "away"),
        ({"insights": None}, "insights", OFF, "switched off"),
    ],
)
async def test_each_part_can_be_unwell(tmp_path, monkeypatch, changes, part, state, said):
    check = (await checked_while_running(tmp_path, monkeypatch, status(**changes)))[part]
    assert check.state == state
    assert said in check.text
    assert bool(check.remedy) == (state not in (OK, OFF))


@pytest.mark.parametrize(
    ("waits_s", "state", "said"),
    [
        (0.0, OK, "everything is signed"),
        (30.0, OK, "everything is signed"),
        (75.0, FAIL, "1 min 15 s"),
        (CliError("away"), FAIL, "cannot be read"),
    ],
)
async def test_an_auditor_that_signs_nothing_is_noticed(tmp_path, monkeypatch, waits_s, state, said):
    async def given(cli):
        if isinstance(waits_s, Exception):
            raise waits_s
        return waits_s

    async def verified(cli, checkpoints):
        return []

    monkeypatch.setattr(checks, "oldest_unsigned_age_s", given)
    monkeypatch.setattr(checks, "verify_newest", verified)
    unsigned = (await checked_while_running(tmp_path, monkeypatch, status()))["audit"]
    assert (unsigned.state, "nothing is signed" in unsigned.text) == (OFF, True)
    children = [child_json(), child_json(name="auditor")]
    check = (await checked_while_running(tmp_path, monkeypatch, status(children=children)))["audit"]
    assert check.state == state
    assert said in check.text


@pytest.mark.parametrize(
    ("answer", "state", "said"),
    [
        ([], OK, "everything is signed"),
        ([True, False], FAIL, "loom.run.events/1: the newest records are not what was signed"),
        (CliError("away"), FAIL, "cannot be verified"),
        (TimeoutError(), WARN, "were not verified within 10 s"),
    ],
)
async def test_newest_records_that_are_not_what_was_signed_are_noticed(tmp_path, monkeypatch, answer, state, said):
    async def unsigned(cli):
        return 0.0

    async def verified(cli, checkpoints):
        if isinstance(answer, Exception):
            raise answer
        return [
            SimpleNamespace(topic="loom.run.events", partition=partition, is_clean=is_clean)
            for partition, is_clean in enumerate(answer)
        ]

    monkeypatch.setattr(checks, "oldest_unsigned_age_s", unsigned)
    monkeypatch.setattr(checks, "verify_newest", verified)
    children = [child_json(), child_json(name="auditor")]
    check = (await checked_while_running(tmp_path, monkeypatch, status(children=children)))["audit"]
    assert check.state == state
    assert said in check.text


@pytest.mark.parametrize(
    ("entities", "said", "remedy"),
    [
        (BROKEN, "budget:/installation: offset 7", "`loomlog repair budget:/installation`"),
        (Transient("the broker is away", kind="unavailable"), "cannot be read now", "away"),
    ],
)
async def test_entities_that_stopped_are_noticed(tmp_path, monkeypatch, entities, said, remedy):
    check = (await checked_while_running(tmp_path, monkeypatch, status(), entities=entities))["replicas"]
    assert (check.state, said in check.text, remedy in check.remedy) == (FAIL, True, True)


async def test_topics_that_cannot_be_compared_fail(tmp_path, monkeypatch):
    actual = await checked_while_running(tmp_path, monkeypatch, status(), topics=CliError("the broker is away."))
    assert (actual["topics"].state, actual["topics"].remedy) == (FAIL, "the broker is away.")


def diagnosed(monkeypatch, tmp_path, *found: Check, as_json: bool = False):
    async def given(cli, working_directory):
        return list(found)

    monkeypatch.setattr(doctor, "run_checks", given)
    arguments = ["doctor", "--json"] if as_json else ["doctor"]
    return CliRunner().invoke(app, arguments, env={"LOOMLOG_HOME": str(tmp_path)})


def test_the_doctor_ends_with_1_when_something_is_wrong_and_says_what_to_do(monkeypatch, tmp_path):
    well = Check(name="python", state=OK, text="3.12")
    odd = Check(name="access", state=WARN, text="open", remedy="Close it.")
    wrong = Check(name="java", state=FAIL, text="none", remedy="Get one.\nOr another.")
    result = diagnosed(monkeypatch, tmp_path, well, odd, wrong)
    assert result.exit_code == 1
    assert (
        "fail  java           none\n                     Get one.\n                     Or another.\n" in result.stdout
    )
    assert "1 check failed, 1 warning, 1 passed." in result.stdout
    assert diagnosed(monkeypatch, tmp_path, well, odd).exit_code == 0
    actual = json.loads(diagnosed(monkeypatch, tmp_path, well, wrong, as_json=True).stdout)
    assert (actual["ok"], [check["state"] for check in actual["checks"]]) == (False, [OK, FAIL])
