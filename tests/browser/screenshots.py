"""Pictures of every page in light and dark, of a stack whose agents have worked, for docs/figures.

    make screenshots            or: python -m tests.browser.screenshots [PICTURE ...] [--out FOLDER]

1280 by 800 pixels, in few colours, so that each is small; a picture of more than BYTES_MAX fails. Look at each before
it is committed.
"""

import argparse
import io
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.acceptance.installation import REPOSITORY, Installation
from tests.browser.chromium import WAIT_MS, Window, launch
from tests.browser.scripted_model import ScriptedModel
from tests.browser.shop import WHY, Shop, open_shop
from tests.browser.site import ADMIN, Site

FIGURES = REPOSITORY / "docs" / "figures"
SIZE = {"width": 1280, "height": 800}
SCHEMES: Sequence[Literal["light", "dark"]] = ("light", "dark")
COLOURS = 256
BYTES_MAX = 150_000
PICTURES: Mapping[str, str] = {
    "run-live": "/runs/{live}",
    "runs": "/runs",
    "run": "/runs/{why}",
    "run-failed": "/runs/{failed}",
    "timeline": "/runs/{why}/timeline",
    "events": "/runs/{why}/events?seq=3",
    "context": "/runs/{why}/context?turn=2",
    "tree": "/runs/{why}/tree",
    "run-usage": "/runs/{why}/usage",
    "compare": "/runs/{why}/compare/{fork}",
    "start": "/start?agent=analyst",
    "inbox": "/inbox",
    "activity": "/activity",
    "usage": "/usage",
    "log": "/log/loom.run.events/0",
    "library": "/library/agent/clerk?view=changes",
    "channel": "/channels/acceptance/reports",
    "schedules": "/schedules/{schedule}",
    "webhooks": "/webhooks/triage",
    "memory": "/memory/user/mia?key=orders%2F4711",
    "operations": "/operations/limits",
    "user": "/access/users/mia",
    "tokens": "/access/tokens",
}
"""File name -> address. The answer that streams is first: an api keeps it half a minute for those who come later."""

SHOWN: Mapping[str, str] = {
    "run-live": "an old lamp",
    "runs": "waits for an answer",
    "run": "prices as text",
    "run-failed": "mock 500",
    "timeline": "by what the run waited for",
    "events": "ModelReplied",
    "context": "System prompt",
    "tree": "Dashed lines lead to forks",
    "run-usage": "By turn",
    "compare": "They part at step",
    "start": "answers questions about the shop",
    "inbox": "The till is 12.40 EUR short",
    "activity": "Latency of models",
    "usage": "All in USD",
    "log": "RunCompleted",
    "library": "You answer customers.",
    "channel": "shelf 3 is empty",
    "schedules": "by hand",
    "webhooks": "not proven",
    "memory": "DE-88",
    "operations": "above the soft limit",
    "user": "till",
    "tokens": "nightly-import",
}
"""What a page says once it has its data."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures", nargs="*", help="which ones; all if none is named")
    parser.add_argument("--out", type=Path, default=FIGURES)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="loomlog-pictures-"))
    installation = Installation(folder)
    installation.make()
    model = ScriptedModel(installation.lab_port)
    try:
        installation.up()
        site = Site(installation)
        try:
            site.start()
            take(site, open_shop(site, model), arguments.pictures or list(PICTURES), arguments.out)
        finally:
            site.stop()
    finally:
        installation.loomlog("down")
        model.close()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def take(site: Site, shop: Shop, names: list[str], out: Path) -> None:
    expect.set_options(timeout=WAIT_MS)
    places = {name: getattr(shop, name) for name in shop.__slots__}
    out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = launch(playwright)
        windows = {scheme: open_window(browser, site.origin, scheme) for scheme in SCHEMES}
        for name in names:
            for scheme, window in windows.items():
                page = window.open(PICTURES[name].format(**places))
                expect(page.get_by_role("main")).to_contain_text(SHOWN[name])
                expect(page.locator(".state[aria-busy=true], .skeleton")).to_have_count(0)
                PREPARE.get(name, settle)(page)
                settle(page)
                file = out / f"ui-{name}-{scheme}.png"
                file.write_bytes(compressed(page.screenshot()))
                size = file.stat().st_size
                print(f"{file.name}  {size:,} bytes")
                assert size <= BYTES_MAX, f"{file} has {size:,} bytes; {BYTES_MAX:,} are allowed"
                assert not window.faults, "\n".join(window.faults)
        browser.close()


def open_window(browser: Browser, origin: str, scheme: Literal["light", "dark"]) -> Window:
    window = Window(browser, origin, token=ADMIN, viewport=SIZE, color_scheme=scheme, reduced_motion="reduce")
    window.tolerate("404")
    return window


def settle(page: Page) -> None:
    """Wait until nothing moves: two frames after what was asked for last."""
    page.wait_for_load_state("load")
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def from_the_beginning(page: Page) -> None:
    box = page.get_by_role("region", name="Conversation")
    settle(page)
    box.evaluate("(box) => box.scrollTo(0, 0)")
    expect(box.get_by_text(WHY)).to_be_in_viewport()


def with_a_bar_chosen(page: Page) -> None:
    bars = page.get_by_role("group", name=re.compile("Bars of the run"))
    bars.get_by_role("button", name=re.compile("^Read")).first.click()
    expect(page.get_by_role("tabpanel")).to_contain_text("ToolReturned")
    page.mouse.move(0, 0)
    expect(page.get_by_role("tooltip")).to_have_count(0)


def with_charts(page: Page) -> None:
    expect(page.locator("figure canvas").first).to_be_visible()
    page.get_by_role("tab", name="Last 5 min").click()


def with_a_prompt(page: Page) -> None:
    page.get_by_label("Prompt").fill("Which orders of last week are still open? Name the oldest first.")


PREPARE: Mapping[str, Callable[[Page], None]] = {
    "run": from_the_beginning,
    "timeline": with_a_bar_chosen,
    "activity": with_charts,
    "start": with_a_prompt,
}


def compressed(picture: bytes) -> bytes:
    """Return the picture with a palette: a page has few colours, and text stays sharp."""
    image = Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, kmeans=3)
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


if __name__ == "__main__":
    sys.exit(main())
