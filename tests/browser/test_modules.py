"""The pure modules of the page, tested in the browser that runs them.

tests/web/*.test.js are written for `node --test tests/web/`. Nobody needs Node for them: here the same files run in
Chromium, where small modules stand for node:test, node:assert/strict and node:fs. Those of *.page.js need the import
map of the page, and run here alone.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route

from tests.acceptance.installation import REPOSITORY
from tests.browser.chromium import Window

pytestmark = pytest.mark.stack
ORIGIN = "http://127.0.0.1:9"
"""Nothing listens there: every request is answered from the checkout. On loopback a page may use crypto.subtle."""
SERVED = ("tests/web/", "tests/browser/shims/", "services/web/")
TYPES = {".js": "text/javascript", ".json": "application/json"}
VENDOR = "/services/web/vendor"
IMPORTS = {
    "node:test": "/tests/browser/shims/test.js",
    "node:assert/strict": "/tests/browser/shims/assert.js",
    "node:assert": "/tests/browser/shims/assert.js",
    "node:fs": "/tests/browser/shims/fs.js",
    "preact": f"{VENDOR}/preact.js",
    "preact/hooks": f"{VENDOR}/preact-hooks.js",
    "@preact/signals": f"{VENDOR}/signals.js",
    "@preact/signals-core": f"{VENDOR}/signals-core.js",
    "htm": f"{VENDOR}/htm.js",
}
INDEX = f'<!doctype html><script type="importmap">{json.dumps({"imports": IMPORTS})}</script>'
RUN = """async (file) => {
  const { run } = await import("node:test");
  await import(file);
  return await run();
}"""
FILES = sorted(path.name for path in (REPOSITORY / "tests" / "web").glob("*.js"))


@pytest.fixture
def bench(browser: Browser) -> Iterator[Page]:
    """An empty page from which modules of the checkout can be imported."""
    window = Window(browser, ORIGIN)
    window.context.route(f"{ORIGIN}/**", _answer)
    window.page.goto("/")
    yield window.page
    window.close()
    assert not window.faults, "\n".join(window.faults)


def _answer(route: Route) -> None:
    path = urlsplit(route.request.url).path.lstrip("/")
    file = (REPOSITORY / path).resolve()
    if path == "":
        route.fulfill(body=INDEX, content_type="text/html")
    elif path.startswith(SERVED) and file.is_relative_to(REPOSITORY) and file.is_file():
        route.fulfill(body=file.read_text(), content_type=TYPES.get(Path(path).suffix, "text/plain"))
    else:
        route.fulfill(status=404, body=f"no file {path}")


@pytest.mark.parametrize("name", FILES)
def test_modules_of_the_page_do_what_their_tests_say(bench: Page, name: str) -> None:
    results = bench.evaluate(RUN, f"/tests/web/{name}")
    assert results, f"{name} has no test"
    failed = [f"{one['name']}\n{one['failure']}" for one in results if one["failure"]]
    assert not failed, "\n\n".join(failed)


def test_the_stand_in_for_assert_refuses_what_node_refuses(bench: Page) -> None:
    refused = bench.evaluate("""async () => {
      const { default: assert } = await import("node:assert/strict");
      const refuses = (act) => { try { act(); return false } catch { return true } };
      return [
        refuses(() => assert.equal(1, "1")),
        refuses(() => assert.equal(0, -0)),
        refuses(() => assert.deepEqual({ a: 1 }, { a: 1, b: undefined })),
        refuses(() => assert.deepEqual([1, 2], [2, 1])),
        refuses(() => assert.deepEqual({ a: { b: 1 } }, { a: { b: "1" } })),
        refuses(() => assert.deepEqual(new Map([[1, 2]]), new Map([[1, 3]]))),
        refuses(() => assert.deepEqual(new Set([1]), new Set([2]))),
        refuses(() => assert.deepEqual([], {})),
        refuses(() => assert.deepEqual(new Date(1), new Date(2))),
        refuses(() => assert.ok(0)),
        refuses(() => assert.match("abc", /x/)),
        refuses(() => assert.throws(() => 1)),
        refuses(() => assert.throws(() => { throw new Error("other") }, /this/)),
        refuses(() => assert.throws(() => { throw new Error("other") }, TypeError)),
      ];
    }""")
    assert all(refused), refused
    accepted = bench.evaluate("""async () => {
      const { default: assert } = await import("node:assert/strict");
      assert.equal(NaN, NaN);
      assert.deepEqual({ a: [1, { b: null }] }, { a: [1, { b: null }] });
      assert.deepEqual(new Map([["a", { b: 1 }]]), new Map([["a", { b: 1 }]]));
      assert.throws(() => { throw new TypeError("no") }, TypeError);
      assert.throws(() => { throw new Error("no such") }, /such/);
      return true;
    }""")
    assert accepted
