"""From a token at a client of the api to the same token in the page.

A scripted model types a numbered token every TOKEN_EVERY_S. Two read its run: a plain client of server-sent events in a
thread of this process, and the page. A piece of text counts with its last token, which is the one that was waited for.

Before: web.py. After: web_page.py, web_workload.py.
"""

import re
import threading
import time
from itertools import pairwise
from typing import Any

from playwright.sync_api import Browser

from tests.benchmarks.main import Stack
from tests.benchmarks.web_page import spread_of, window
from tests.benchmarks.web_workload import AUTHOR, TYPED_PROMPT, Beat, api_client, typed_script
from tests.browser.scripted_model import ScriptedModel

TOKENS = 300
GOAL_MS = 50
TOKEN = re.compile(r"w(\d{5}) ")
WITHIN_S = 30.0


class Reader(threading.Thread):
    """A client that reads a run's stream to its end. `at_s` has when each token was first here, by its number."""

    def __init__(self, stack: Stack, run_id: str) -> None:
        super().__init__(daemon=True)
        self.at_s: dict[int, float] = {}
        self.pieces: list[int] = []
        """The last token of every piece of text."""
        self._stack, self._run_id = stack, run_id

    def run(self) -> None:
        with api_client(self._stack).stream("GET", f"/v1/runs/{self._run_id}/stream") as answer:
            for line in answer.iter_lines():
                now_s = time.time()
                found = [int(number) for number in TOKEN.findall(line)] if line.startswith("data: ") else []
                for number in found:
                    self.at_s.setdefault(number, now_s)
                if found:
                    self.pieces.append(found[-1])


WATCH = """
() => {
  const seen = (window.tokens = {});
  let last = 0;
  new MutationObserver(() => {
    const text = document.querySelector('.turn-row[aria-busy="true"]')?.textContent ?? "";
    const number = Number(/w(\\d{5}) (?!.*w\\d{5} )/s.exec(text.slice(-200))?.[1] ?? 0);
    const now = Date.now();
    while (last < number) seen[(last += 1)] = now;
  }).observe(document.querySelector(".run-page"), { subtree: true, childList: true, characterData: true });
}
"""
"""Notes when each token came into the document."""


def measure_tokens(browser: Browser, stack: Stack, origin: str, model: ScriptedModel) -> dict[str, Any]:
    """Milliseconds from the client to the page, and from the model to both."""
    start, beats = Beat(pause_s=WITHIN_S), [Beat() for _ in range(TOKENS)]
    prompt = model.play(f"{TYPED_PROMPT} of tokens", [typed_script([start, *beats])[0]])
    caller = api_client(stack)
    run_id = caller.start(prompt, agent=AUTHOR)
    assert start.reached.wait(WITHIN_S), "the model was not asked"
    reader = Reader(stack, run_id)
    reader.start()
    with window(browser, origin) as here:
        page = here.open(f"/runs/{run_id}")
        page.locator(".conversation .turn-row").first.wait_for()
        page.evaluate(WATCH)
        start.set()
        reader.join(WITHIN_S + TOKENS)
        page.locator(".turn-row.is-end").wait_for()
        in_page_ms = {int(number): ms for number, ms in page.evaluate("() => window.tokens").items()}
    return compared(reader, in_page_ms, {number: beat.at_s for number, beat in enumerate([start, *beats], 1)})


def compared(reader: Reader, in_page_ms: dict[int, float], said_s: dict[int, float]) -> dict[str, Any]:
    """The figures. Tokens that the page got together with the end of the turn are no previews and are left out."""
    pieces = [number for number in reader.pieces if number in in_page_ms]
    gaps = [reader.at_s[b] - reader.at_s[a] for a, b in pairwise(reader.pieces)]
    return {
        "tokens": len(said_s),
        "pieces": len(pieces),
        "client_to_page_ms": spread_of([in_page_ms[number] - reader.at_s[number] * 1000 for number in pieces]),
        "model_to_client_ms": spread_of([(reader.at_s[n] - said_s[n]) * 1000 for n in said_s if n in reader.at_s]),
        "between_pieces_ms": spread_of([gap * 1000 for gap in gaps]),
    }


def print_tokens(figures: dict[str, Any]) -> None:
    """The figures for people."""
    page, client, gaps = (figures[n] for n in ("client_to_page_ms", "model_to_client_ms", "between_pieces_ms"))
    print(
        f"  a token, from a client of the api to the page: p50 {page['p50']:.0f} p95 {page['p95']:.0f} ms "
        f"(goal {GOAL_MS}) of {figures['pieces']} pieces\n"
        f"    from the model to that client: p50 {client['p50']:.0f} p95 {client['p95']:.0f} ms; a piece every "
        f"{gaps['p50']:.0f} ms (p95 {gaps['p95']:.0f})",
        flush=True,
    )
