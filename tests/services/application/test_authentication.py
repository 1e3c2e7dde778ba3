import dataclasses
from typing import Any

import pytest

from loomlog.connectors.configuration.principals import TokenTable
from loomlog.schemas.records import replace
from loomlog.services.application.authentication import Authenticator, require_access
from loomlog.services.core.access.decide import Caller
from loomlog.services.core.access.rules import own_data
from loomlog.services.core.access.scopes import RUNS_CREATE, RUNS_READ
from loomlog.services.core.refusals import Refused
from tests.connectors.identity_providers.provider import Provider, providers_of
from tests.services.application.world import ADMIN_CALLER, CALLERS, IVY, READER, STARTER, tokens


@pytest.mark.parametrize("caller", CALLERS, ids=lambda caller: caller.name)
@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_a_token_is_its_caller_whatever_the_case_of_the_scheme(caller: Caller, scheme: str) -> None:
    found = Authenticator(tokens()).identify(f"{scheme} {caller.name}-token")
    assert replace(found, isolated_users=caller.isolated_users) == caller
    assert ("ivy" in found.isolated_users) is ("ivy" in caller.isolated_users)


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "shared-token", "Basic shared-token", "Bearer wrong", "Bearer shared-token x"],
)
def test_anything_else_is_nobody(header: str | None) -> None:
    with pytest.raises(Refused) as info:
        Authenticator(tokens()).identify(header)
    assert info.value.code == "unauthorized"
    assert "shared-token" not in info.value.message


def test_two_principals_of_one_name_are_two_callers() -> None:
    """A declared principal may be called `shared`; it must not become the administrator who is called so."""
    table = tokens()
    (_, administrator), (acme_hash, acme) = table.rows[0], table.rows[1]
    same_name = dataclasses.replace(acme, name=administrator.name)
    gate = Authenticator(TokenTable(rows=(table.rows[0], (acme_hash, same_name))))
    assert gate.identify("Bearer shared-token").is_admin
    assert not gate.identify("Bearer acme-token").is_admin


def test_only_where_it_is_restricted_the_operators_key_takes_the_scope_for_it() -> None:
    def restricted(gate: Authenticator) -> list[str]:
        return [
            caller.name for caller in CALLERS if gate.identify(f"Bearer {caller.name}-token").operator_key_restricted
        ]

    assert restricted(Authenticator(tokens())) == []
    assert restricted(Authenticator(tokens(), restricts_operator_key=True)) == [IVY.name, READER.name, STARTER.name]
    open_gate = Authenticator(TokenTable(rows=(), open_mode=True), restricts_operator_key=True)
    assert not open_gate.identify(None).operator_key_restricted


def test_in_open_mode_everybody_is_the_administrator() -> None:
    gate = Authenticator(TokenTable(rows=(), open_mode=True))
    caller = gate.identify(None)
    assert (caller.is_admin, caller.open_mode, caller.legacy, gate.open_mode) == (True, True, True, True)


@pytest.mark.parametrize(("has_minted", "code"), [(True, "starting"), (False, "unauthorized")])
def test_in_open_mode_a_minted_token_that_is_not_found_is_no_administrator(has_minted: bool, code: str) -> None:
    gate = Authenticator(TokenTable(rows=(), open_mode=True), has_minted=has_minted)
    with pytest.raises(Refused) as info:
        gate.identify("Bearer lct_gone")
    assert info.value.code == code


def test_a_right_that_is_missing_is_named() -> None:
    require_access(READER, own_data(RUNS_READ))
    require_access(ADMIN_CALLER, own_data(RUNS_CREATE))
    with pytest.raises(Refused) as info:
        require_access(READER, own_data(RUNS_CREATE))
    assert (info.value.code, info.value.details["scope"]) == ("insufficient_scope", RUNS_CREATE)


def of_company(provider: Provider, **changes: Any) -> Authenticator:
    return Authenticator(tokens(), restricts_operator_key=True, providers=providers_of(provider, **changes))


async def test_a_token_of_a_provider_is_a_caller_until_it_expires() -> None:
    provider = Provider()
    token = provider.token()
    caller = await of_company(provider).authenticate(f"Bearer {token}")
    assert (caller.tenant, caller.subject, caller.legacy, caller.operator_key_restricted) == (
        "acme",
        "ann",
        False,
        True,
    )
    assert caller.expires_at_ms is not None


async def test_next_to_providers_the_tokens_of_the_files_count() -> None:
    caller = await of_company(Provider(is_away=True)).authenticate(f"Bearer {READER.name}-token")
    assert (caller.name, caller.tenant, caller.scopes) == (READER.name, READER.tenant, READER.scopes)


async def test_every_bad_token_gets_the_same_answer() -> None:
    provider = Provider()
    gate = of_company(provider)
    refusals = []
    for token in ("wrong", "a.b.c", provider.token(aud="billing"), provider.token(exp=1), provider.token(sub=None)):
        with pytest.raises(Refused) as info:
            await gate.authenticate(f"Bearer {token}")
        refusals.append((info.value.code, info.value.message, dict(info.value.details)))
    assert len({str(one) for one in refusals}) == 1
    assert refusals[0][0] == "unauthorized"


async def test_a_token_that_cannot_be_checked_yet_is_not_called_wrong() -> None:
    provider = Provider(is_away=True)
    with pytest.raises(Refused) as info:
        await of_company(provider).authenticate(f"Bearer {provider.token()}")
    assert (info.value.code, info.value.retry_after_s) == ("identity_unavailable", 5)


async def test_an_isolated_person_of_a_provider_is_isolated() -> None:
    provider = Provider()
    caller = await of_company(provider, default_access="isolated").authenticate(f"Bearer {provider.token()}")
    assert caller.is_isolated
