"""The examples import `loomlog_client` as its users do: from the built distribution."""

from pathlib import Path

import pytest

from tests.client_package import client_path

__all__ = ["client_path"]


@pytest.fixture(autouse=True)
def installed_client(client_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(client_path))
