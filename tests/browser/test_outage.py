"""The api dies in the middle of a live run, and comes back: nothing is missing and nothing is there twice."""

import re

import pytest
from playwright.sync_api import expect

from tests.browser.chromium import AWAY
from tests.browser.conftest import OpenAs
from tests.browser.scripted_model import Gate, ScriptedModel, Step
from tests.browser.site import Site

pytestmark = pytest.mark.stack
BACK_WITHIN_MS = 60_000
"""Time for the supervisor to start the api again, on a busy machine, and for the page to notice."""


def test_a_live_run_goes_on_in_the_page_after_a_kill_of_the_api(
    open_as: OpenAs, site: Site, model: ScriptedModel
) -> None:
    first, last = Gate(), Gate()
    model.play(
        "Count the shelves",
        [
            Step(say=["First shelf.\n\n", first, "Second shelf.\n\n"], calls=[("Glob", {"pattern": "*.py"})]),
            Step(say="Third shelf.\n\n", calls=[("Glob", {"pattern": "*.md"})]),
            Step(say=["Fourth shelf.\n\n", last, "Last shelf."]),
        ],
    )
    window = open_as()
    window.tolerate(*AWAY, "503")
    runs = window.open("/runs")
    expect(runs.get_by_text("live", exact=True)).to_be_visible()
    run_id = site.client().start("Count the shelves")
    page = window.open(f"/runs/{run_id}")
    conversation = page.get_by_role("region", name="Conversation")
    expect(conversation).to_contain_text("First shelf.")

    site.kill_open_api()
    banner = page.get_by_role("status").filter(has_text="The server does not answer")
    expect(banner).to_be_visible()
    # What happens meanwhile is not lost: the runtime goes on without the api.
    first.set()
    assert last.reached.wait(30)
    expect(conversation).to_contain_text("Third shelf.", timeout=BACK_WITHIN_MS)
    expect(conversation).to_contain_text("Fourth shelf.")  # of the turn in progress, said while no api was there
    expect(banner).to_have_count(0)
    last.set()
    expect(page.locator("header.run-head")).to_contain_text("completed")

    for word in ("First", "Second", "Third", "Fourth", "Last"):
        expect(conversation.get_by_role("paragraph").filter(has_text=re.compile(f"^{word} shelf.$"))).to_have_count(1)
    expect(conversation.locator("details", has_text="Glob")).to_have_count(2)
    for turn in (1, 2, 3):
        expect(conversation.get_by_text(f"turn {turn} ·")).to_have_count(1)
    # Times come with the events, which the page reads beside the conversation.
    expect(conversation.locator("a.clock").filter(has_text="#")).to_have_count(0)
    rows = conversation.inner_text()
    page.reload()
    # The same rows as for a person who opens the page now.
    expect(conversation).to_have_text(rows, use_inner_text=True)
