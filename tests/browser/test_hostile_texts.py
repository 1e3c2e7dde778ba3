"""Texts of models, tools and people are data, whatever they contain: no script runs, nothing is asked from elsewhere.

A window stops and reports every request to another host, every dialog, every error of a script and every breach of the
policy; here the texts try all of that, on each page that shows them.
"""

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.chromium import Window
from tests.browser.scripted_model import ScriptedModel, Step
from tests.browser.site import ADMIN, Site

pytestmark = pytest.mark.stack
MARK = "harmless-end"
SCRIPT = "<script>window.hacked = 1; alert(1)</script>"
IMAGE = "<img src=x onerror='window.hacked = 1'><img src='https://evil.example/pixel.png'>"
SVG = (
    "<svg onload='window.hacked = 1'><foreignObject><iframe src='https://evil.example'></iframe></foreignObject></svg>"
)
MARKDOWN = (
    "[click](javascript:window.hacked=1) [data](data:text/html,<script>window.hacked=1</script>) "
    "![pixel](https://evil.example/pixel.png) <javascript:window.hacked=1> "
    "[ref]\n\n[ref]: javascript:window.hacked=1\n\n```html\n<script>window.hacked = 1</script>\n```\n"
)
STYLE = (
    "<style>body { display: none }</style><link rel=stylesheet href='//evil.example/a.css'><base href='//evil.example'>"
)
OVERRIDE = "\u202eright to left\u202c \u2066isolate\u2069 \u200b\u0000 \x1b[31m"
TEXT = f"{SCRIPT} {IMAGE} {SVG}\n\n{MARKDOWN}\n{STYLE} {OVERRIDE} {MARK}"
LINE = ["x" * 1_000_000] * 5
"""Five megabytes without a break, in the pieces that a provider may send."""


@pytest.fixture(scope="module")
def hostile(site: Site, model: ScriptedModel) -> str:
    """A run in which everything that can have such texts has them."""
    ask = {"op": "ask", "question": TEXT, "options": [f"{SCRIPT} yes", f"{SVG} no"]}
    model.play(
        TEXT,
        [
            Step(
                say=TEXT,
                calls=[
                    ("Read", {"path": f"{IMAGE}.txt"}),
                    ("Memory", {"op": "set", "scope": "user", "key": "<svg onload=window.hacked=1>", "value": TEXT}),
                    (f"Tool{SVG}", {"x": TEXT}),
                ],
            ),
            Step(say=LINE, calls=[("Write", {"volume": "out", "path": "long.txt", "content": "y" * 200_000})]),
            Step(calls=[("Interruption", ask)]),
            Step(say=f"{TEXT} the end"),
        ],
    )
    caller = site.client(ADMIN)
    run_id = caller.start(TEXT, user_id="hostile", metadata={"<b>": TEXT})
    question = wait_for_question(caller, run_id)
    assert question["question"].startswith(SCRIPT)
    return run_id


def wait_for_question(caller: Any, run_id: str) -> Any:
    with caller.stream("GET", f"/v1/runs/{run_id}/stream") as answer:
        for line in answer.iter_lines():
            if line.startswith("data: ") and json.loads(line[6:]).get("type") == "interruption_pending":
                return json.loads(line[6:])["interruption"]
    raise AssertionError("the run ended without its question")


def settle(page: Page) -> None:
    """Wait until the page has drawn what it has, and see that nothing ran and nothing foreign is in the document."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert page.evaluate("() => [window.hacked, getComputedStyle(document.body).display]") == [None, "block"]
    assert page.evaluate("() => document.querySelectorAll('iframe, object, embed, base, img[src^=http]').length") == 0
    assert page.evaluate("() => document.querySelectorAll('script:not([src], [type=importmap])').length") == 0
    links = "[...document.querySelectorAll('a[href]')].map((a) => String(a.href.baseVal ?? a.href))"
    addresses = page.evaluate(f"() => {links}")
    assert [one for one in addresses if not one.startswith(("http://", "https://", "/", "#"))] == []


@pytest.mark.parametrize("view", ["", "/timeline", "/events", "/context", "/tree", "/usage"])
def test_hostile_texts_are_shown_harmless_in_each_view_of_a_run(admin: Window, hostile: str, view: str) -> None:
    page = admin.open(f"/runs/{hostile}{view}")
    expect(page.get_by_role("tabpanel")).not_to_be_empty()
    if not view:
        said = page.get_by_role("region", name="Conversation")
        expect(said.get_by_text(MARK).first).to_be_attached()
        said.evaluate("(box) => box.querySelectorAll('details:not([open]) > summary').forEach((one) => one.click())")
    if view == "/events":
        page.get_by_role("table", name="Records of the run").get_by_role("row").nth(3).click()
        expect(page).to_have_url(re.compile("seq="))
    settle(page)
    assert admin.overflow_px() <= 0


def test_hostile_questions_can_be_read_and_answered(admin: Window, hostile: str) -> None:
    page = admin.open(f"/inbox?run={hostile}")
    question = page.get_by_role("article")
    expect(question).to_contain_text(MARK)
    settle(page)
    question.get_by_role("button", name="yes").click()
    page.goto(f"/ui/runs/{hostile}")
    expect(page.locator("header.run-head")).to_contain_text("completed")
    settle(page)


def test_hostile_names_and_messages_are_shown_harmless_in_lists(admin: Window, site: Site, hostile: str) -> None:
    caller = site.client(ADMIN)
    name = "acceptance/reports"
    caller.ask(
        "POST",
        f"/v1/_channels/{name.replace('/', '%2F')}/publish",
        json={"payload": {"text": TEXT.replace("\0", ""), SVG: SCRIPT}},
    )
    for path in ("/runs", f"/channels/{name}", "/memory", "/library", "/activity", "/usage", "/log", "/operations"):
        page = admin.open(path)
        expect(page.get_by_role("main")).not_to_be_empty()
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        settle(page)
