"""Signing in and out as a person does it."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.chromium import Window
from tests.browser.conftest import OpenAs
from tests.browser.site import ACME, READER, Site

pytestmark = pytest.mark.stack
REFUSED = "401"


def sign_in(page: Page, token: str) -> None:
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()


@pytest.fixture
def stranger(open_as: OpenAs, site: Site) -> Window:
    """A window at the page with tokens, without one."""
    window = open_as(ACME)
    window.context.clear_cookies()
    return window


def test_without_configured_tokens_the_page_just_opens(open_as: OpenAs) -> None:
    page = open_as().open("")
    expect(page.get_by_role("heading", name="Runs", level=1)).to_be_visible()
    expect(page.get_by_text("open mode")).to_be_visible()
    expect(page.get_by_role("button", name="Sign out")).to_have_count(0)


def test_a_token_signs_in_and_lies_where_no_script_reads_it(stranger: Window) -> None:
    stranger.tolerate(REFUSED)
    page = stranger.open("/runs?status=failed")
    sign_in(page, ACME)
    expect(page.get_by_role("heading", name="Runs", level=1)).to_be_visible()
    expect(page).to_have_url(f"{stranger.origin}/ui/runs?status=failed")
    assert page.evaluate("document.cookie + JSON.stringify(localStorage)").count(ACME) == 0
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    page.reload()
    expect(page.get_by_label("Token")).to_be_visible()


def test_a_wrong_token_is_refused_in_the_words_of_the_server(stranger: Window) -> None:
    stranger.tolerate(REFUSED)
    page = stranger.open("/runs")
    sign_in(page, "no-such-token")
    expect(page.get_by_role("alert")).to_contain_text("token")
    expect(page.get_by_label("Token")).to_have_attribute("aria-invalid", "true")
    sign_in(page, ACME)
    expect(page.get_by_role("heading", name="Runs", level=1)).to_be_visible()


def test_a_token_that_is_no_longer_known_leads_to_the_sign_in_and_back(acme: Window, site: Site) -> None:
    page = acme.open("/library")
    expect(page.get_by_role("heading", name="Agents", level=1)).to_be_visible()
    acme.tolerate(REFUSED)
    acme.context.clear_cookies()
    page.goto("/ui/channels")
    expect(page.get_by_role("heading", name="Sign in to loomlog")).to_be_visible()
    sign_in(page, ACME)
    expect(page.get_by_role("heading", name="Channels", level=1)).to_be_visible()


def test_what_a_caller_may_not_do_is_not_shown(open_as: OpenAs) -> None:
    page = open_as(READER).open("/runs")
    expect(page.get_by_role("heading", name="Runs", level=1)).to_be_visible()
    pages = page.get_by_role("navigation", name="Pages")
    expect(pages.get_by_role("link", name="Inbox")).to_be_visible()
    for name in ("Start", "Schedules", "Log"):
        expect(pages.get_by_role("link", name=name, exact=True)).to_have_count(0)
    page.goto("/ui/start")
    expect(page.get_by_text("runs:create")).to_be_visible()
