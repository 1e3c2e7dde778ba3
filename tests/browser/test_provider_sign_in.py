"""Signing in to the page with an identity provider, which is another site, as a person does it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.acceptance.installation import Installation
from tests.browser.chromium import Window
from tests.browser.site import Site
from tests.identity_server import DEVICE_CLIENT, PAGE_CLIENT, IdentityServer, serve_identity

pytestmark = pytest.mark.stack
WAIT_S = 60.0
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
    device_client_id: {device}
"""


@pytest.fixture(scope="module")
def identity() -> Iterator[IdentityServer]:
    with serve_identity("localhost") as made:
        yield made


@pytest.fixture(scope="module")
def provider_site(stack: Installation, identity: IdentityServer) -> Iterator[Site]:
    """The page of an api that knows the provider."""
    made = Site(stack)
    issuers = stack.folder / "issuers.yaml"
    issuers.write_text(ISSUERS.format(issuer=identity.issuer, client=PAGE_CLIENT, device=DEVICE_CLIENT))
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


@pytest.fixture(autouse=True)
def staff(identity: IdentityServer) -> None:
    identity.claims = {"groups": ["staff"], "sub": "ada"}


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


def test_a_person_signs_in_on_the_command_line_and_out(
    window: Window, provider_site: Site, identity: IdentityServer, tmp_path: Path
) -> None:
    command = [sys.executable, "-P", "-m", "loomlog.services.cli.main"]
    environ = {
        **provider_site.stack.environ,
        "LOOMLOG_BASE_URL": provider_site.origin,
        "XDG_CONFIG_HOME": str(tmp_path),
    }

    def loomlog(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([*command, *arguments], env=environ, capture_output=True, text=True, timeout=WAIT_S)

    assert loomlog("runs", "ls").returncode == 2
    with subprocess.Popen([*command, "login", "--no-open"], env=environ, stdout=subprocess.PIPE, text=True) as login:
        assert login.stdout is not None
        entered = re.fullmatch(r"Open (\S+) and enter (\w+)\.\n", login.stdout.readline())
        assert entered is not None
        window.page.goto(f"{entered[1]}?user_code={entered[2]}")
        window.page.get_by_role("link", name="Allow").click()
        rest, _ = login.communicate(timeout=WAIT_S)
    assert rest.endswith(f"Signed in to {provider_site.origin} as ada of tenant acme.\n")
    file = tmp_path / "loomlog" / "tokens.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert loomlog("runs", "ls").returncode == 0
    assert loomlog("logout").stdout == f"Signed out of {provider_site.origin}.\n"
    assert not identity.refresh_tokens & set(re.findall(r"[\w-]{20,}", file.read_text()))
    assert identity.requests[-1]["path"] == "/revoke"
    assert loomlog("runs", "ls").returncode == 2
