import pytest

from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.configuration.principals import build_token_table
from tests.connectors.configuration.conftest import Folder

GOOD = "issuer: 'https://login.example.com', audience: loomlog, tenant: acme, default_access: tenant"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (GOOD.replace("https:", "http:"), "expected https://"),
        (GOOD + ", jwks_url: 'http://login.example.com/keys'", "expected https://"),
        (GOOD.replace("'https://login.example.com'", "login"), "expected an address"),
        (GOOD.replace(", tenant: acme", ""), "expected either tenant"),
        (GOOD + ", tenant_claim: org", "expected either tenant"),
        (GOOD + ", tenants: [acme]", "values of tenant_claim"),
        (GOOD.replace(", default_access: tenant", ""), "nothing says what its people may do"),
        (
            GOOD.replace("access: tenant", "access: root"),
            "expected 'administrator', 'operator', 'tenant' or 'isolated'",
        ),
        (GOOD.replace("audience: loomlog, ", ""), "audience is missing"),
        (GOOD.replace("audience: loomlog", "audience: []"), "expected at least one item"),
        (GOOD + ", algorithms: [HS256]", "expected 'RS256', 'ES256' or 'EdDSA'"),
        (GOOD + ", algorithms: [none]", "expected 'RS256', 'ES256' or 'EdDSA'"),
        (GOOD + ", client_secret_env: LOGIN_SECRET", "there is no client_id"),
        (GOOD + ", session_minutes: 100000", "less than or equal to 10080"),
        (GOOD + ", groups: {staff: everything}", "expected 'administrator'"),
        (GOOD + ", jwks: x", "is not a known key"),
    ],
)
def test_a_provider_that_cannot_be_is_a_mistake_of_the_files(folder: Folder, text: str, problem: str) -> None:
    problems = folder.problems(f"issuers: {{company: {{{text}}}}}")
    assert any("issuers.company" in line and problem in line for line in problems), problems


def test_one_provider_has_one_block(folder: Folder) -> None:
    problems = folder.problems(f"issuers: {{company: {{{GOOD}}}, again: {{{GOOD}}}}}")
    assert any("issuers.again.issuer" in line and "is the provider of company already" in line for line in problems)


def test_two_providers_of_one_tenant_are_worth_a_warning(folder: Folder) -> None:
    other = GOOD.replace("login.", "other.")
    text = f"issuers: {{company: {{{GOOD}}}, partner: {{{other}}}}}"
    assert any("the same subject at both is one person" in line for line in folder.warnings(text))
    apart = text.replace("tenant: acme, default_access: tenant}}", "tenant: globex, default_access: tenant}}")
    assert not folder.warnings(apart)


def test_on_this_machine_no_https_is_needed(folder: Folder) -> None:
    text = GOOD.replace("https://login.example.com", "http://127.0.0.1:8080/realms/acme")
    block = folder.load(f"issuers: {{company: {{{text}}}}}").configuration.issuers["company"]
    assert (block.audience, block.algorithms) == (("loomlog",), ("RS256", "ES256", "EdDSA"))


def test_with_a_provider_nothing_is_open_although_there_is_no_token(folder: Folder) -> None:
    loaded = folder.load(f"issuers: {{company: {{{GOOD}}}}}")
    assert not build_token_table(loaded.configuration, loaded.settings, {}).open_mode
    bare = folder.load("agents: {}")
    with pytest.raises(ConfigurationError):
        build_token_table(bare.configuration, bare.settings, {})
