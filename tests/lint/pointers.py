"""Every file and symbol that a docstring or comment points to exists: `python -m tests.lint.pointers`.

A file is named from the top of the tree, from the folder of the file that names it, or by the end of its path when only
one file ends so. A symbol is named as `loomlog.package.module.Symbol`, `path.py::symbol` or `Class.member` of a class
of the tree.
"""

import ast
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

FILE = re.compile(r"(?<![\w/.<*-])([\w-]+(?:/[\w.-]+)*\.(?:py|md|yaml|avsc))(?:::(\w+))?(?![\w/])")
DOTTED = re.compile(r"(?<![\w.])loomlog(?!\.yaml)((?:\.[A-Za-z_]\w*)+)")
ELSEWHERE = re.compile(r"^(SKILL\.md|agent\.md|report\.md|rubric\.md|README\.md|\w+\.yaml)$")
"""Files of users, whatever their folder."""


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Comments and docstrings with the line they begin in."""
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def symbols(path: Path) -> set[str]:
    """Names that a module binds, in any scope."""
    tree = ast.parse(path.read_text())
    return {
        name
        for node in ast.walk(tree)
        for name in (getattr(node, "name", None), getattr(node, "id", None), getattr(node, "attr", None))
        if isinstance(name, str)
    }


def files_named(name: str, beside: Path, tree: list[str]) -> list[str]:
    """Files of the tree that the name may mean."""
    near = (beside.parent / name).as_posix()
    if near in tree or name in tree:
        return [near if near in tree else name]
    return [path for path in tree if path.endswith(f"/{name}")]


def is_symbol(dotted: str) -> bool:
    """`.package.module.Symbol` below loomlog exists."""
    parts = dotted.strip(".").split(".")
    for length in range(len(parts), 0, -1):
        place = Path(*parts[:length])
        if place.with_suffix(".py").exists() or place.is_dir():
            module = place.with_suffix(".py") if place.with_suffix(".py").exists() else place / "__init__.py"
            return length == len(parts) or (module.exists() and parts[length] in symbols(module))
    return False


def problems(tree: list[str]) -> Iterator[str]:
    for name in (
        path for path in tree if path.endswith(".py") and not path.startswith(("schemas/generated/", "tests/lint/"))
    ):
        for line, text in texts(Path(name)):
            for file, symbol in FILE.findall(text):
                found = files_named(file, Path(name), tree)
                if not found and not ELSEWHERE.match(file):
                    yield f"{name}:{line}: there is no file {file}"
                elif symbol and not any(symbol in symbols(Path(path)) for path in found):
                    yield f"{name}:{line}: {file} has no {symbol}"
            for dotted in DOTTED.findall(text):
                if not is_symbol(dotted):
                    yield f"{name}:{line}: there is no loomlog{dotted}"


def main() -> int:
    tree = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.splitlines()
    wrong = list(problems([path for path in tree if Path(path).exists()]))
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
