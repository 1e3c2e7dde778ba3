"""Uses of credentials: noted at once the first time, then with a count, and nothing waits for it."""

import asyncio
from typing import Any

import pytest

from loomlog.schemas.generated.identity_commands import NoteCredentialUses
from loomlog.schemas.generated.identity_events import CredentialNoted, CredentialsUsed
from loomlog.schemas.generated.values import CommandEnvelope, CredentialUse
from loomlog.services.core.families import At
from loomlog.services.families.identity import limits
from loomlog.services.families.identity.credential_uses import AGAIN_AFTER_S, CredentialUses
from loomlog.services.families.identity.decide import decide
from loomlog.services.families.identity.state import entry_key, evolve, initial
from loomlog.services.families.ports.credentials import CredentialUser
from loomlog.services.stream.entities.answers import CommandUnanswered
from tests.services.families.identity.stored import Stored

ADA = CredentialUser(tenant="acme", user="ada", agent="helper", purpose="tool mcp__crm__find", run_id="r_1")
AGAIN_MS = int(AGAIN_AFTER_S * 1000)


class Owners:
    """Take what is noted, unless they are away."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.away = 0
        self.taken: list[NoteCredentialUses] = []
        self.uses = CredentialUses(self, clock_ms=lambda: self.now_ms, first_after_s=0.0)

    async def ask(self, command: Any, *, wait_s: float) -> Any:
        if self.away:
            self.away -= 1
            raise CommandUnanswered("away")
        self.taken.append(command)

    async def until(self, number: int) -> list[CredentialUse]:
        async with asyncio.timeout(30):
            while len(self.taken) < number:
                await asyncio.sleep(0)
        return [use for command in self.taken for use in command.uses]


async def test_a_use_is_noted_once_and_then_counted() -> None:
    owners, stored = Owners(), Stored()
    await stored.set("crm", "hunter2-hunter2")
    reader = stored.reader(uses=owners.uses)
    owners.away = 1
    for number in (1, 2, 3):
        user = CredentialUser(tenant="acme", user="ada", agent="helper", purpose=ADA.purpose, run_id=f"r_{number}")
        await reader.resolve("$cred:crm", user)
    await reader.resolve("$cred:crm", CredentialUser(tenant="acme"))
    (use,) = await owners.until(1)
    assert (use.name, use.version, use.purpose, use.agent, use.user) == ("crm", 1, ADA.purpose, "helper", "ada")
    assert (use.run_id, use.count) == ("r_3", 3)
    await reader.resolve("$cred:crm", ADA)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(owners.taken) == 1
    owners.now_ms += AGAIN_MS
    _, again = await owners.until(2)
    assert (again.run_id, again.count) == ("r_1", 1)
    await reader.resolve("$cred:crm", ADA)
    await owners.uses.close()
    assert len(owners.taken) == 3
    assert "hunter2" not in repr(owners.taken)


def uses_of(*uses: CredentialUse) -> NoteCredentialUses:
    return NoteCredentialUses(envelope=CommandEnvelope(command_id="c"), uses=uses)


def use(purpose: str = "tool a", **more: Any) -> CredentialUse:
    return CredentialUse(scope="tenant", name="crm", version=1, purpose=purpose, **more)


def test_the_newest_uses_are_kept_with_their_counts() -> None:
    state = evolve(initial("identity:acme/00"), CredentialNoted(scope="tenant", name="crm", version=1), 1)
    for number in range(limits.USES_KEPT_MAX + 5):
        state = evolve(state, CredentialsUsed(uses=(use(f"tool {number}", count=2), use(user="ada"))), 10 + number)
    credential = state.credentials[entry_key("tenant", "", "crm")]
    assert len(credential.uses) == limits.USES_KEPT_MAX
    newest = credential.uses[0]
    assert (newest.user, newest.count, newest.at_ms) == ("ada", 25, 34)
    assert credential.uses[1].purpose == "tool 24"
    assert credential.use_count == 75
    again = evolve(state, CredentialNoted(scope="tenant", name="crm", version=2), 50)
    assert again.credentials[entry_key("tenant", "", "crm")].uses == credential.uses


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ((use(), use("tool b")), False),
        ((), False),
        ((use(""),), True),
        ((use(count=0),), True),
        ((use("x" * 201),), True),
        ((use(),) * 101, True),
    ],
)
def test_what_may_be_noted(given: tuple[CredentialUse, ...], refused: bool) -> None:
    at = At(5, caller="credentials")
    state = initial("identity:acme/00")
    if refused:
        assert decide(state, uses_of(*given), at)[0].code == "bad_request"
        return
    assert decide(state, uses_of(*given), at) == (), "it was removed meanwhile"
    state = evolve(state, CredentialNoted(scope="tenant", name="crm", version=1), 1)
    assert decide(state, uses_of(*given), at) == ([CredentialsUsed(uses=given)] if given else ())
