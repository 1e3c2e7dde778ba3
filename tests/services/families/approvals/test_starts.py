"""A run that starts after rules for tool calls were set has them."""

from loomlog.services.application.runs.requests import RunRequest
from loomlog.services.families.approvals.api import SET_POLICY
from tests.services.application.performing import perform
from tests.services.application.world import ACME, world

RULES = [{"name": "no-shell", "tools": ["Bash"], "then": "deny"}]


async def test_a_run_that_is_started_after_rules_were_set_is_decided_by_an_owner_that_has_read_them() -> None:
    async with world() as made:
        (position,) = (await perform(made, SET_POLICY, ACME, rules=RULES)).positions
        started = await made.layer.runs.start(ACME, RunRequest(agent="soaker", prompt="go"))
        started.stream.close()
        assert position in made.commands()[-1].after
