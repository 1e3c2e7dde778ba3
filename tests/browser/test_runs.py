"""The list of runs: live, with filters in the address, by keyboard, and orders to many."""

import re
import uuid

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.chromium import Window
from tests.browser.scripted_model import Gate, ScriptedModel, Step
from tests.browser.site import ADMIN, Site

pytestmark = pytest.mark.stack


def row_of(page: Page, run_id: str) -> Locator:
    return page.get_by_role("table", name="Runs").locator(f"[data-key='{run_id}']")


def new_user() -> str:
    """Return a name whose runs are those of one test; the administrator starts runs for any user."""
    return f"user-{uuid.uuid4().hex[:8]}"


def test_a_run_comes_into_the_list_by_itself_and_so_does_its_end(
    admin: Window, site: Site, model: ScriptedModel
) -> None:
    user = new_user()
    page = admin.open(f"/runs?user_id={user}")
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    expect(page.get_by_text("No run fits this filter")).to_be_visible()
    gate = Gate()
    model.play("How many orders are open?", [Step(say=["There are\n", gate, "three."])])
    run_id = site.client(ADMIN).start("How many orders are open?", user_id=user)
    expect(row_of(page, run_id)).to_contain_text("running")
    gate.set()
    expect(row_of(page, run_id)).to_contain_text("completed")
    expect(page.get_by_role("button", name="Completed 1")).to_be_visible()


def test_filters_are_in_the_address_and_can_be_saved(admin: Window, site: Site) -> None:
    user = new_user()
    caller = site.client(ADMIN)
    good = caller.finish("Hello", user_id=user)
    bad = caller.finish("Hello", agent="unlucky", user_id=user)
    page = admin.open("/runs")
    expect(page.get_by_role("heading", name="Runs", level=1)).to_be_visible()
    page.keyboard.press("f")
    panel = page.get_by_role("form", name="Filters")
    panel.get_by_label("User").fill(user)
    panel.get_by_role("button", name="Apply").click()
    expect(page).to_have_url(re.compile(rf"\?user_id={user}$"))
    expect(row_of(page, good)).to_be_visible()
    expect(row_of(page, bad)).to_be_visible()
    page.keyboard.press("3")
    expect(page).to_have_url(re.compile(rf"\?user_id={user}&status=failed$"))
    expect(row_of(page, bad)).to_be_visible()
    expect(row_of(page, good)).to_have_count(0)

    page.get_by_role("button", name="Save this filter").click()
    page.get_by_label("Name of this filter").fill("my failures")
    page.get_by_role("button", name="Save", exact=True).click()
    page.get_by_role("button", name="Remove the filter User").click()
    expect(page).to_have_url(re.compile(r"/runs\?status=failed$"))
    page.go_back()
    page.goto("/ui/runs")
    page.get_by_role("link", name="my failures").click()
    expect(row_of(page, bad)).to_be_visible()
    expect(row_of(page, good)).to_have_count(0)


def test_the_list_is_used_with_the_keyboard_alone(admin: Window, site: Site) -> None:
    user = new_user()
    caller = site.client(ADMIN)
    older, newer = (caller.finish(text, user_id=user) for text in ("the first", "the second"))
    page = admin.open(f"/runs?user_id={user}")
    expect(row_of(page, older)).to_be_visible()
    page.keyboard.press("j")
    expect(row_of(page, newer)).to_have_class(re.compile("active"))
    page.keyboard.press("j")
    expect(row_of(page, older)).to_have_class(re.compile("active"))
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/ui/runs/{older}$"))
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_contain_text("Jump to an id")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("/")
    page.keyboard.type(newer)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(f"/ui/runs/{newer}$"))
    page.keyboard.press("g")
    page.keyboard.press("i")
    expect(page.get_by_role("heading", name="Inbox", level=1)).to_be_visible()


def test_many_runs_are_cancelled_after_a_look_at_what_would_happen(admin: Window, site: Site) -> None:
    user = new_user()
    caller = site.client(ADMIN)
    sleeping = [caller.start("sleep", agent="sleeper", user_id=user) for _ in range(2)]
    ended = caller.finish("Hello", user_id=user)
    page = admin.open(f"/runs?user_id={user}")
    for run_id in (*sleeping, ended):
        row_of(page, run_id).get_by_role("checkbox").check()
    selected = page.get_by_role("region", name="Selected runs")
    expect(selected).to_contain_text("3 selected")
    selected.get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog", name="Cancel 2 runs")
    expect(dialog).to_contain_text("1 of the selected runs have ended")
    expect(dialog.get_by_role("table", name="Runs that would change").locator("tbody tr")).to_have_count(2)
    dialog.get_by_label("Reason").fill("a test")
    dialog.get_by_role("button", name="Cancel 2 runs").click()
    expect(dialog.get_by_role("status").first).to_contain_text("2 changed")
    dialog.get_by_role("button", name="Close").last.click()
    for run_id in sleeping:
        expect(row_of(page, run_id)).to_contain_text("cancelled")
    expect(row_of(page, ended)).to_contain_text("completed")
