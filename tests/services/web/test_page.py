"""The page of this checkout: vendored files match their manifest, nothing is of another host, every import is there."""

import hashlib
import json
import posixpath
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from loomlog.services.api.routes import ROUTES
from loomlog.services.core.access.scopes import INCLUDES
from loomlog.services.web.static_files import FOLDER, WebPage, load_web_page

VENDOR = FOLDER / "vendor"
FIELDS = {"package", "version", "license", "source", "sha256"}
FIRST_PAINT_BYTES_MAX = 200_000
"""Compressed bytes of the index and of everything it needs before a page is drawn."""
HOST = r"\s*(?:(?:https?|wss?):)?//"
QUOTED, BARE = rf"[\"'`]{HOST}", rf"[\"'`]?{HOST}"
LOADS = re.compile(
    rf"""\bfrom\s*{QUOTED}|\bimport\s*\(?\s*{QUOTED}|\b(?:src|href|srcset|action|poster)\s*=\s*\{{?\s*{BARE}"""
    rf"""|\burl\(\s*{BARE}|@import\s+(?:url\(\s*)?{BARE}|\bsendBeacon\(\s*{QUOTED}"""
    rf"""|\b(?:fetch|open|EventSource|WebSocket|Worker|SharedWorker|Request|importScripts)\(\s*{QUOTED}""",
    re.IGNORECASE,
)
"""Places from which a browser would load something of another host; texts and comments may name addresses."""
IMPORT = re.compile(
    r"""(?:^|[;}\s])(?:import|export)\b[^"'`;()]*?\bfrom\s*["']([^"']+)["']|(?:^|[;}\s])import\s*["']([^"']+)["']"""
)
LATER = re.compile(r"""\bimport\(\s*["']([^"']+)["']\s*\)""")


def manifest_problems(folder: Path) -> Iterator[str]:
    """What is wrong with the vendored files of a folder and their manifest."""
    manifest = json.loads((folder / "manifest.json").read_text())
    files = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc") and path.name != "manifest.json"
    }
    for name in sorted(files | set(manifest)):
        if name not in manifest:
            yield f"{name} is not in the manifest"
        elif name not in files:
            yield f"{name} is in the manifest and not in the folder"
        elif set(manifest[name]) != FIELDS or not all(manifest[name].values()):
            yield f"{name}: the manifest has {sorted(manifest[name])}, needed are {sorted(FIELDS)}"
        elif hashlib.sha256((folder / name).read_bytes()).hexdigest() != manifest[name]["sha256"]:
            yield f"{name} is another file than the manifest says"


def foreign_loads(folder: Path) -> Iterator[str]:
    """Lines that load something from another host."""
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".html", ".js", ".css", ".svg"):
            text = path.read_text()
            for match in LOADS.finditer(text):
                yield f"{path.relative_to(folder)}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}"


class Index(HTMLParser):
    """Addresses of the index, and its import map."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.import_map: dict[str, str] = {}
        self._is_map = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value for name, value in attrs if name in ("src", "href") and value]
        self._is_map = ("type", "importmap") in attrs

    def handle_data(self, data: str) -> None:
        if self._is_map:
            self.import_map = json.loads(data)["imports"]

    def handle_endtag(self, tag: str) -> None:
        self._is_map = False


@pytest.fixture(scope="module")
def page() -> WebPage:
    return load_web_page("1.2.3")


@pytest.fixture(scope="module")
def index(page: WebPage) -> Index:
    return Index(page.index.content.decode())


def resolved(page: WebPage, index: Index, importer: str, name: str) -> str:
    """The file that a module means by a name."""
    if name.startswith("."):
        return posixpath.normpath(posixpath.join(posixpath.dirname(importer), name))
    return index.import_map[name].removeprefix(f"/ui/-/{page.build}/")


def imports(page: WebPage, index: Index, path: str, pattern: re.Pattern[str]) -> list[str]:
    text = page.files[path].content.decode()
    names = [next(filter(None, match.groups())) for match in pattern.finditer(text)]
    return [resolved(page, index, path, name) for name in names]


def test_every_vendored_file_is_the_one_of_the_manifest() -> None:
    assert list(manifest_problems(VENDOR)) == []


def test_nothing_is_loaded_from_another_host() -> None:
    assert list(foreign_loads(FOLDER)) == []


def test_every_address_of_the_index_is_a_file_of_its_build(page: WebPage, index: Index) -> None:
    prefix = f"/ui/-/{page.build}/"
    addresses = [*index.addresses, *index.import_map.values()]
    assert addresses
    assert [one for one in addresses if one.removeprefix(prefix) not in page.files] == []


@pytest.mark.parametrize("pattern", [IMPORT, LATER], ids=["at once", "later"])
def test_every_import_is_a_file(pattern: re.Pattern[str], page: WebPage, index: Index) -> None:
    modules = [path for path in page.files if path.endswith(".js")]
    targets = [(path, target) for path in modules for target in imports(page, index, path, pattern)]
    assert targets
    assert [f"{path}: {target}" for path, target in targets if target not in page.files] == []


def test_the_first_paint_needs_little(page: WebPage, index: Index) -> None:
    open_paths, needed = ["app.js", "design.css"], set[str]()
    while open_paths:
        path = open_paths.pop()
        if path not in needed:
            needed.add(path)
            open_paths += imports(page, index, path, IMPORT) if path.endswith(".js") else []
    files = [page.index, *(page.files[path] for path in needed)]
    sizes = {path: len(page.files[path].compressed or page.files[path].content) for path in needed}
    assert sum(len(file.compressed or file.content) for file in files) < FIRST_PAINT_BYTES_MAX, sizes


# --- these tests can fail --------------------------------------------------------------------------------------------


def test_a_changed_missing_or_unlisted_vendored_file_is_noticed(tmp_path: Path) -> None:
    sha256 = hashlib.sha256(b"a").hexdigest()
    row = {"package": "p", "version": "1", "license": "MIT", "source": "dist/a.js", "sha256": sha256}
    manifest = {"same.js": row, "changed.js": row, "gone.js": row, "bare.js": {**row, "license": ""}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    for name, text in (("same.js", "a"), ("changed.js", "b"), ("bare.js", "a"), ("unlisted.css", "a")):
        (tmp_path / name).write_text(text)
    assert [problem.split(" ")[0].rstrip(":") for problem in manifest_problems(tmp_path)] == [
        "bare.js",
        "changed.js",
        "gone.js",
        "unlisted.css",
    ]


@pytest.mark.parametrize(
    "text",
    [
        'import { h } from "https://esm.sh/preact"',
        'import "//cdn.example/x.js"',
        "await import('https://cdn.example/x.js')",
        "export * from'http://a.example/x'",
        '<script src="https://cdn.example/x.js">',
        "<img src=//a.example/x.png>",
        '<link rel="stylesheet" href="https://fonts.example/css">',
        "a { background: url(https://a.example/x.png) }",
        '@import "https://a.example/x.css";',
        "@import url('//a.example/x.css');",
        'fetch("https://a.example/x")',
        "fetch(`https://a.example/${id}`)",
        'new EventSource("http://a.example/")',
        'new WebSocket("wss://a.example/")',
    ],
)
def test_what_comes_from_another_host_is_noticed(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.js").write_text(f"// first line\n{text}\n")
    assert [one.split(" ")[0] for one in foreign_loads(tmp_path)] == ["x.js:2:"]


@pytest.mark.parametrize(
    "text",
    [
        "// see https://a.example/why",
        '<svg xmlns="http://www.w3.org/2000/svg">',
        'const text = "https://a.example"',
        "fetch(`/v1/runs/${id}`)",
        '<a href="/ui/runs">',
        "url(#gradient)",
        "import x from './x.js' // http://a.example",
    ],
)
def test_addresses_in_texts_and_of_our_own_are_not(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.js").write_text(text)
    assert list(foreign_loads(tmp_path)) == []


JSON_CALL = re.compile(r"\bJSON\.(?:parse|stringify)\(|\banswer\.json\(\)")
EXACT = {"exact_json.js", "shell.js"}
"""Where JSON itself may be called: the module that keeps all digits, and the script before all modules."""


def test_all_json_of_the_page_keeps_its_digits() -> None:
    files = [path for path in FOLDER.rglob("*.js") if VENDOR not in path.parents and path.name not in EXACT]
    assert len(files) > 50
    assert not [f"{path.name}: use exact_json.js" for path in files if JSON_CALL.search(path.read_text())]


READ_FIRST = {
    "/runs": "/v1/runs",
    "/inbox": "/v1/interrupts",
    "/usage": "/v1/_usage",
    "/activity": "/v1/_insights",
    "/log": "/v1/_log/topics",
    "/library": "/v1/_agentdef/names",
    "/channels": "/v1/_channels",
    "/schedules": "/v1/_schedules/list-all",
    "/webhooks": "/v1/_webhookdef/names",
    "/memory": "/v1/_memory/scopes/{scope}",
}
"""What a page reads when it is opened."""
TABS = {"limits": "/v1/_limits", "routing": "/v1/_routing", "snapshots": "/v1/_snapshots", "health": "/v1/_doctor"}


def test_a_page_is_shown_to_those_who_may_read_it() -> None:
    navigation = (FOLDER / "navigation.js").read_text()
    tabs = (FOLDER / "pages" / "operations.js").read_text()
    shown = dict(re.findall(r'path: "(/\w+)", title.*?scope: "([^"]*)"', navigation))
    shown |= dict(re.findall(r'key: "(\w+)", title.*?scope: "([^"]*)"', tabs))
    needed = {route.path: route.access for route in ROUTES if route.method == "GET"}
    for page, path in (READ_FIRST | TABS).items():
        access = needed[path]
        scopes = shown[page].split()
        held = set(scopes).union(*(INCLUDES.get(scope, frozenset()) for scope in scopes))
        assert held.issuperset(access.scopes), f"{page} is shown with {scopes}, and {path} needs {access}"
        # Isolated users hold the scopes of runs alone: what does not take them must need another one.
        isolated = all(scope.startswith("runs:") for scope in scopes)
        assert access.takes_isolated or not isolated, (
            f"{page} is shown to isolated users, and {path} does not take them"
        )
