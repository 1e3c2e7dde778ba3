import pytest

from tests.connectors.configuration.conftest import Folder

AGENTS = "agents: {helper: {model: m, provider: mock}}\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{agent: helpr, schedule: '@daily'}", "there is no agent helpr; did you mean helper?"),
        ("{agent: helper}", "missing required field: schedule"),
        ("{agent: helper, schedule: whenever}", "schedule: expected five fields"),
        ("{agent: helper, schedule: '0 0 30 2 *'}", "no month of these has such a day"),
        ("{agent: helper, schedule: '@daily', timezone: Mars/Base}", "timezone: expected a name"),
        ("{agent: helper, schedule: '@daily', overlap: both}", "overlap"),
        ("{agent: helper, schedule: '@daily', catch_up_max: 101}", "catch_up_max"),
        ("{agent: helper, schedule: '@daily', on_complete: [{kind: channel.publish}]}", "on_complete[0].channel"),
    ],
)
def test_a_schedule_that_cannot_be_is_a_mistake_of_the_files(folder: Folder, text: str, problem: str) -> None:
    problems = folder.problems(AGENTS + f"scheduled_runs: {{nightly: {text}}}")
    assert any("scheduled_runs.nightly" in line and problem in line for line in problems), problems


def test_a_schedule_of_the_files_is_off_unless_it_says_otherwise(folder: Folder) -> None:
    text = "scheduled_runs: {nightly: {agent: helper, schedule: '@daily', tenant_id: acme}}"
    schedule = folder.load(AGENTS + text).configuration.scheduled_runs["nightly"]
    assert (schedule.enabled, schedule.tenant_id, schedule.catch_up_max) == (None, "acme", 1)


def test_the_names_of_its_credentials_are_no_unknown_settings(folder: Folder) -> None:
    environ = {"LOOMLOG_SCHEDULER_ENV_ALLOWLIST": "LOOMLOG_GITHUB", "LOOMLOG_GITHUB": "secret"}
    assert folder.load(AGENTS, environ).settings.scheduler_env_allowlist == ("LOOMLOG_GITHUB",)
