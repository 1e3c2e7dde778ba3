"""What open tabs cost the api while runs go on: one tab on the live list, and fifty, half of them on a live run.

    one tab      CPU of the api with the tab less that without, in turns, because what else the api does varies
    many tabs    each in a window of its own, as so many people have it: which of them are live, CPU of the api, how
                 soon it answers. The browser takes most of this machine meanwhile, which is in the answer times

The runs are started through the log, so the api does nothing for them but read what they append.

Before: web.py. After: web_page.py, web_workload.py.
"""

import statistics
import time
from dataclasses import replace
from typing import Any

import psutil
from playwright.sync_api import Browser, Page

from tests.benchmarks.main import Stack
from tests.benchmarks.web_page import Window, spread_of, window
from tests.benchmarks.web_paint import ROW
from tests.benchmarks.web_workload import (
    AUTHOR,
    TYPED_PROMPT,
    Beat,
    answer_times_ms,
    api_client,
    runs_beside,
    typed_script,
)
from tests.browser.scripted_model import Gate, ScriptedModel

RUNS_PER_S = 20.0
TURNS = 3
TURN_S = 6.0
SETTLE_S = 1.5
"""After a tab was opened or closed, before the api's CPU is counted."""
TABS = 50
TABS_RUNS_PER_S = 2.0
"""Beside many tabs: each run is work for half of them, and they share two cores with the stack."""
WATCHED_RUNS = 5
TOKEN_PAUSE_S = 0.5
TOKENS_A_TURN, TYPED_TURNS = 16, 100
"""A turn takes 8 s."""
ANSWERS_S, ANSWERS_EVERY_S = 8.0, 0.05
GOAL_PERCENT = 2
LIVE = "header .chip.live"
GROWING = '.turn-row[aria-busy="true"]'


def measure_one_tab(browser: Browser, stack: Stack, origin: str) -> dict[str, Any]:
    """Percent of a core."""
    without, with_tab = [], []
    with runs_beside(stack, RUNS_PER_S):
        time.sleep(SETTLE_S)
        for _ in range(TURNS):
            without.append(api_percent(stack, TURN_S))
            with window(browser, origin) as here:
                here.open("/runs").locator(LIVE).wait_for()
                here.page.wait_for_timeout(SETTLE_S * 1000)
                # Not time.sleep: the tab's events are handled meanwhile.
                with_tab.append(api_percent(stack, TURN_S, here.page))
            time.sleep(SETTLE_S)
    added = [after - before for before, after in zip(without, with_tab, strict=True)]
    return {
        "runs_per_s": RUNS_PER_S,
        "without_percent": round(statistics.median(without), 2),
        "with_percent": round(statistics.median(with_tab), 2),
        "tab_percent": round(statistics.median(added), 2),
        "taken": [round(one, 2) for one in added],
    }


def measure_many_tabs(browser: Browser, stack: Stack, origin: str, model: ScriptedModel) -> dict[str, Any]:
    """Liveness, CPU and answer times with TABS tabs."""
    over = Gate()
    run_ids = [start_typing(stack, model, number, over) for number in range(WATCHED_RUNS)]
    opened: list[Window] = []
    caller = api_client(stack)
    try:
        alone_ms = answer_times_ms(caller, "/healthz", ANSWERS_S / 4, ANSWERS_EVERY_S)
        for number in range(TABS):
            opened.append(Window(browser, origin))
            path = f"/runs/{run_ids[number // 2 % WATCHED_RUNS]}" if number % 2 else "/runs"
            opened[-1].open(path)
            opened[-1].page.locator(GROWING if number % 2 else f"{LIVE}, {ROW}").first.wait_for()
        with runs_beside(stack, TABS_RUNS_PER_S):
            before = [seen(tab.page, number) for number, tab in enumerate(opened)]
            cpu_before_s, began = cpu_s(stack), time.monotonic()
            answers_ms = answer_times_ms(caller, "/healthz", ANSWERS_S, ANSWERS_EVERY_S)
            percent = 100 * (cpu_s(stack) - cpu_before_s) / (time.monotonic() - began)
            after = [seen(tab.page, number) for number, tab in enumerate(opened)]
        faults = [fault for tab in opened for fault in tab.faults]
    finally:
        for tab in opened:
            tab.context.close()
        for run_id in run_ids:
            caller.ask("POST", f"/v1/agents/{caller.ask('GET', f'/v1/runs/{run_id}')['agent_id']}/cancel", json={})
        over.set()
    assert not faults, faults
    return {
        "tabs": TABS,
        "live": sum(new != old for new, old in zip(after, before, strict=True)),
        "api_percent": round(percent, 1),
        "postponed": sum(tab.postponed for tab in opened),
        "healthz_ms": spread_of(answers_ms),
        "healthz_alone_ms": spread_of(alone_ms),
    }


def start_typing(stack: Stack, model: ScriptedModel, number: int, over: Gate) -> str:
    """A run whose model says a token every TOKEN_PAUSE_S until `over`; its id."""
    (turn,) = typed_script([_Until(over) for _ in range(TOKENS_A_TURN)])
    steps = [replace(turn, calls=[("Bench", {})])] * TYPED_TURNS
    prompt = model.play(f"{TYPED_PROMPT} of tab {number}", steps)
    return api_client(stack).start(prompt, agent=AUTHOR)


class _Until(Beat):
    """A pause that is none any more once another gate is open."""

    def __init__(self, over: Gate) -> None:
        super().__init__()
        self._over = over

    def wait(self, timeout: float | None = None) -> bool:
        return self._over.wait(TOKEN_PAUSE_S)


def seen(page: Page, number: int) -> str:
    """What changes in a tab that is live: the text of the run, or the first row of the list."""
    text: str = page.locator(GROWING if number % 2 else ROW).first.inner_text()
    return text


def cpu_s(stack: Stack) -> float:
    """CPU-seconds of the api so far."""
    times = psutil.Process(stack.pids["api"]).cpu_times()
    return float(times.user + times.system)


def api_percent(stack: Stack, seconds: float, page: Page | None = None) -> float:
    """Percent of a core that the api takes for a while."""
    before_s, began = cpu_s(stack), time.monotonic()
    if page is None:
        time.sleep(seconds)
    else:
        page.wait_for_timeout(seconds * 1000)
    return 100 * (cpu_s(stack) - before_s) / (time.monotonic() - began)


def print_one_tab(figures: dict[str, Any]) -> None:
    """The figures for people."""
    print(
        f"  one tab on the live list beside {figures['runs_per_s']:.0f} runs/s costs the api "
        f"{figures['tab_percent']:.1f} % of a core (goal {GOAL_PERCENT}; {figures['taken']}): "
        f"{figures['with_percent']:.1f} % with it, {figures['without_percent']:.1f} % without",
        flush=True,
    )


def print_many_tabs(figures: dict[str, Any]) -> None:
    """The figures for people."""
    busy, alone = figures["healthz_ms"], figures["healthz_alone_ms"]
    print(
        f"  {figures['tabs']} tabs: {figures['live']} live, {figures['postponed']} calls answered 429; the api takes "
        f"{figures['api_percent']:.0f} % of a core; /healthz p50 {busy['p50']:.1f} p95 {busy['p95']:.1f} max "
        f"{busy['max']:.0f} ms, without tabs p50 {alone['p50']:.1f} p95 {alone['p95']:.1f} ms",
        flush=True,
    )
