"""Signing in to the page with an identity provider, which is another site, as a person does it."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.acceptance.installation import Installation
from tests.browser.chromium import Window
from tests.browser.site import Site
from tests.identity_server import PAGE_CLIENT, IdentityServer, serve_identity

pytestmark = pytest.mark.stack
SECRET_KEY = "a2V5IG9mIHRoZSBzaWduLWluIHdpdGggcHJvdmlkZXI="
ISSUERS = """
issuers:
  company:
    title: Example Ltd.
    issuer: {issuer}
    audience: loomlog
    tenant: acme
    groups: {{staff: operator}}
    client_id: {client}
"""


@pytest.fixture(scope="module")
def identity() -> Iterator[IdentityServer]:
    with serve_identity("localhost", claims={"groups": ["staff"], "sub": "ada"}) as made:
        yield made


@pytest.fixture(scope="module")
def provider_site(stack: Installation, identity: IdentityServer) -> Iterator[Site]:
    """The page of an api that knows the provider."""
    made = Site(stack)
    issuers = stack.folder / "issuers.yaml"
    issuers.write_text(ISSUERS.format(issuer=identity.issuer, client=PAGE_CLIENT))
    files = f"{made.environ['LOOMLOG_CONFIG_FILES']}:{issuers}"
    made.start(LOOMLOG_CONFIG_FILES=files, LOOMLOG_SECRET_KEY=SECRET_KEY)
    yield made
    made.stop()


@pytest.fixture
def window(browser: Browser, provider_site: Site, identity: IdentityServer) -> Iterator[Window]:
    made = Window(browser, provider_site.origin)
    made.context.route(f"{identity.issuer}/**", lambda route: route.continue_())
    made.tolerate("401", "favicon")
    yield made
    made.close()
    assert not made.faults, "\n".join(made.faults)


def test_a_person_signs_in_with_the_provider_and_sees_the_page_it_wanted(
    window: Window, identity: IdentityServer
) -> None:
    page = window.open("/channels?scope=tenant")
    page.get_by_role("button", name="Sign in with Example Ltd.").click()
    page.get_by_role("link", name="Allow").click()
    expect(page.get_by_role("heading", name="Channels", level=1)).to_be_visible()
    expect(page).to_have_url(f"{window.origin}/ui/channels?scope=tenant")
    assert page.evaluate("fetch('/v1/_me').then((answer) => answer.json())")["subject"] == "ada"
    assert page.evaluate("document.cookie") == ""
    page.reload()
    expect(page.get_by_role("heading", name="Channels", level=1)).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("button", name="Sign in with Example Ltd.")).to_be_visible()


def test_a_person_without_access_reads_why_nothing_happened(window: Window, identity: IdentityServer) -> None:
    identity.claims = {"groups": ["others"], "sub": "eve"}
    page = window.open("/runs")
    page.get_by_role("button", name="Sign in with Example Ltd.").click()
    page.get_by_role("link", name="Allow").click()
    expect(page.get_by_role("alert")).to_contain_text("your account has no access")
    assert window.find_barriers() == []
