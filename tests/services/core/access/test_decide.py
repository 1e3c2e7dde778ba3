import pytest

from loomlog.connectors.configuration.principals import Principal
from loomlog.services.core.access.decide import (
    AccessFilter,
    Caller,
    ResourceOwner,
    RunIdentity,
    access_filter,
    can_see,
    has_scope,
    resolve_identity,
)
from loomlog.services.core.access.scopes import ADMIN, INCLUDES, RUNS_CREATE, RUNS_READ, SCOPES, TENANT, USER


def caller(*scopes: str, tenant: str = "acme", subject: str = "ann", legacy: bool = False) -> Caller:
    return Caller(name="test", tenant=tenant, subject=subject, scopes=frozenset(scopes), legacy=legacy)


ADMINISTRATOR = caller(ADMIN, tenant="default", subject="default")
OPERATOR = caller(TENANT, subject="op")
MEMBER = caller(RUNS_CREATE, RUNS_READ)
IVY = caller(USER, subject="ivy")


# --- may -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", sorted(SCOPES))
@pytest.mark.parametrize("asked", sorted(SCOPES))
def test_a_scope_gives_itself_and_what_it_includes_and_nothing_else(held: str, asked: str) -> None:
    assert has_scope(caller(held), asked) == (asked == held or asked in INCLUDES.get(held, ()))


@pytest.mark.parametrize("held", sorted(SCOPES))
@pytest.mark.parametrize("asked", sorted(SCOPES))
def test_the_table_of_tokens_would_decide_the_same(held: str, asked: str) -> None:
    principal = Principal(name="test", tenant="acme", subject="ann", scopes=frozenset({held}))
    assert has_scope(caller(held), asked) == principal.allows(asked)
    assert caller(held).is_isolated == principal.is_isolated


def test_nobody_may_anything_without_scopes() -> None:
    assert not any(has_scope(caller(), scope) for scope in SCOPES)


def test_an_unknown_scope_held_grants_nothing() -> None:
    assert not any(has_scope(caller("substrate:god"), scope) for scope in SCOPES)


def test_asking_for_a_scope_that_does_not_exist_is_a_bug_and_not_an_answer() -> None:
    with pytest.raises(AssertionError, match="catalogue"):
        has_scope(ADMINISTRATOR, "runs:delete")


# --- sees ------------------------------------------------------------------------------------------------------------


def test_an_administrator_sees_every_tenant() -> None:
    assert can_see(ADMINISTRATOR, ResourceOwner(tenant="globex", user_id="anybody"))


@pytest.mark.parametrize("who", [OPERATOR, MEMBER, IVY])
def test_another_tenant_is_invisible(who: Caller) -> None:
    assert not can_see(who, ResourceOwner(tenant="globex", user_id=who.subject))


@pytest.mark.parametrize("who", [OPERATOR, MEMBER])
def test_operators_and_members_see_their_whole_tenant(who: Caller) -> None:
    assert can_see(who, ResourceOwner(tenant="acme", user_id="somebody else"))


def test_an_isolated_caller_sees_its_own_only() -> None:
    assert can_see(IVY, ResourceOwner(tenant="acme", user_id="ivy"))
    assert not can_see(IVY, ResourceOwner(tenant="acme", user_id="ann"))


def test_an_operator_who_also_holds_the_user_scope_is_not_isolated() -> None:
    assert not caller(USER, TENANT).is_isolated
    assert can_see(caller(USER, TENANT), ResourceOwner(tenant="acme", user_id="ann"))


@pytest.mark.parametrize("who", [ADMINISTRATOR, OPERATOR, MEMBER, IVY])
def test_a_list_reaches_exactly_what_is_seen(who: Caller) -> None:
    allowed = access_filter(who)
    for owner in (ResourceOwner(tenant=t, user_id=u) for t in ("acme", "globex", "default") for u in ("ivy", "ann")):
        listed = allowed.tenant in (None, owner.tenant) and allowed.user_id in (None, owner.user_id)
        assert listed == can_see(who, owner)


def test_the_reach_of_each_kind() -> None:
    assert access_filter(ADMINISTRATOR) == AccessFilter(tenant=None, user_id=None)
    assert access_filter(MEMBER) == AccessFilter(tenant="acme", user_id=None)
    assert access_filter(IVY) == AccessFilter(tenant="acme", user_id="ivy")


# --- identity --------------------------------------------------------------------------------------------------------


def test_the_shared_token_may_name_the_user_it_works_for() -> None:
    shared = caller(ADMIN, tenant="default", subject="default", legacy=True)
    assert resolve_identity(shared, user_id="zoe") == RunIdentity(tenant="default", subject="default", user_id="zoe")
    assert resolve_identity(shared, user_id="").user_id == "default"


@pytest.mark.parametrize("who", [ADMINISTRATOR, OPERATOR, MEMBER, IVY])
def test_everybody_else_works_for_itself_whatever_it_says(who: Caller) -> None:
    assert resolve_identity(who, user_id="zoe") == RunIdentity(
        tenant=who.tenant, subject=who.subject, user_id=who.subject
    )


def test_a_session_keeps_its_tenant_and_its_user() -> None:
    owner = ResourceOwner(tenant="acme", user_id="ivy")
    assert resolve_identity(ADMINISTRATOR, user_id="zoe", session=owner) == RunIdentity(
        tenant="acme", subject="default", user_id="ivy"
    )
