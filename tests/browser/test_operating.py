"""What operators do: pause and resume, look into the log, verify it, and see what runs."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.chromium import Window
from tests.browser.site import ADMIN, Site

pytestmark = pytest.mark.stack


def test_an_agent_is_paused_everywhere_and_resumed(admin: Window, site: Site) -> None:
    site.client(ADMIN).finish("Hello", agent="resilient")  # of an agent without a run the page asks whether it is meant
    admin.tolerate("503")  # the start that is refused
    page = admin.open("/operations")
    form = page.get_by_role("form", name="Pause")
    form.get_by_label("What").select_option("All runs of an agent")
    form.get_by_label("Agent").fill("resilient")
    form.get_by_label("Reason").fill("a test")
    form.get_by_role("button", name="Pause").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause", exact=True).click()
    expect(form).to_contain_text("The pause holds.")
    pauses = page.get_by_role("table", name="Pauses in force")
    row = pauses.get_by_role("row").filter(has_text="resilient")
    expect(row).to_contain_text("a test")
    start = admin.open("/start?agent=resilient&prompt=Hello")
    start.get_by_role("button", name="Start the run").click()
    expect(start.get_by_role("alert")).to_contain_text("agent is paused: a test")
    page.goto("/ui/operations")
    row.get_by_role("button", name="Resume").click()
    page.get_by_role("dialog").get_by_role("button", name="Resume").click()
    expect(pauses.get_by_role("row").filter(has_text="resilient")).to_have_count(0)
    page.goto("/ui/start?agent=resilient&prompt=Hello")
    page.get_by_role("button", name="Start the run").click()
    expect(page).to_have_url(re.compile("/ui/runs/r_"))


def test_the_log_is_browsed_from_a_topic_to_a_record_and_on_to_its_run(admin: Window, site: Site) -> None:
    run_id = site.client(ADMIN).finish("Hello", agent="talker")
    page = admin.open("/log")
    page.get_by_role("link", name="loom.run.events", exact=True).click()
    page.get_by_role("link", name="Partition 0").click()
    records = page.get_by_role("table", name="Records")
    expect(records).to_contain_text("RunStarted")
    page.get_by_role("button", name="Oldest").click()
    expect(page).to_have_url(re.compile("from=0"))
    expect(records).to_contain_text("RunStarted")
    page.get_by_label("Jump to a run, session or record by its id").fill(run_id)
    page.keyboard.press("Enter")
    page.get_by_role("tab", name="Events").click()
    page.get_by_role("table", name="Records of the run").get_by_role("row").nth(1).click()
    page.get_by_role("region", name="Record 1").get_by_text(re.compile(r"^loom\.run\.events.\d+.\d+$")).click()
    expect(page).to_have_url(re.compile(r"/ui/log/loom.run.events/\d+\?from=\d+"))
    expect(page.get_by_role("main")).to_contain_text(run_id)


def test_the_log_is_verified(admin: Window) -> None:
    page = admin.open("/log/audit")
    page.get_by_role("region", name="Verify").get_by_role("button", name="Verify").click()
    expect(page.get_by_role("main")).to_contain_text(re.compile(r"[\d,]+ records"))
    expect(page.get_by_role("region", name="Progress")).to_have_count(0)


def test_a_state_file_is_created_and_listed(admin: Window) -> None:
    page = admin.open("/operations/snapshots")
    page.get_by_role("button", name="Create").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name=re.compile("^Create")).click()
    expect(page.get_by_role("table").get_by_role("row").nth(1)).to_be_visible()


def test_health_and_configuration_say_what_is_in_force(admin: Window) -> None:
    page = admin.open("/operations/health")
    expect(page.get_by_role("tabpanel")).to_contain_text(re.compile("kafka|broker|log", re.IGNORECASE))
    page.get_by_role("tab", name="Configuration").click()
    expect(page.get_by_role("tabpanel")).to_contain_text("analyst")
