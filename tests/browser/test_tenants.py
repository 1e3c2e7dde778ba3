"""Two tenants in two windows see nothing of each other."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import OpenAs
from tests.browser.scripted_model import ScriptedModel, Step
from tests.browser.site import ACME, GLOBEX, Site

pytestmark = pytest.mark.stack


def test_two_tenants_in_two_windows_see_nothing_of_each_other(
    open_as: OpenAs, site: Site, model: ScriptedModel
) -> None:
    acme, globex = open_as(ACME), open_as(GLOBEX)
    theirs = globex.open("/runs")
    expect(theirs.get_by_text("live", exact=True)).to_be_visible()
    mine = acme.open("/runs")
    expect(mine.get_by_text("live", exact=True)).to_be_visible()

    ask = {"op": "ask", "question": "The secret of acme?", "options": ["keep it"]}
    remember = {"op": "set", "key": "acme-secret", "value": "gold", "scope": "user"}
    model.play("Keep a secret", [Step(calls=[("Memory", remember), ("Interruption", ask)]), Step(say="Kept.")])
    secret = site.client(ACME).start("Keep a secret")
    seen = site.client(GLOBEX).finish("Hello")
    runs = "[role=table][aria-label=Runs]"
    expect(mine.locator(f"{runs} [data-key='{secret}']")).to_contain_text("waits for an answer")
    expect(theirs.locator(f"{runs} [data-key='{seen}']")).to_contain_text("completed")
    expect(theirs.locator(f"{runs} [data-key='{secret}']")).to_have_count(0)
    expect(mine.locator(f"{runs} [data-key='{seen}']")).to_have_count(0)

    globex.tolerate("404")
    theirs.goto(f"/ui/runs/{secret}")
    expect(theirs.get_by_role("alert")).to_contain_text("Not found")
    theirs.goto("/ui/inbox")
    expect(theirs.get_by_role("heading", name="Inbox", level=1)).to_be_visible()
    mine.goto("/ui/inbox")
    expect(mine.get_by_text("The secret of acme?")).to_be_visible()
    expect(theirs.get_by_text("The secret of acme?")).to_have_count(0)
    mine.get_by_role("button", name="keep it").click()
    expect(mine.get_by_text("The secret of acme?")).to_have_count(0)
