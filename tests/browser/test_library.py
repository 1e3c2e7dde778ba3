"""Definitions: a version is made, compared with the one before, made active, rolled back, and its runs are found."""

import re
import uuid

import pytest
from playwright.sync_api import Page, expect

from tests.browser.chromium import Window
from tests.browser.scripted_model import ScriptedModel, Step
from tests.browser.site import ACME, Site

pytestmark = pytest.mark.stack


def confirm(page: Page, name: str) -> None:
    page.get_by_role("dialog").get_by_role("button", name=name, exact=True).click()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_an_agent_is_made_changed_promoted_and_rolled_back(acme: Window, site: Site, model: ScriptedModel) -> None:
    name = f"clerk-{uuid.uuid4().hex[:8]}"
    page = acme.open("/library")
    page.get_by_role("link", name="New agent").click()
    page.get_by_label("Name").fill(name)
    page.get_by_role("tab", name="YAML or JSON").click()
    first = "provider: lab\nmodel: lab-1\ntools: [Read]\nsystem_prompt: You are friendly.\n"
    page.get_by_label("Definition").fill(first)
    page.get_by_label("Why").fill("the first one")
    page.get_by_role("button", name="Save and make active").click()
    expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
    model.play("Good morning", [Step(say="Good morning!")])
    run_id = site.client(ACME).finish("Good morning", agent=name)

    page.get_by_role("link", name="Edit as new version").click()
    page.get_by_label("System prompt").fill("You are brief.")
    page.get_by_role("tab", name="Changes").click()
    changes = page.get_by_role("tabpanel")
    expect(changes).to_contain_text("You are friendly.")
    expect(changes).to_contain_text("You are brief.")
    page.get_by_label("Make it active").uncheck()
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("button", name="Make active")).to_be_visible()
    page.get_by_role("tab", name="Changes").click()
    expect(page.get_by_role("tabpanel", name="Changes")).to_contain_text("You are brief.")
    page.get_by_role("button", name="Make active").click()
    confirm(page, "Make active")
    expect(page.get_by_role("button", name="Make active")).to_have_count(0)

    page.get_by_role("button", name="Roll back").click()
    confirm(page, "Roll back")
    expect(page.get_by_text("Version 1 of")).to_have_count(0)
    page.goto(f"/ui/library/agent/{name}")
    expect(page.get_by_role("group", name=re.compile("Versions of"))).to_contain_text("version 1")
    page.goto(f"/ui/runs/{run_id}")
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Who made its definition").click()
    expect(page.get_by_role("dialog")).to_contain_text("the first one")


def test_a_definition_that_is_wrong_is_refused_in_the_words_of_the_server(acme: Window) -> None:
    acme.tolerate("400", "422")
    page = acme.open("/library/create/agent")
    page.get_by_label("Name").fill("no-such-model")
    page.get_by_role("tab", name="YAML or JSON").click()
    page.get_by_label("Definition").fill("provider: lab\nmodle: lab-1\n")
    page.get_by_role("button", name="Save and make active").click()
    expect(page.get_by_role("alert")).to_contain_text("modle")
    page.get_by_label("Definition").fill("provider: [unfinished")
    page.get_by_role("button", name="Save and make active").click()
    expect(page.locator("p.problem").first).to_be_visible()


def test_what_the_file_says_is_shown_with_its_content(acme: Window) -> None:
    page = acme.open("/library/agent/analyst")
    expect(page.get_by_role("region", name="Versions")).to_contain_text("file")
    expect(page.get_by_role("tabpanel", name="Content")).to_contain_text("You answer questions about a small shop.")
    page.get_by_role("link", name="Start a run").click()
    expect(page.get_by_role("radio", name="analyst").first).to_be_checked()
