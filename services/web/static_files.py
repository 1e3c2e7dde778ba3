"""The files of the web page, read once at the start and kept in memory: compressed, with their ETags and addresses.

    /ui, /ui/<page>             index.html, for every page: app.js takes the page from the address
    /ui/-/<build>/<file>        all other files; what lies under a build never changes, so browsers keep it
    /ui/version.json            the version and the build that are served now

What a page's module imports is named when its index is sent (`modules`), so that a browser asks for all of it at once
and not level by level. navigation.js says which module is whose.

The build is a hash of all files. Modules import each other by relative paths, so a page never mixes two builds: its
files lie under the build of its index.html. `{{build}}` and `{{version}}` in index.html are replaced.

The policy of the page (Content-Security-Policy) admits no inline script but the import map, whose hash is taken from
index.html, and no inline style. A page that needs another is refused here, with the line, and not in a browser.

Not chosen: Starlette's StaticFiles (a file system call and a thread for each request, no compressed variants) and
compression per request.

Before: the files beside this module. After: services/api/ui_page.py serves them, `loomlog ui --export` writes them.
"""

import base64
import gzip
import hashlib
import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath

FOLDER = Path(__file__).parent
INDEX = "index.html"
MEDIA_TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}
"""Media types by ending; files with other endings (Python modules, documents) are no part of the page."""
FILES_MAX = 1_000
FILE_BYTES_MAX = 8 * 1024 * 1024
"""Bytes of one file; the largest libraries for graphs and charts have a tenth of it."""
PAGE_BYTES_MAX = 32 * 1024 * 1024
"""Bytes of all files together: each api process keeps them in memory, and compressed once more."""
BUILD_DIGITS = 16
NAVIGATION, START = "navigation.js", "app.js"
"""The table of pages, and the module that the index begins with."""
_PAGE = re.compile(r"""path:\s*"(/[^"]*)".*?import\("\./([^"]+\.js)"\)""")
"""An entry of the table: its address, such as /runs/:run/*view, and its module."""
_VIEW = re.compile(r"""\bkey:\s*"([^"]+)".*?import\("(\./[^"]+\.js)"\)""")
"""A view of a page that is loaded when it is shown: the last part of its address, and its module."""
_IMPORT = re.compile(r"""^(?:import|export)\b[^"'()]*?["'](\.{1,2}/[^"']+)["']""", re.MULTILINE)
GZIP_MIN_BYTES = 256
"""Smaller files gain nothing: they fit one packet either way."""


class WebPageError(Exception):
    """The files cannot be served; the text names the file and what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticFile:
    """A file as it is sent. `compressed` is empty where gzip gains nothing."""

    media_type: str
    content: bytes
    compressed: bytes
    etag: str
    """Hash of the content in quotes; that of the compressed variant ends in -gzip."""

    @property
    def gzip_etag(self) -> str:
        return f'{self.etag[:-1]}-gzip"'


@dataclass(frozen=True, slots=True, kw_only=True)
class WebPage:
    """All files of a page, by their path in its folder; the index apart from the others."""

    version: str
    build: str
    index: StaticFile
    files: Mapping[str, StaticFile]
    version_file: StaticFile
    content_security_policy: str
    modules: Sequence[tuple[re.Pattern[str], Mapping[str, Sequence[str]]]]
    """Pages in the order in which addresses are looked up: which addresses below /ui are theirs, and the modules that
    they need at once and that the index does not name, by the last part of the address; "" is for all others.
    """


def load_web_page(version: str, folder: Path = FOLDER) -> WebPage:
    """Read the files of a folder. Raises WebPageError."""
    contents = dict(_read_files(folder))
    if INDEX not in contents:
        raise WebPageError(f"{folder / INDEX} is missing: the page begins with it")
    build = _build_id(version, contents)
    text = _decode(INDEX, contents.pop(INDEX)).replace("{{build}}", build).replace("{{version}}", version)
    text = text.replace("\r\n", "\n")  # as an HTML parser sees it, whose text the hash is about
    policy = _content_security_policy(text)
    version_text = json.dumps({"version": version, "build": build})
    return WebPage(
        version=version,
        build=build,
        index=_make_file(INDEX, text.encode()),
        files={path: _make_file(path, content) for path, content in contents.items()},
        version_file=_make_file("version.json", version_text.encode()),
        content_security_policy=policy,
        modules=tuple(_page_modules(contents, text)),
    )


def export_web_page(page: WebPage, target: Path) -> int:
    """Write the page into the root folder of a web server, and return the number of files."""
    files = {f"ui/-/{page.build}/{path}": file for path, file in page.files.items()}
    files |= {f"ui/{INDEX}": page.index, "ui/version.json": page.version_file}
    for path, file in files.items():
        place = target / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(file.content)
    return len(files)


def _read_files(folder: Path) -> Iterator[tuple[str, bytes]]:
    size = 0
    paths = sorted(path for path in folder.rglob("*") if path.suffix in MEDIA_TYPES and path.is_file())
    if len(paths) > FILES_MAX:
        raise WebPageError(f"{folder} has {len(paths)} files; {FILES_MAX} are allowed")
    for path in paths:
        content = path.read_bytes()
        size += len(content)
        if len(content) > FILE_BYTES_MAX or size > PAGE_BYTES_MAX:
            limits = f"{FILE_BYTES_MAX} bytes for a file and {PAGE_BYTES_MAX} for all"
            raise WebPageError(f"{path} has {len(content)} bytes, {size} with those before; allowed are {limits}")
        yield PurePosixPath(path.relative_to(folder)).as_posix(), content


def _page_modules(
    contents: Mapping[str, bytes], index: str
) -> Iterator[tuple[re.Pattern[str], Mapping[str, Sequence[str]]]]:
    start = _imported(START, contents)
    for path, module in _PAGE.findall(contents.get(NAVIGATION, b"").decode()):
        parts = (
            "[^/]+" if part[0] == ":" else ".*" if part[0] == "*" else re.escape(part) for part in path.split("/")[1:]
        )
        # The rest that a * stands for may be nothing, without the slash before it.
        pattern = re.compile(("/" + "/".join(parts)).replace("/.*", "(?:/.*)?"))
        views = {key: _resolve(module, view) for key, view in _VIEW.findall(contents.get(module, b"").decode())}
        # The first view is the one of an address that names none.
        by_view = {"": next(iter(views.values()), ""), **views}
        named = {
            key: dict.fromkeys([*start, *_imported(module, contents), *_imported(view, contents)])
            for key, view in by_view.items()
        }
        yield pattern, {key: [file for file in files if f'/{file}"' not in index] for key, files in named.items()}


def _resolve(module: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(module), path))


def _imported(module: str, contents: Mapping[str, bytes]) -> list[str]:
    """Return a module and all that it imports at once, each before what it imports itself; of the page's own files."""
    modules = [module] if module in contents else []
    for file in modules:  # grows meanwhile
        for path in _IMPORT.findall(contents[file].decode()):
            place = _resolve(file, path)
            if place in contents and place not in modules:
                modules.append(place)
    return modules


def _build_id(version: str, contents: Mapping[str, bytes]) -> str:
    hashed = hashlib.sha256(version.encode())
    for path, content in contents.items():
        hashed.update(f"\0{path}\0".encode() + hashlib.sha256(content).digest())
    return hashed.hexdigest()[:BUILD_DIGITS]


def _make_file(path: str, content: bytes) -> StaticFile:
    compressed = gzip.compress(content, compresslevel=9, mtime=0) if len(content) >= GZIP_MIN_BYTES else b""
    return StaticFile(
        media_type=MEDIA_TYPES[PurePosixPath(path).suffix],
        content=content,
        compressed=compressed if len(compressed) < len(content) else b"",
        etag=f'"{hashlib.sha256(content).hexdigest()[:32]}"',
    )


def _decode(path: str, content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise WebPageError(f"{path} is no UTF-8: {error}") from error


def _content_security_policy(index: str) -> str:
    """Return the policy of the page: everything from this host, and the one import map of the index."""
    parser = _InlineContent()
    parser.feed(index)
    parser.close()
    hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(parser.import_map.encode()).digest()).decode()}'"]
    script = " ".join(["'self'", *(hashes if parser.import_map else [])])
    return (
        f"default-src 'self'; script-src {script}; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )


class _InlineContent(HTMLParser):
    """Collects the import map of a document. Raises WebPageError for other inline scripts and inline styles."""

    def __init__(self) -> None:
        super().__init__()
        self.import_map = ""
        self._is_in_map = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        for name in attributes:
            if name == "style" or name.startswith("on"):
                self._refuse(f"the attribute {name} of <{tag}>")
        if tag == "style":
            self._refuse("<style>")
        if tag == "script" and "src" not in attributes:
            if attributes.get("type") != "importmap" or self.import_map:
                self._refuse("a second import map" if self.import_map else "an inline script that is no import map")
            self._is_in_map = True

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        self._is_in_map = False

    def handle_data(self, data: str) -> None:
        if self._is_in_map:
            self.import_map += data

    def _refuse(self, subject: str) -> None:
        raise WebPageError(
            f"{INDEX}:{self.getpos()[0]}: {subject}: the page's policy admits only files and one import map; "
            "put scripts into a .js file and styles into a .css file"
        )
