"""What the tests of this folder share: a folder with configuration files, loaded with an environment of its own."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import pytest

from loomlog.connectors.configuration.findings import ConfigurationError
from loomlog.connectors.configuration.load import ProcessConfiguration, load


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A working directory with configuration files in it."""

    path: Path

    def write(self, text: str, name: str = "loomlog.yaml") -> Path:
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(dedent(text), encoding="utf-8")
        return target

    def load(
        self, text: str | None = None, environ: Mapping[str, str] | None = None, *names: str
    ) -> ProcessConfiguration:
        if text is not None:
            self.write(text)
        return load(environ or {}, working_directory=self.path, paths=[Path(name) for name in names])

    def problems(self, text: str | None = None, environ: Mapping[str, str] | None = None, *names: str) -> list[str]:
        with pytest.raises(ConfigurationError) as caught:
            self.load(text, environ, *names)
        return [str(problem) for problem in caught.value.findings]

    def warnings(self, text: str | None = None, environ: Mapping[str, str] | None = None, *names: str) -> list[str]:
        return [str(warning) for warning in self.load(text, environ, *names).warnings]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(path=tmp_path)
