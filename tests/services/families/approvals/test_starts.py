"""A run that starts after rules for tool calls were set has them."""

from loomlog.connectors.configuration.secret_registry import Purpose, SecretRegistry, SecretUse
from loomlog.services.application.runs.requests import RunRequest
from loomlog.services.families.approvals.api import SET_POLICY
from loomlog.services.families.approvals.services import ApprovalOptions
from tests.services.application.performing import perform
from tests.services.application.world import ACME, GLOBEX, declined, world

RULES = [{"name": "no-shell", "tools": ["Bash"], "then": "deny"}]


async def test_a_run_that_is_started_after_rules_were_set_is_decided_by_an_owner_that_has_read_them() -> None:
    async with world() as made:
        (position,) = (await perform(made, SET_POLICY, ACME, rules=RULES)).positions
        started = await made.layer.runs.start(ACME, RunRequest(agent="soaker", prompt="go"))
        started.stream.close()
        assert position in made.commands()[-1].after


async def test_rules_that_name_a_secret_that_may_not_sign_are_refused_with_the_rule() -> None:
    notify = {"url": "https://pager.example.com/calls", "secret_env": "PAGER"}
    asks = {"name": "large", "then": "ask", "ask": {"subjects": ["ann"], "notify": notify}}
    use = SecretUse("PAGER", Purpose.CALLBACK_SIGNATURE, "acme", "pager.example.com", ("secrets", "PAGER"))
    for environ, is_taken in (({"PAGER": "long-enough"}, True), ({}, False)):
        options = ApprovalOptions(secrets=SecretRegistry([use], environ))
        async with world(family_options=(options,)) as made:
            if is_taken:
                assert (await perform(made, SET_POLICY, ACME, rules=[*RULES, asks])).value.version == 1
            refused = await declined(perform(made, SET_POLICY, ACME if not is_taken else GLOBEX, rules=[*RULES, asks]))
        assert refused.code == "bad_request"
        assert refused.message.startswith("rules[1] (large).ask.notify.secret_env: ")
