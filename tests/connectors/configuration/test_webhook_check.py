import pytest

from tests.connectors.configuration.conftest import Folder

HOOK = "webhooks: {hook: {agent: helper, auth: {kind: hmac, signing_secret_env: LOOMLOG_HOOK}}}"
AGENTS = "agents: {helper: {model: m, provider: mock}}\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{agent: helpr, auth: {kind: none}}", "there is no agent helpr; did you mean helper?"),
        ("{agent: helper, auth: {kind: hmac}}", "missing required field: auth.signing_secret_env"),
        ("{delivery: channel, agent: helper, auth: {kind: none}}", "missing required field: channel"),
        (
            "{agent: helper, auth: {kind: hmac, signing_secret_env: LOOMLOG_AUTH_TOKEN}}",
            "LOOMLOG_AUTH_TOKEN is a secret of the installation",
        ),
        ("{agent: helper, auth: {kind: none}, payload_mapping: {goal: $.a.*}}", "payload_mapping.goal"),
    ],
)
def test_a_webhook_that_cannot_be_is_a_mistake_of_the_files(folder: Folder, text: str, problem: str) -> None:
    problems = folder.problems(AGENTS + f"webhooks: {{hook: {text}}}")
    assert any("webhooks.hook" in line and problem in line for line in problems), problems


def test_a_webhook_of_the_files_is_kept_and_its_secret_is_known(folder: Folder) -> None:
    loaded = folder.load(AGENTS + HOOK, {"LOOMLOG_HOOK": "hush" * 8})
    assert loaded.configuration.webhooks["hook"].agent == "helper"
    assert loaded.secrets["LOOMLOG_HOOK"] == "hush" * 8
