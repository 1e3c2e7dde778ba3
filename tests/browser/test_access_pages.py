"""Users, tokens and credentials: made, used once, taken back, and found among the acts."""

import uuid

import pytest
from playwright.sync_api import Page, expect

from tests.browser.chromium import Window
from tests.browser.conftest import OpenAs
from tests.browser.site import ACME, READER, Site

pytestmark = pytest.mark.stack


def press(page: Page, name: str) -> None:
    """Press a button of the dialog that is open."""
    page.get_by_role("dialog").get_by_role("button", name=name, exact=True).click()


def shown_once(page: Page) -> str:
    """Return the text of the token that is shown, and close the dialog."""
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("it is not shown again")
    expect(dialog.get_by_role("button", name="Copy the token")).to_be_visible()
    text = dialog.locator(".command code").inner_text()
    dialog.locator("footer").get_by_role("button", name="Close").click()
    return text


def ask_for_token(page: Page, name: str) -> None:
    page.get_by_role("button", name="New token").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox", name="Name").fill(name)
    dialog.get_by_role("textbox", name="Tenant").fill("acme")
    expect(dialog.get_by_role("button", name="Make it")).to_be_disabled()
    dialog.get_by_label("runs:read").check()
    press(page, "Make it")


def may_read(site: Site, token: str) -> bool:
    return site.client(token).get("/v1/_me").status_code == 200


def test_a_user_is_registered_gets_a_token_and_loses_it_when_disabled(
    acme: Window, open_as: OpenAs, site: Site
) -> None:
    subject = f"u{uuid.uuid4().hex[:8]}"
    page = acme.open("/access")
    page.get_by_role("button", name="Register a user").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Subject").fill(subject)
    dialog.get_by_label("Name").fill("Ada Lovelace")
    dialog.get_by_label("Access").select_option("sees its own data only")
    press(page, "Register")
    expect(page.get_by_role("heading", name="Ada Lovelace")).to_be_visible()
    page.get_by_role("button", name="New token").click()
    page.get_by_role("dialog").get_by_label("Name").fill("laptop")
    press(page, "Make it")
    text = shown_once(page)
    tokens = page.get_by_role("table", name="Tokens")
    expect(tokens).to_contain_text("in force")
    assert text not in page.content()
    theirs = open_as(text)
    user = theirs.open("/runs")
    expect(user.get_by_role("banner")).to_contain_text("acme")
    expect(user.get_by_role("navigation", name="Pages").get_by_role("link", name="Access")).to_have_count(0)

    theirs.tolerate("401")
    page.get_by_role("button", name="Disable").click()
    press(page, "Disable")
    expect(tokens).to_contain_text("retired")
    assert not may_read(site, text)
    expect(user.get_by_role("heading", name="Sign in to loomlog")).to_be_visible()

    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_label(f"Type {subject} to go on").fill(subject)
    press(page, "Delete")
    expect(page.get_by_role("button", name="Register a user")).to_be_visible()
    expect(page.get_by_text(subject, exact=True)).to_have_count(0)
    page.goto("/ui/operations/acts?what=identity.mint_user_token")
    expect(page.get_by_role("table", name="Acts")).to_contain_text(subject)
    assert text not in page.content()


def test_a_token_is_made_rotated_and_retired(admin: Window, site: Site) -> None:
    name = f"ci-{uuid.uuid4().hex[:8]}"
    admin.tolerate("422")  # the name is taken
    page = admin.open("/access/tokens")
    ask_for_token(page, name)
    first = shown_once(page)
    ask_for_token(page, name)
    taken = page.get_by_role("dialog").get_by_role("alert")
    expect(taken).to_contain_text("is in force: rotate it, or retire it first")
    press(page, "Cancel")
    page.get_by_label("Search tokens").fill(name)
    page.get_by_role("button", name=f"Rotate {name}").click()
    page.get_by_role("dialog").get_by_label("The text before").select_option("ends at once")
    press(page, "Rotate")
    second = shown_once(page)
    assert (may_read(site, first), may_read(site, second)) == (False, True)
    page.get_by_role("button", name=name, exact=True).click()
    texts = page.get_by_role("table", name="Texts")
    expect(texts).to_contain_text("retired")
    expect(texts).to_contain_text("in force")
    page.keyboard.press("Escape")
    page.get_by_role("button", name=f"Retire {name}").click()
    press(page, "Retire")
    expect(page.get_by_role("table", name="Tokens").get_by_role("row").filter(has_text=name)).to_contain_text("ended")
    assert not may_read(site, second)


def test_a_credential_is_stored_replaced_and_deleted_and_its_value_never_shown(acme: Window) -> None:
    name, value = f"KEY_{uuid.uuid4().hex[:8]}", uuid.uuid4().hex
    page = acme.open("/access/credentials")
    page.get_by_role("button", name="Store a credential").click()
    page.get_by_role("dialog").get_by_label("Name").fill(name)
    page.get_by_role("dialog").get_by_label("Value").fill(value)
    press(page, "Store")
    rows = page.get_by_role("table", name="Credentials")
    expect(rows).to_contain_text(name)
    assert value not in page.content()
    page.get_by_role("button", name=f"Replace {name}").click()
    expect(page.get_by_role("dialog").get_by_label("Value")).to_have_value("")
    page.get_by_role("dialog").get_by_label("Value").fill(f"{value}-2")
    press(page, "Store")
    page.goto("/ui/operations/acts?what=identity.create_credential")
    expect(page.get_by_role("table", name="Acts")).to_contain_text(name)
    assert value not in page.content()
    page.goto("/ui/access/credentials")
    page.get_by_role("button", name=f"Delete {name}").click()
    press(page, "Delete")
    expect(page.get_by_text(name, exact=True)).to_have_count(0)


def test_who_may_not_change_access_is_told_so(open_as: OpenAs) -> None:
    page = open_as(ACME).open("/access")
    expect(page.get_by_role("tab", name="Users")).to_be_visible()
    expect(page.get_by_role("tab", name="Tokens")).to_have_count(0)
    page.goto("/ui/access/tokens")
    expect(page.get_by_text("substrate:admin")).to_be_visible()
    page = open_as(READER).open("/runs")
    expect(page.get_by_role("heading", name="Runs", level=1)).to_be_visible()
    expect(page.get_by_role("navigation", name="Pages").get_by_role("link", name="Access")).to_have_count(0)
    page.goto("/ui/access/users")
    expect(page.get_by_text("substrate:tenant")).to_be_visible()
