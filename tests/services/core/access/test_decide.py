import pytest

from loomlog.connectors.configuration.principals import Principal
from loomlog.services.core.access.decide import Caller, Identity, Owner, Reach, identity, may, reach, sees
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
    assert may(caller(held), asked) == (asked == held or asked in INCLUDES.get(held, ()))


@pytest.mark.parametrize("held", sorted(SCOPES))
@pytest.mark.parametrize("asked", sorted(SCOPES))
def test_the_table_of_tokens_would_decide_the_same(held: str, asked: str) -> None:
    principal = Principal(name="test", tenant="acme", subject="ann", scopes=frozenset({held}))
    assert may(caller(held), asked) == principal.allows(asked)
    assert caller(held).is_isolated == principal.is_isolated


def test_nobody_may_anything_without_scopes() -> None:
    assert not any(may(caller(), scope) for scope in SCOPES)


def test_an_unknown_scope_held_grants_nothing() -> None:
    assert not any(may(caller("substrate:god"), scope) for scope in SCOPES)


def test_asking_for_a_scope_that_does_not_exist_is_a_bug_and_not_an_answer() -> None:
    with pytest.raises(AssertionError, match="catalogue"):
        may(ADMINISTRATOR, "runs:delete")


# --- sees ------------------------------------------------------------------------------------------------------------


def test_an_administrator_sees_every_tenant() -> None:
    assert sees(ADMINISTRATOR, Owner(tenant="globex", user_id="anybody"))


@pytest.mark.parametrize("who", [OPERATOR, MEMBER, IVY])
def test_another_tenant_is_invisible(who: Caller) -> None:
    assert not sees(who, Owner(tenant="globex", user_id=who.subject))


@pytest.mark.parametrize("who", [OPERATOR, MEMBER])
def test_operators_and_members_see_their_whole_tenant(who: Caller) -> None:
    assert sees(who, Owner(tenant="acme", user_id="somebody else"))


def test_an_isolated_caller_sees_its_own_only() -> None:
    assert sees(IVY, Owner(tenant="acme", user_id="ivy"))
    assert not sees(IVY, Owner(tenant="acme", user_id="ann"))


def test_an_operator_who_also_holds_the_user_scope_is_not_isolated() -> None:
    assert not caller(USER, TENANT).is_isolated
    assert sees(caller(USER, TENANT), Owner(tenant="acme", user_id="ann"))


@pytest.mark.parametrize("who", [ADMINISTRATOR, OPERATOR, MEMBER, IVY])
def test_a_list_reaches_exactly_what_is_seen(who: Caller) -> None:
    allowed = reach(who)
    for owner in (Owner(tenant=t, user_id=u) for t in ("acme", "globex", "default") for u in ("ivy", "ann")):
        listed = allowed.tenant in (None, owner.tenant) and allowed.user_id in (None, owner.user_id)
        assert listed == sees(who, owner)


def test_the_reach_of_each_kind() -> None:
    assert reach(ADMINISTRATOR) == Reach(tenant=None, user_id=None)
    assert reach(MEMBER) == Reach(tenant="acme", user_id=None)
    assert reach(IVY) == Reach(tenant="acme", user_id="ivy")


# --- identity --------------------------------------------------------------------------------------------------------


def test_the_shared_token_may_name_the_user_it_works_for() -> None:
    shared = caller(ADMIN, tenant="default", subject="default", legacy=True)
    assert identity(shared, user_id="zoe") == Identity(tenant="default", subject="default", user_id="zoe")
    assert identity(shared, user_id="").user_id == "default"


@pytest.mark.parametrize("who", [ADMINISTRATOR, OPERATOR, MEMBER, IVY])
def test_everybody_else_works_for_itself_whatever_it_says(who: Caller) -> None:
    assert identity(who, user_id="zoe") == Identity(tenant=who.tenant, subject=who.subject, user_id=who.subject)


def test_a_session_keeps_its_tenant_and_its_user() -> None:
    owner = Owner(tenant="acme", user_id="ivy")
    assert identity(ADMINISTRATOR, user_id="zoe", session=owner) == Identity(
        tenant="acme", subject="default", user_id="ivy"
    )
