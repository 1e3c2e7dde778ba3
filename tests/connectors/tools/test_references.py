import pytest

from loomlog.connectors.tools.references import USER_BEARER_NAME, RunValues, substitute_references

VALUES = RunValues(
    root_run_id="r_root",
    tenant="acme",
    credentials={
        USER_BEARER_NAME: "bearer-1",
        "default": "bearer-1",
        "git": "token-${run.tenant_id}",
        "bad": "a\r\nX-Evil: 1",
        "$cred:git": "stored",
        "$ghapp:bot": "minted",
    },
)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("plain", "plain"),
        ("Bearer ${run.user_bearer}", "Bearer bearer-1"),
        ("${run.credentials.default}", "bearer-1"),
        ("${run.root_run_id}/${run.tenant_id}", "r_root/acme"),
        ("${run.credentials.none:-anonymous}", "anonymous"),
        ("${run.credentials.none:-}", ""),
        ("${run.user_bearer:-anonymous}", "bearer-1"),
        ("${run.credentials.git}", "token-${run.tenant_id}"),
        ("Bearer $cred:git", "Bearer stored"),
        ("token $ghapp:bot", "token minted"),
        ("$ghapp:git", None),
        ("$cred:none", None),
        ("${run.credentials.none:-$cred:git}", "$cred:git"),
        ("${HOME} ${env.x}", "${HOME} ${env.x}"),
        ("${run.credentials.none}", None),
        ("${run.user_bearer} and ${run.credentials.none}", None),
        ("${run.unknown}", None),
        ("${run.credentials.}", None),
        ("${run.credentials.run.user_bearer}", "bearer-1"),
        ("${run.credentials.bad}", None),
        ("${run.user_bearer:-a\nb}", "bearer-1"),
    ],
)
def test_what_a_reference_becomes(given: str, sent: str | None) -> None:
    assert substitute_references({"X-A": given}, VALUES) == (({}, ("X-A",)) if sent is None else ({"X-A": sent}, ()))


def test_headers_that_can_be_sent_are_sent_without_the_others() -> None:
    headers = {"A": "a", "B": "${run.credentials.none}", "C": "${run.tenant_id}"}
    assert substitute_references(headers, VALUES) == ({"A": "a", "C": "acme"}, ("B",))


def test_a_run_without_a_bearer_has_none_even_with_a_default_credential() -> None:
    values = RunValues(root_run_id="r", tenant="t", credentials={"default": "named"})
    assert substitute_references({"A": "${run.user_bearer}", "B": "${run.credentials.default}"}, values) == (
        {"B": "named"},
        ("A",),
    )


def test_the_values_do_not_show() -> None:
    assert "bearer-1" not in repr(VALUES)
