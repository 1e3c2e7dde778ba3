"""A browser, the page of the session's stack with its scripted model, and windows that report what must never happen.

site       the addresses of the page, the processes behind them, and clients of the API
model      says what a test has written for a prompt
open_as    opens a window for a token: `open_as(ACME)`; without one where nobody has to sign in
acme       a window of tenant acme's operator
admin      a window of the administrator
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.acceptance.installation import Installation
from tests.browser.chromium import WAIT_MS, NoBrowser, Window, launch
from tests.browser.scripted_model import ScriptedModel
from tests.browser.site import ACME, ADMIN, Site

OpenAs = Callable[..., Window]


# The browser is there for this folder alone: Playwright's loop and those of asynchronous tests exclude each other.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=WAIT_MS)
    with sync_playwright() as playwright:
        try:
            launched = launch(playwright)
        except NoBrowser as missing:
            pytest.fail(str(missing), pytrace=False)
        yield launched
        launched.close()


@pytest.fixture(scope="package")
def model(stack: Installation) -> Iterator[ScriptedModel]:
    made = ScriptedModel(stack.lab_port)
    yield made
    made.close()


@pytest.fixture(scope="package")
def site(stack: Installation, model: ScriptedModel) -> Iterator[Site]:
    made = Site(stack)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def open_as(browser: Browser, site: Site) -> Iterator[OpenAs]:
    opened: list[Window] = []

    def open_window(token: str = "", **options: Any) -> Window:
        window = Window(browser, site.origin if token else site.open_origin, token=token, **options)
        opened.append(window)
        return window

    yield open_window
    for window in opened:
        window.close()
    faults = [fault for window in opened for fault in window.faults]
    assert not faults, "\n".join(faults)


@pytest.fixture
def acme(open_as: OpenAs) -> Window:
    return open_as(ACME)


@pytest.fixture
def admin(open_as: OpenAs) -> Window:
    return open_as(ADMIN)
