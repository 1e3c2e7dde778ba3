"""Every page: nothing fails, axe finds nothing serious, and at 360 px nothing has to be scrolled sideways."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import OpenAs
from tests.browser.scripted_model import ScriptedModel, Step
from tests.browser.site import ADMIN, Site

pytestmark = pytest.mark.stack
PROMPT = "Which shelves are empty?"
RUN = "/runs/{run}"
PAGES = (
    "/runs",
    *(f"{RUN}{view}" for view in ("", "/timeline", "/events?seq=1", "/context", "/tree", "/usage", "/compare/{other}")),
    "/start",
    "/start?tab=fan-out",
    "/inbox",
    "/activity",
    "/usage",
    "/log",
    "/log/loom.run.events",
    "/log/loom.run.events/0",
    "/log/dead-letters",
    "/log/audit",
    "/log/projections",
    "/library",
    "/library/agent/analyst",
    "/library/create/agent",
    "/channels",
    "/channels/acceptance/issues",
    "/schedules",
    "/webhooks",
    "/webhooks/triage",
    "/memory",
    "/memory/user/mia",
    *(
        f"/operations/{tab}"
        for tab in ("pause", "limits", "routing", "snapshots", "erasure", "acts", "health", "configuration")
    ),
    "/operations/hooks",
    *(f"/access/{tab}" for tab in ("users", "users/mia", "tokens", "credentials")),
    "/entities/counter",
)


@pytest.fixture(scope="module")
def runs(site: Site, model: ScriptedModel) -> dict[str, str]:
    remember = ("Memory", {"op": "set", "scope": "user", "key": "shelves", "value": ["lamps"]})
    look = ("Glob", {"pattern": "**/*.py"})
    model.play(PROMPT, [Step(say="I look.", calls=[look, remember]), Step(say="Only the **lamps**.")])
    caller = site.client(ADMIN)
    caller.ask("POST", "/v1/_channels/acceptance%2Fissues/publish", json={"payload": {"issue": "dust"}})
    return {name: caller.finish(PROMPT, user_id="mia") for name in ("run", "other")}


@pytest.mark.parametrize("path", PAGES)
def test_the_page_is_accessible_and_fits_a_narrow_window(open_as: OpenAs, runs: dict[str, str], path: str) -> None:
    window = open_as(ADMIN, viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    page = window.open(path.format(**runs))
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.locator("[aria-busy=true], .skeleton")).to_have_count(0)
    page.emulate_media(color_scheme="light")
    assert window.find_barriers() == []
    page.emulate_media(color_scheme="dark")
    assert window.find_barriers("color-contrast") == []
    page.set_viewport_size({"width": 360, "height": 740})
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert window.overflow_px() <= 0


def test_sign_in_is_accessible_and_fits_a_narrow_window(open_as: OpenAs) -> None:
    window = open_as(ADMIN, viewport={"width": 360, "height": 740})
    window.context.clear_cookies()
    window.tolerate("401")
    page = window.open("")
    expect(page.get_by_role("heading", name="Sign in to loomlog")).to_be_visible()
    assert window.find_barriers() == []
    assert window.overflow_px() <= 0
