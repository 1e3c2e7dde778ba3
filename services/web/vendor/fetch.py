"""Fetches the page's libraries from npm and writes them and manifest.json: `python services/web/vendor/fetch.py`.

Run it after changing a version below. Files are byte for byte what the package has; `icons.js` alone is made here, from
the SVG files of lucide-static named in ICONS. tests/services/web compares every file with its hash in the manifest.
"""

import hashlib
import json
import re
import subprocess
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
PACKAGES: dict[str, tuple[str, str, dict[str, str]]] = {
    "preact": ("11.2.0", "MIT", {"dist/preact.mjs": "preact.js", "hooks/dist/hooks.mjs": "preact-hooks.js"}),
    "@preact/signals": ("2.11.4", "MIT", {"dist/signals.mjs": "signals.js"}),
    "@preact/signals-core": ("1.14.5", "MIT", {"dist/signals-core.mjs": "signals-core.js"}),
    "htm": ("3.1.1", "Apache-2.0", {"dist/htm.module.js": "htm.js"}),
    "uplot": (
        "1.6.32",
        "MIT",
        {"dist/uPlot.esm.js": "uplot.js", "dist/uPlot.min.css": "uplot.css", "dist/uPlot.d.ts": "uplot.d.ts"},
    ),
    "marked": ("18.2.1", "MIT", {"lib/marked.esm.js": "marked.js", "lib/marked.d.ts": "marked.d.ts"}),
    "prismjs": (
        "1.30.0",
        "MIT",
        {
            "components/prism-core.min.js": "prism-core.js",
            **{
                f"components/prism-{name}.min.js": f"prism-{name}.js"
                for name in ("clike", "javascript", "json", "yaml", "python", "bash", "sql", "diff")
            },
        },
    ),
    "js-yaml": ("5.5.0", "MIT", {"dist/browser/js-yaml.esm.min.mjs": "yaml.js", "dist/js-yaml.d.ts": "yaml.d.ts"}),
    "@types/prismjs": ("1.26.6", "MIT", {"index.d.ts": "prism-core.d.ts"}),
    "lucide-static": ("1.62.0", "ISC", {}),
}
"""Version, license and files of each package: name in the package and name here. The .d.ts files are read by
`make check-web` only; types.d.ts beside this folder has the types of the packages that are missing here."""
ICONS = (
    "activity",
    "archive",
    "arrow-down",
    "arrow-up",
    "bell-ring",
    "bot",
    "bookmark",
    "braces",
    "calendar-clock",
    "check",
    "chevron-down",
    "chevron-right",
    "chevron-left",
    "circle-alert",
    "circle-check",
    "circle-dot",
    "circle-help",
    "circle-pause",
    "circle-play",
    "circle-slash",
    "circle-x",
    "clock",
    "coins",
    "compass",
    "copy",
    "copy-plus",
    "database",
    "download",
    "external-link",
    "eye",
    "file-text",
    "filter",
    "git-branch",
    "git-compare",
    "git-fork",
    "hash",
    "inbox",
    "info",
    "keyboard",
    "layers",
    "library",
    "link",
    "list",
    "list-tree",
    "loader",
    "loader-circle",
    "lock",
    "log-out",
    "menu",
    "message-square",
    "moon",
    "network",
    "octagon-x",
    "pause",
    "play",
    "plus",
    "radio",
    "refresh-cw",
    "rewind",
    "rocket",
    "rotate-ccw",
    "save",
    "scroll-text",
    "search",
    "send",
    "server",
    "settings",
    "shield-check",
    "skip-back",
    "skip-forward",
    "square",
    "step-back",
    "step-forward",
    "sun",
    "sun-moon",
    "terminal",
    "timer",
    "trash-2",
    "triangle-alert",
    "undo-2",
    "upload",
    "user",
    "users",
    "webhook",
    "wrench",
    "x",
    "zap",
)
LICENSE = re.compile(r"licen[sc]e(\.\w+)?", re.IGNORECASE)


def main() -> None:
    manifest: dict[str, dict[str, str]] = {}
    for package, (version, license_name, files) in PACKAGES.items():
        with tempfile.TemporaryDirectory() as folder:
            contents = _unpack(package, version, Path(folder))
            license_text = next(data for path, data in contents.items() if LICENSE.fullmatch(path))
            written = {target: contents[source] for source, target in files.items()}
            if package == "lucide-static":
                written = {"icons.js": _icons(contents)}
        written[f"licenses/{package.replace('/', '-').removeprefix('@')}.txt"] = license_text
        for target, data in written.items():
            (HERE / target).parent.mkdir(exist_ok=True)
            (HERE / target).write_bytes(data)
            manifest[target] = {
                "package": package,
                "version": version,
                "license": license_name,
                "source": next((source for source, name in files.items() if name == target), "icons/*.svg"),
                "sha256": hashlib.sha256(data).hexdigest(),
            }
    (HERE / "manifest.json").write_text(json.dumps(dict(sorted(manifest.items())), indent=1) + "\n")


def _unpack(package: str, version: str, folder: Path) -> dict[str, bytes]:
    """Return the package's files by path; the root folder has another name in each package."""
    subprocess.run(
        ["npm", "pack", "--silent", f"{package}@{version}"], cwd=folder, check=True, stdout=subprocess.DEVNULL
    )
    with tarfile.open(next(folder.glob("*.tgz"))) as archive:
        return {
            member.name.partition("/")[2]: stream.read()
            for member in archive.getmembers()
            if (stream := archive.extractfile(member)) is not None
        }


def _icons(contents: dict[str, bytes]) -> bytes:
    """Return a module with the shapes of the icons: name -> a list of [element, attributes]."""
    shapes = {}
    for name in ICONS:
        text = contents[f"icons/{name}.svg"].decode()
        inner = re.sub(r"^.*?<svg[^>]*>", "", text, flags=re.S)
        shapes[name] = [
            [tag, dict(re.findall(r'([\w-]+)="([^"]*)"', attributes))]
            for tag, attributes in re.findall(r"<(path|circle|rect|line|polyline|polygon|ellipse)\s([^>]*?)/?>", inner)
        ]
        assert shapes[name], name
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(shape)}" for name, shape in shapes.items())
    heading = "// Shapes of icons of lucide-static (ISC license), made by fetch.py."
    return f"{heading}\nexport const SHAPES = {{\n{lines},\n}};\n".encode()


if __name__ == "__main__":
    main()
