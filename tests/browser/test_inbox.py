"""Questions of runs: they come by themselves, the title counts them, and an answer or a refusal lets the run go on."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.chromium import Window
from tests.browser.conftest import OpenAs
from tests.browser.scripted_model import ScriptedModel, Step
from tests.browser.site import GLOBEX, Site

pytestmark = pytest.mark.stack


@pytest.fixture
def globex(open_as: OpenAs) -> Window:
    """A tenant in which nothing else asks, so that questions can be counted."""
    return open_as(GLOBEX)


def ask(site: Site, model: ScriptedModel, prompt: str, question: str, options: list[str] | None = None) -> str:
    arguments = {"op": "ask", "question": question, **({"options": options} if options else {})}
    model.play(prompt, [Step(say="I have to ask.", calls=[("Interruption", arguments)]), Step(say="Then I know.")])
    return site.client(GLOBEX).start(prompt)


def question_of(page: Page, text: str) -> Locator:
    return page.get_by_role("article").filter(has_text=text)


def test_questions_are_answered_by_a_click_by_a_key_by_text_or_declined(
    globex: Window, site: Site, model: ScriptedModel
) -> None:
    page = globex.open("/inbox")
    expect(page.get_by_text("No question waits")).to_be_visible()
    runs = {
        "colour": ask(site, model, "Paint the door", "Which colour?", ["red", "green"]),
        "size": ask(site, model, "Order a box", "Which size?", ["small", "large"]),
        "name": ask(site, model, "Print a label", "Whose name?"),
        "gift": ask(site, model, "Wrap it", "Is it a gift?", ["yes", "no"]),
    }
    for text in ("Which colour?", "Which size?", "Whose name?", "Is it a gift?"):
        expect(question_of(page, text)).to_be_visible()
    expect(page).to_have_title(re.compile(r"^\(4\) Inbox"))
    expect(page.get_by_role("navigation", name="Pages").get_by_title("questions that wait for an answer")).to_have_text(
        "4"
    )

    question_of(page, "Which colour?").get_by_role("button", name="green").click()
    expect(question_of(page, "Which colour?")).to_have_count(0)
    question_of(page, "Which size?").get_by_text("Which size?").click()
    page.keyboard.press("2")
    expect(question_of(page, "Which size?")).to_have_count(0)
    question_of(page, "Whose name?").get_by_label("Answer").fill("Ada's")
    page.keyboard.press("Control+Enter")
    expect(question_of(page, "Whose name?")).to_have_count(0)
    question_of(page, "Is it a gift?").get_by_role("button", name="Decline").click()
    expect(page.get_by_text("No question waits")).to_be_visible()
    expect(page).to_have_title(re.compile("^Inbox"))

    page.get_by_role("tab", name="Answered").click()
    for text, answer in (("Which colour?", "green"), ("Which size?", "large"), ("Whose name?", "Ada's")):
        expect(question_of(page, text).first).to_contain_text(answer)
    expect(question_of(page, "Is it a gift?").first).to_contain_text("declined")
    page.goto(f"/ui/runs/{runs['size']}")
    expect(page.get_by_role("region", name="Conversation")).to_contain_text("Then I know.")


def test_a_question_is_answered_inside_of_the_run_too(globex: Window, site: Site, model: ScriptedModel) -> None:
    run_id = ask(site, model, "Close the shop", "Really close it?", ["close it", "leave it open"])
    page = globex.open(f"/runs/{run_id}")
    conversation = page.get_by_role("region", name="Conversation")
    expect(conversation).to_contain_text("Really close it?")
    expect(page.locator("header.run-head")).to_contain_text("waits for an answer")
    conversation.get_by_role("button", name="leave it open").click()
    expect(conversation).to_contain_text("Then I know.")
    expect(page.locator("header.run-head")).to_contain_text("completed")


def test_a_call_is_approved_with_its_arguments_and_a_reason(globex: Window, site: Site) -> None:
    client = site.client(GLOBEX)
    runs = {name: client.start(name, agent="teller") for name in ("approved-in-the-page", "denied-in-the-page")}
    page = globex.open("/inbox")
    for name, button, toast in (
        ("approved-in-the-page", "Approve", "Approved: the call is made."),
        ("denied-in-the-page", "Deny", "Denied: the agent is told."),
    ):
        card = question_of(page, name)
        expect(card).to_contain_text("money leaves the house")
        expect(card).to_contain_text("0 of 1 have approved")
        card.get_by_label("Reason").fill("seen")
        card.get_by_role("button", name=button).click()
        expect(page.get_by_text(toast)).to_be_visible()
        expect(card).to_have_count(0)
    page.get_by_role("tab", name="Answered").click()
    expect(question_of(page, "approved-in-the-page").first).to_contain_text("approved")
    expect(question_of(page, "denied-in-the-page").first).to_contain_text("denied")
    page.goto(f"/ui/runs/{runs['denied-in-the-page']}")
    expect(page.get_by_role("region", name="Conversation")).to_contain_text("denied by gus")
