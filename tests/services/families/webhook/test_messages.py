"""Which queue gets the message of a delivery: the one that the publisher of the message finds as well."""

from collections.abc import Sequence

import pytest

from loomlog.services.families.channel.caller import Declaration
from loomlog.services.families.webhook.messages import queue_of_message


class Declared:
    """A channel of each scope, by the name of the scope."""

    def find(self, tenant: str, name: str) -> Declaration | None:
        return Declaration(name=name, scope=name) if name in ("global", "tenant", "user", "agent") else None

    def list(self, tenant: str) -> Sequence[Declaration]:
        return ()


@pytest.mark.parametrize(
    ("channel", "user_id", "queue"),
    [
        ("global", "ada", "channel:/global/global/"),
        ("tenant", "", "channel:acme/tenant/tenant/"),
        ("user", "ada", "channel:acme/user/user/ada"),
        ("agent", "ada", "channel:acme/agent/agent/ada"),
        ("user", "", ""),
        ("absent", "ada", ""),
    ],
)
def test_the_declared_scope_says_which_queue_gets_a_message(channel: str, user_id: str, queue: str) -> None:
    assert queue_of_message(Declared(), "acme", channel, user_id) == queue
