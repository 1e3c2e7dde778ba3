import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINES = re.sub(r"\\\n\s*", " ", (ROOT / "deploy" / "Dockerfile").read_text()).replace("    ", " ").splitlines()
INSTRUCTIONS = [line.split(maxsplit=1) for line in LINES if line and not line.startswith("#")]


def arguments_of(instruction: str) -> list[str]:
    return [words[1] for words in INSTRUCTIONS if words[0] == instruction]


def test_everything_copied_from_the_context_exists_and_is_not_ignored() -> None:
    sources = [text.split()[0] for text in arguments_of("COPY") if not text.startswith("--from")]
    assert sources
    ignored = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
    for source in sources:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in ignored, source
    assert "*" in ignored


def test_every_package_of_the_project_is_in_the_image() -> None:
    packages = {f"loomlog/{path.name}" for path in (ROOT / "loomlog").iterdir() if path.is_symlink()}
    assert packages
    copied = [
        text.split()[1].removeprefix("/opt/loomlog/") for text in arguments_of("COPY") if text.startswith(tuple("cprs"))
    ]
    assert packages <= set(copied)


def test_dependencies_are_installed_by_hash_and_what_a_server_does_not_need_is_removed() -> None:
    install = next(text for text in arguments_of("RUN") if "pip install" in text)
    assert "--require-hashes -r requirements.lock" in install
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    names = {re.split(r"[\[<>=]", dependency)[0] for group in ("local", "build") for dependency in extras[group]}
    removed = next(text for text in arguments_of("RUN") if "pip uninstall" in text).split("--yes")[1].split()
    assert set(removed) == names


def test_both_locks_pin_the_same_versions_and_only_one_the_tools_of_developers() -> None:
    users, developers = (
        dict(re.findall(r"^([\w.-]+)(?:\[.*\])?==(\S+)", (ROOT / name).read_text(), re.MULTILINE))
        for name in ("requirements.lock", "requirements-dev.lock")
    )
    assert users.items() <= developers.items()
    assert {"pytest", "mypy", "playwright"} <= developers.keys() - users.keys()


def test_the_process_is_not_root_and_gets_sigterm_itself() -> None:
    assert arguments_of("USER") == ["10001:10001"]
    assert arguments_of("STOPSIGNAL") == ["SIGTERM"]
    assert arguments_of("ENTRYPOINT") == ['["python", "-m"]']


def test_only_official_images_are_named_and_no_address() -> None:
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    assert "://" not in text
    images = [source.split()[0] for source in arguments_of("FROM")]
    assert images == ["python:3.11-slim-bookworm"] * 2
    assert "latest" not in text
