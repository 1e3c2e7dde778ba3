"""Channels, schedules and webhooks: messages are published and seen, a schedule runs now, a request is tried."""

import json
import re
import uuid

import pytest
from playwright.sync_api import expect

from tests.acceptance.installation import HOOK_SECRET
from tests.browser.chromium import Window
from tests.browser.site import ACME, ADMIN, Site

pytestmark = pytest.mark.stack


def test_a_message_is_published_and_appears_by_itself(acme: Window, site: Site) -> None:
    word = uuid.uuid4().hex
    page = acme.open("/channels")
    page.get_by_role("link", name="acceptance/issues").click()
    expect(page.get_by_role("heading", name="acceptance/issues", level=1)).to_be_visible()
    page.get_by_role("button", name="Publish").click()
    dialog = page.get_by_role("dialog", name="Publish to acceptance/issues")
    dialog.get_by_label("Message").fill("{not json")
    expect(dialog.get_by_role("button", name="Publish", exact=True)).to_be_disabled()
    dialog.get_by_label("Message").fill(json.dumps({"issue": word}))
    dialog.get_by_role("button", name="Publish", exact=True).click()
    messages = page.get_by_role("table", name="Messages")
    expect(messages).to_contain_text(word)
    other = uuid.uuid4().hex
    path = "/v1/_channels/acceptance%2Fissues/publish"
    site.client(ACME).ask("POST", path, json={"payload": {"issue": other}})
    expect(messages).to_contain_text(other)
    messages.get_by_text(word).click()
    expect(page.get_by_role("region", name="Message", exact=True)).to_contain_text(word)


def test_a_schedule_is_made_with_its_next_times_in_view_run_now_and_paused(acme: Window) -> None:
    name = f"nightly-{uuid.uuid4().hex[:8]}"
    page = acme.open("/schedules")
    page.get_by_role("button", name="New schedule").click()
    dialog = page.get_by_role("dialog", name="New schedule")
    dialog.get_by_label("Name").fill(name)
    dialog.get_by_label("Agent").fill("analyst")
    dialog.get_by_label("Prompt").fill("Count the till")
    dialog.get_by_role("button", name="Every night at 3").click()
    expect(dialog.get_by_role("region", name="Next times").get_by_role("row").nth(1)).to_contain_text("03:00")
    dialog.get_by_role("button", name=re.compile("^(Save|Create)")).click()
    expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
    page.get_by_role("button", name="Run now").click()
    page.get_by_role("dialog").get_by_role("button", name="Run now").click()
    expect(page.get_by_text("It has fired")).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.get_by_role("link", name="the run").click()
    expect(page.get_by_role("region", name="Conversation")).to_contain_text("Count the till")


def test_a_request_to_a_webhook_is_tried_and_nothing_happens(admin: Window) -> None:
    page = admin.open("/webhooks/triage?view=test")
    page.get_by_label("Body").fill(json.dumps({"title": "The door is stuck", "sender": "mia"}))
    page.get_by_role("button", name="Try it").click()
    result = page.get_by_role("region", name="Result")
    expect(result).to_contain_text("signature")
    page.get_by_label("Secret to sign it with").fill(HOOK_SECRET)
    page.get_by_role("button", name="Try it").click()
    expect(result).to_contain_text("would be accepted")
    expect(result).to_contain_text("The door is stuck")
    expect(result).to_contain_text("mia")
    page.get_by_role("tab", name="Deliveries").click()
    expect(page.get_by_role("region", name="Deliveries")).not_to_contain_text("mia")


def test_the_focus_is_where_it_was_when_a_dialog_closes(acme: Window) -> None:
    page = acme.open("/channels")
    opens = page.get_by_role("button", name="New channel")
    opens.click()
    page.keyboard.press("Escape")
    expect(opens).to_be_focused()
    opens.click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    expect(opens).to_be_focused()


def test_a_message_leads_to_its_record_in_the_log(admin: Window, site: Site) -> None:
    word = uuid.uuid4().hex
    site.client(ACME).ask("POST", "/v1/_channels/acceptance%2Fissues/publish", json={"payload": {"issue": word}})
    page = admin.open("/channels/acceptance/issues?tenant=acme")
    page.get_by_role("table", name="Messages").get_by_text(word).click()
    page.get_by_role("region", name="Message", exact=True).get_by_role("link", name=re.compile("^loom")).click()
    record = page.get_by_role("region", name=re.compile("^Record"))
    expect(record.get_by_role("heading", name=re.compile("MessagePublished"))).to_be_visible()
    expect(record).to_contain_text(word)


def test_a_limit_leads_to_its_record_in_the_log(admin: Window, site: Site) -> None:
    user = f"u{uuid.uuid4().hex[:8]}"
    limit = {"scope": "user", "tenant_id": "acme", "scope_id": user, "hard_limit": 1_000_000_000}
    site.client(ADMIN).ask("PUT", "/v1/_limits", json=limit)
    page = admin.open("/operations/limits")
    page.get_by_role("row").filter(has_text=user).get_by_role("link", name="record").click()
    record = page.get_by_role("region", name=re.compile("^Record"))
    expect(record.get_by_role("heading", name=re.compile("LimitSet"))).to_be_visible()
    expect(record).to_contain_text(user)
