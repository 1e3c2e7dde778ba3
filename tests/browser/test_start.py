"""Starting one run, or many."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.chromium import Window
from tests.browser.scripted_model import ScriptedModel, Step

pytestmark = pytest.mark.stack


def choose_agent(page: Page, name: str) -> None:
    page.get_by_label("Search agents").fill(name)
    page.get_by_role("radio", name=name).first.check()


def test_a_run_is_started_and_seen(acme: Window, model: ScriptedModel) -> None:
    model.play("What is for sale?", [Step(say="Two lamps and a chair.")])
    page = acme.open("/start")
    page.get_by_role("button", name="Start the run").click()
    expect(page.locator(".problem").first).to_be_visible()
    choose_agent(page, "analyst")
    page.get_by_label("Prompt").fill("What is for sale?")
    page.keyboard.press("Control+Enter")
    expect(page).to_have_url(re.compile("/ui/runs/r_"))
    expect(page.get_by_role("region", name="Conversation")).to_contain_text("Two lamps and a chair.")


def test_a_link_fills_the_form_and_sends_nothing(acme: Window) -> None:
    started: list[str] = []
    acme.page.on("request", lambda request: started.append(request.url) if request.method == "POST" else None)
    page = acme.open("/start?agent=analyst&prompt=Delete+everything")
    expect(page.get_by_text("nothing has been sent")).to_be_visible()
    expect(page.get_by_label("Prompt")).to_have_value("Delete everything")
    expect(page.get_by_role("radio", name="analyst").first).to_be_checked()
    assert started == []


def test_a_fan_out_starts_a_run_for_each_line_and_shows_the_answers(acme: Window, model: ScriptedModel) -> None:
    for name, price in (("lamp", "20"), ("chair", "35"), ("table", "90")):
        model.play(f"Price of a {name}", [Step(say=f"A {name} costs {price}.")])
    page = acme.open("/start?tab=fan-out")
    choose_agent(page, "analyst")
    page.get_by_label("Prompts").fill("Price of a lamp\nPrice of a chair\n\nPrice of a table\n")
    page.get_by_role("button", name="Start 3 runs").click()
    results = page.get_by_role("region", name="Results")
    expect(results.get_by_role("status").first).to_contain_text("3 of 3 have ended")
    for row, answer in zip(range(3), ("lamp costs 20", "chair costs 35", "table costs 90"), strict=True):
        expect(results.locator("tbody tr").nth(row)).to_contain_text(answer)
