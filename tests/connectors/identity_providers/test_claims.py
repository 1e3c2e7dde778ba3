"""What claims mean: tenant, subject and scopes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loomlog.connectors.configuration.field_types import SUBJECT_PATTERN
from loomlog.connectors.configuration.principals import Principal
from loomlog.connectors.identity_providers.claims import encode_subject, principal_of, relevant_claims
from loomlog.connectors.identity_providers.tokens import TokenRefused
from tests.connectors.identity_providers.provider import block

GROUPS = {"admins": "administrator", "ops": "operator", "staff": "tenant", "guests": "isolated"}
MEMBER = {"runs:create", "runs:read", "channel:publish", "channel:read"}


def principal(claims: dict[str, Any], **changes: Any) -> Principal:
    return principal_of("company", block(**changes), {"sub": "ann", **claims}, expires_at_s=1)


@pytest.mark.parametrize(
    ("groups", "scopes"),
    [
        (["guests"], {"substrate:user"}),
        (["guests", "staff"], MEMBER),
        (["ops", "guests"], {"substrate:tenant"}),
        ("staff admins", {"substrate:admin"}),
        (["unknown"], {"substrate:user"}),
        (None, {"substrate:user"}),
        ([1, {"a": 1}, "staff"], MEMBER),
        ({"staff": 1}, {"substrate:user"}),
    ],
)
def test_the_highest_access_of_the_groups_counts(groups: Any, scopes: set[str]) -> None:
    actual = principal({"groups": groups}, groups=GROUPS, default_access="isolated")
    assert actual.scopes == scopes


def test_who_gets_no_scope_is_nobody() -> None:
    with pytest.raises(TokenRefused):
        principal({"groups": ["unknown"]}, groups=GROUPS, default_access=None)


def test_scopes_of_a_token_count_but_those_of_an_administrator() -> None:
    claims = {"scope": "openid runs:read substrate:admin memory:write"}
    assert principal(claims, scopes_claim="scope", default_access=None).scopes == {"runs:read", "memory:write"}
    with pytest.raises(TokenRefused):
        principal({"scope": "substrate:admin"}, scopes_claim="scope", default_access=None)


def test_claims_may_be_nested_or_have_dots_in_their_names() -> None:
    nested = {"realm_access": {"roles": ["ops"]}}
    assert principal(nested, groups_claim="realm_access.roles", groups=GROUPS).scopes == {"substrate:tenant"}
    named = {"https://example.com/roles": ["ops"]}
    assert principal(named, groups_claim="https://example.com/roles", groups=GROUPS).scopes == {"substrate:tenant"}


def test_the_tenant_may_be_a_claim() -> None:
    by_claim = {"tenant": None, "tenant_claim": "org"}
    assert principal({"org": "globex"}, **by_claim).tenant == "globex"
    assert principal({"org": "globex"}, tenants=("acme", "globex"), **by_claim).tenant == "globex"
    for wrong in ("", "a b", 7, None, ["globex"], "x" * 65):
        with pytest.raises(TokenRefused):
            principal({"org": wrong}, **by_claim)
    with pytest.raises(TokenRefused):
        principal({"org": "initech"}, tenants=("acme", "globex"), **by_claim)


@pytest.mark.parametrize("verified", [None, False, "true", 1])
def test_an_email_counts_only_if_it_is_verified(verified: Any) -> None:
    with pytest.raises(TokenRefused):
        principal({"email": "ann@example.com", "email_verified": verified}, subject_claim="email")
    claims = {"email": "ann@example.com", "email_verified": True}
    assert principal(claims, subject_claim="email").subject == "ann@example.com"


def test_a_subject_with_other_characters_stays_readable() -> None:
    assert encode_subject("auth0|5f7c") == "auth0_5f7c.662dd0a5965afa2f"
    assert encode_subject("ann@example.com") == "ann@example.com"
    assert encode_subject("auth0_5f7c.662dd0a5965afa2f") != "auth0_5f7c.662dd0a5965afa2f"


@given(st.text(min_size=1, max_size=300), st.text(min_size=1, max_size=300))
def test_different_subjects_stay_different_and_fit(one: str, other: str) -> None:
    assert SUBJECT_PATTERN.fullmatch(encode_subject(one))
    assert (encode_subject(one) == encode_subject(other)) == (one == other)


@given(
    st.dictionaries(
        st.sampled_from(["sub", "org", "groups", "scope", "email", "email_verified", "name"]),
        st.one_of(st.text(), st.booleans(), st.lists(st.sampled_from(["ops", "guests", "runs:read", "x"]))),
    )
)
def test_the_claims_that_are_kept_mean_the_same(claims: dict[str, Any]) -> None:
    of_claims = {"tenant": None, "tenant_claim": "org", "scopes_claim": "scope", "groups": GROUPS}
    kept = relevant_claims(block(**of_claims), {"sub": "ann", "org": "acme", **claims})

    def outcome(given_claims: dict[str, Any]) -> Any:
        try:
            return principal_of("company", block(**of_claims), given_claims, expires_at_s=1)
        except TokenRefused as refused:
            return str(refused)

    assert outcome(kept) == outcome({"sub": "ann", "org": "acme", **claims})
    assert "name" not in kept
