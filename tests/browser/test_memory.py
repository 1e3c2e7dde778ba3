"""Memory: an entry is made, changed and looked at as it was; a change by an agent names its call."""

import re
import uuid

import pytest
from playwright.sync_api import expect

from tests.browser.chromium import Window
from tests.browser.scripted_model import ScriptedModel, Step
from tests.browser.site import ACME, Site

pytestmark = pytest.mark.stack


def test_an_entry_is_made_changed_and_its_past_shows_the_difference(acme: Window) -> None:
    user = f"user-{uuid.uuid4().hex[:8]}"
    page = acme.open("/memory")
    page.get_by_role("button", name="New entry").click()
    dialog = page.get_by_role("dialog", name="New entry")
    dialog.get_by_label("User").fill(user)
    dialog.get_by_label("Key").fill("recipes/soup")
    dialog.get_by_role("textbox", name="Value").fill('{"salt": 1, "water": 2}')
    dialog.get_by_role("button", name="Set it").click()
    expect(page.get_by_role("heading", name="recipes/soup")).to_be_visible()
    page.get_by_role("button", name="Edit", exact=True).click()
    page.get_by_role("dialog").get_by_role("textbox", name="Value").fill('{"salt": 3, "water": 2}')
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_text("revision 2").first).to_be_visible()
    expect(page.get_by_label("Changes of revision 2")).to_contain_text("3")
    acme.tolerate("recipes%2Fsoup")  # 404 once it is deleted
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_text("There is no such key now")).to_be_visible()


def test_a_change_by_an_agent_leads_to_the_call_that_made_it(acme: Window, site: Site, model: ScriptedModel) -> None:
    key = f"note-{uuid.uuid4().hex[:8]}"
    remember = ("Memory", {"op": "set", "scope": "user", "key": key, "value": {"due": "Friday"}})
    model.play(f"Remember {key}", [Step(calls=[remember]), Step(say="I keep it.")])
    run_id = site.client(ACME).finish(f"Remember {key}")
    page = acme.open(f"/memory/user/ada?key={key}")
    expect(page.get_by_text("Friday").first).to_be_visible()
    page.get_by_role("link", name=re.compile("turn 1, call 1")).first.click()
    expect(page).to_have_url(re.compile(run_id))
    expect(page.get_by_role("tabpanel")).to_contain_text(key)
