"""The Chromium of this machine, and windows of it that notice what must never happen in the page.

Playwright drives the browser that is installed and brings none of its own: the tests use what a person has, and nothing
is downloaded when they run. Without one they fail, with the command that installs it.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]  # it ships no types
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Playwright, Request, Route

NAMES = ("chromium", "chromium-browser", "google-chrome")
VARIABLE = "LOOMLOG_CHROMIUM"
ARGUMENTS = (
    "--no-sandbox",  # its sandbox cannot be made by root, as whom tests run in containers
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WAIT_MS = 15_000
"""Longest wait for something to appear: much more than it takes, because two cores also run the whole stack."""
SERIOUS = ("serious", "critical")
"""Impacts of axe-core that fail a test."""
AWAY = ("ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE", "ERR_INCOMPLETE_CHUNKED_ENCODING")
"""What Chromium writes to the console while a server is away."""


class NoBrowser(Exception):
    """There is no Chromium; the text says how to install one."""


def find_chromium(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the browser's program. Raises NoBrowser."""
    named = environ.get(VARIABLE, "").strip()
    if named:
        if shutil.which(named) is None:
            raise NoBrowser(f"{VARIABLE}={named} is no program that can be started")
        return Path(named)
    found = next(filter(None, (shutil.which(name, path=environ.get("PATH")) for name in NAMES)), None)
    if found is None:
        raise NoBrowser(
            f"the tests of the web page need Chromium, and none of {', '.join(NAMES)} is on PATH: "
            f"apt-get install chromium, or name another program with {VARIABLE}"
        )
    return Path(found)


def launch(playwright: Playwright) -> Browser:
    """Start the browser without a display. Raises NoBrowser."""
    return playwright.chromium.launch(executable_path=str(find_chromium()), args=list(ARGUMENTS))


class Window:
    """A window of a person at `origin`: its own cookies and storage, and one page.

    `faults` has what must not happen: errors of scripts and of the policy, refused calls, dialogs, and requests to
    other hosts, which are also stopped.
    """

    def __init__(self, browser: Browser, origin: str, *, token: str = "", **options: Any) -> None:
        self.origin = origin
        self.faults: list[str] = []
        self._tolerated: tuple[str, ...] = ()
        self.context: BrowserContext = browser.new_context(base_url=origin, **options)
        self.context.set_default_timeout(WAIT_MS)
        self.context.route(lambda url: not url.startswith(origin), self._stop)
        if token:
            name = f"loomlog_session_{urlsplit(origin).port}"
            self.context.add_cookies([{"name": name, "value": token, "url": origin, "sameSite": "Strict"}])
        self.page: Page = self.context.new_page()
        self._watch(self.page)

    def open(self, path: str) -> Page:
        """Go to a page, such as "/runs?status=failed"."""
        self.page.goto(f"/ui{path}")
        return self.page

    def tolerate(self, *parts: str) -> None:
        """Expect console messages with one of `parts` from now on: something is refused or stopped on purpose."""
        self._tolerated = (*self._tolerated, *parts)

    def find_barriers(self, *rules: str) -> list[str]:
        """Return what axe finds that is serious or critical, one line for each rule; of `rules`, or of all."""
        options = {"runOnly": list(rules)} if rules else None
        found = Axe().run(self.page, options=options).response["violations"]
        return [
            f"{one['impact']}: {one['id']}: {one['help']}: {[node['target'] for node in one['nodes']][:3]}"
            for one in found
            if one["impact"] in SERIOUS
        ]

    def overflow_px(self) -> int:
        """Return how far the page can be scrolled sideways."""
        width: int = self.page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
        return width

    def close(self) -> None:
        self.context.close()

    def _watch(self, page: Page) -> None:
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.faults.append(f"a script failed: {error}"))
        page.on("dialog", self._dismiss)
        page.on("popup", lambda popup: self.faults.append(f"a window: {popup.url}"))

    def _dismiss(self, dialog: Dialog) -> None:
        self.faults.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def _hear(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning"):
            return
        text = f"console: {message.text} ({message.location.get('url', '')})"
        if not any(part in text for part in self._tolerated):
            self.faults.append(text)

    def _stop(self, route: Route, request: Request) -> None:
        self.faults.append(f"a request to another host: {request.url}")
        route.abort()
