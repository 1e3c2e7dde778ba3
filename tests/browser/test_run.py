"""One run: what was said, when it happened, its records, what the model saw, and what a person does with it."""

import gzip
import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.chromium import Window
from tests.browser.scripted_model import Gate, ScriptedModel, Step
from tests.browser.site import ACME, Site

pytestmark = pytest.mark.stack
QUESTION = "Which file of the shop is dangerous?"


@pytest.fixture(scope="module")
def looked_into(site: Site, model: ScriptedModel) -> str:
    """A run of three turns with three calls, one of which failed, and a sub-agent."""
    model.play("Read the prices", [Step(say="They are fixed.")])
    model.play(
        QUESTION,
        [
            Step(say="I look around.", calls=[("Glob", {"pattern": "**/*.py"}), ("Read", {"path": "shop/none.py"})]),
            Step(
                say="I ask a colleague.",
                calls=[("Agent", {"op": "spawn", "name": "analyst", "prompt": "Read the prices"})],
            ),
            Step(say="It is `shop/orders.py`:\n\n1. it runs a **shell**\n2. it unpickles"),
        ],
    )
    return site.client(ACME).finish(QUESTION)


def conversation_of(page: Page) -> Locator:
    return page.get_by_role("region", name="Conversation")


def test_an_answer_streams_into_the_page_and_ends_there(acme: Window, site: Site, model: ScriptedModel) -> None:
    middle, end = Gate(), Gate()
    model.play("Tell me slowly", [Step(say=["One,\n\n", middle, "two,\n\n", end, "three."])])
    run_id = site.client(ACME).start("Tell me slowly")
    page = acme.open(f"/runs/{run_id}")
    said = conversation_of(page)
    expect(said).to_contain_text("One,")
    expect(page.get_by_role("status").filter(has_text="the model answers")).to_be_visible()
    middle.set()
    expect(said).to_contain_text("two,")
    end.set()
    expect(page.locator("header.run-head")).to_contain_text("completed")
    expect(said.get_by_role("paragraph").filter(has_text=re.compile("^(One,|two,|three.)$"))).to_have_count(3)


def test_calls_of_tools_are_rows_that_open(acme: Window, looked_into: str) -> None:
    page = acme.open(f"/runs/{looked_into}")
    said = conversation_of(page)
    expect(said).to_contain_text(QUESTION)
    expect(said.locator("strong", has_text="shell")).to_be_visible()
    expect(said.get_by_role("listitem")).to_have_count(2)
    glob = said.locator("details", has_text="Glob").first
    expect(glob).not_to_have_attribute("open", "")
    glob.locator("summary").click()
    expect(glob).to_contain_text("shop/orders.py")
    expect(said.locator("details", has_text="none.py").first).to_contain_text("none.py")
    expect(said.get_by_role("link", name="analyst").first).to_be_visible()


def test_the_timeline_has_bars_and_their_records(acme: Window, looked_into: str) -> None:
    page = acme.open(f"/runs/{looked_into}")
    page.get_by_role("tab", name="Timeline").click()
    expect(page).to_have_url(re.compile("/timeline$"))
    bars = page.get_by_role("group", name=re.compile("Bars of the run"))
    expect(bars.get_by_role("button", name=re.compile("^Turn "))).to_have_count(3)
    for lane in ("Turns", "Model calls", "Tools"):
        expect(bars.get_by_role("group", name=lane)).to_be_visible()
    bars.get_by_role("button", name=re.compile("^Glob")).click()
    expect(page.get_by_role("tabpanel")).to_contain_text("ToolReturned")


def test_records_are_found_and_shown_as_they_are_in_the_log(acme: Window, looked_into: str) -> None:
    page = acme.open(f"/runs/{looked_into}/events")
    table = page.get_by_role("table", name="Records of the run")
    expect(table).to_contain_text("RunStarted")
    page.get_by_label("Type of record").select_option("ToolReturned")
    expect(page).to_have_url(re.compile("ToolReturned"))
    expect(page.get_by_role("status").filter(has_text="records")).to_contain_text("3 of")
    table.get_by_role("row").filter(has_text="none.py").click()
    detail = page.get_by_role("tabpanel")
    for part in ("loom.run.events/", "Cause", "curl"):
        expect(detail).to_contain_text(re.compile(part, re.IGNORECASE))


def test_the_context_is_what_the_model_saw_at_a_turn(acme: Window, looked_into: str) -> None:
    page = acme.open(f"/runs/{looked_into}/context")
    messages = page.get_by_role("region", name="Messages")
    expect(messages).to_contain_text(QUESTION)
    expect(messages).to_contain_text("They are fixed.")
    page.get_by_label("Turn").select_option("Turn 2")
    expect(messages).to_contain_text("shop/orders.py")
    expect(messages).not_to_contain_text("They are fixed.")
    page.get_by_role("tab", name="Changes since turn 1").click()
    expect(page.get_by_role("tabpanel", name="Context")).to_contain_text("shop/orders.py")


def test_the_slider_takes_every_pane_to_a_moment_and_back(acme: Window, looked_into: str) -> None:
    page = acme.open(f"/runs/{looked_into}")
    said = conversation_of(page)
    expect(said).to_contain_text("it unpickles")
    slider = page.get_by_role("slider", name="Moment of the run")
    slider.focus()
    slider.press("Home")
    expect(page).to_have_url(re.compile(r"\?at=1$"))
    expect(said).to_contain_text(QUESTION)
    expect(said).not_to_contain_text("I look around.")
    page.get_by_role("tab", name="Events").click()
    expect(page).to_have_url(re.compile(r"/events\?at=1$"))
    expect(page.get_by_role("table", name="Records of the run").locator("[data-key]")).to_have_count(1)
    page.get_by_role("tab", name="Conversation").click()
    slider.focus()
    for _ in range(3):
        slider.press("ArrowRight")
    expect(said).to_contain_text("I look around.")
    expect(said).not_to_contain_text("it unpickles")
    page.get_by_role("button", name="Back to its end").click()
    expect(said).to_contain_text("it unpickles")
    expect(page).to_have_url(re.compile(f"/{looked_into}/conversation$"))


def test_a_run_is_forked_at_a_turn_and_compared_with_its_fork(
    acme: Window, looked_into: str, model: ScriptedModel
) -> None:
    page = acme.open(f"/runs/{looked_into}")
    expect(conversation_of(page)).to_contain_text("it unpickles")
    model.play("And which is harmless?", [Step(say="The one that only counts.")])
    expect(page.get_by_role("button", name="Fork")).to_be_visible()
    page.keyboard.press("f")
    dialog = page.get_by_role("dialog", name="Fork the run")
    dialog.get_by_label("From").select_option(index=0)
    dialog.get_by_label("What comes next").fill("And which is harmless?")
    dialog.get_by_role("button", name="Start the fork").click()
    expect(dialog).to_have_count(0)
    expect(conversation_of(page)).to_contain_text("The one that only counts.")
    fork = page.url.rsplit("/", 1)[1]
    assert fork != looked_into

    page.goto(f"/ui/runs/{looked_into}")
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("dialog", name="Compare with another run").get_by_role(
        "button", name=re.compile(fork[-10:])
    ).click()
    expect(page).to_have_url(re.compile(f"/runs/{looked_into}/compare/{fork}"))
    expect(page.get_by_role("region", name="Run B")).to_contain_text("fork of the other")
    expect(page.get_by_role("region", name="Steps")).to_contain_text("The one that only counts.")


def test_a_replay_says_that_the_run_is_equal(acme: Window, looked_into: str) -> None:
    page = acme.open(f"/runs/{looked_into}")
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Replay and compare").click()
    expect(page.get_by_role("dialog", name="Replay")).to_contain_text("Equal.")
    page.keyboard.press("Escape")
    with page.expect_download() as download:
        page.get_by_role("button", name="More").click()
        page.get_by_role("menuitem", name="Export as a file").click()
    assert looked_into in gzip.decompress(download.value.path().read_bytes()).decode()


def test_the_tree_leads_to_the_sub_agent_and_back(acme: Window, looked_into: str) -> None:
    page = acme.open(f"/runs/{looked_into}/tree")
    child = (
        page.get_by_role("table", name="Runs of the tree")
        .locator(f"[data-key^='{looked_into}-']")
        .filter(has_not_text="fork")
    )
    expect(child).to_have_count(1)  # the fork of another test is a row beside it
    child.get_by_role("link", name="analyst").click()
    expect(page).to_have_url(re.compile(f"/{looked_into}-[0-9a-z]+/tree$"))
    page.get_by_role("tab", name="Conversation").click()
    expect(conversation_of(page)).to_contain_text("They are fixed.")
    page.get_by_role("navigation", name="Runs above this one").get_by_role("link", name="analyst").click()
    expect(conversation_of(page)).to_contain_text(QUESTION)


def test_a_run_at_work_is_steered(acme: Window, site: Site, model: ScriptedModel) -> None:
    gate = Gate()
    model.play("Sweep the shop", [Step(say=["I sweep.", gate], calls=[("Glob", {"pattern": "*"})])])
    model.play("Only the window side", [Step(say="Only the window side, then.")])
    run_id = site.client(ACME).start("Sweep the shop")
    page = acme.open(f"/runs/{run_id}")
    expect(conversation_of(page)).to_contain_text("I sweep.")
    page.keyboard.press("s")
    page.keyboard.type("Only the window side")
    page.keyboard.press("Enter")
    expect(conversation_of(page)).to_contain_text("joins before the next model call")
    gate.set()
    expect(conversation_of(page)).to_contain_text("Only the window side, then.")
    expect(conversation_of(page)).not_to_contain_text("joins before the next model call")


def test_a_run_is_paused_resumed_and_cancelled(acme: Window, site: Site) -> None:
    run_id = site.client(ACME).start("sleep", agent="sleeper")
    page = acme.open(f"/runs/{run_id}")
    head = page.locator("header.run-head")
    head.get_by_role("button", name="Pause").click()
    expect(head.get_by_role("button", name="Resume")).to_be_visible()
    head.get_by_role("button", name="Resume").click()
    expect(head.get_by_role("button", name="Pause")).to_be_visible()
    head.get_by_role("button", name="Cancel").click()
    dialog = page.get_by_role("dialog", name="Cancel this run?")
    dialog.get_by_label("Reason").fill("a test")
    dialog.get_by_role("button", name="Cancel the run").click()
    expect(head).to_contain_text("cancelled")


def test_a_session_is_continued_from_the_composer(acme: Window, site: Site, model: ScriptedModel) -> None:
    model.play("And tomorrow?", [Step(say="Tomorrow it is closed.")])
    run_id = site.client(ACME).finish("Is it open today?")
    page = acme.open(f"/runs/{run_id}")
    page.get_by_placeholder(re.compile("Continue the session")).fill("And tomorrow?")
    page.get_by_role("button", name="Continue").click()
    expect(page).not_to_have_url(re.compile(f"{run_id}$"))
    expect(conversation_of(page)).to_contain_text("Tomorrow it is closed.")


def test_a_run_that_does_not_exist_is_said_in_the_words_of_the_server(acme: Window) -> None:
    acme.tolerate("404")
    page = acme.open("/runs/r_01nosuchrun0000000000000000")
    expect(page.get_by_role("alert")).to_contain_text("Not found")
