from pathlib import Path

import pytest

from loomlog.services.api import service as module
from loomlog.services.core.refusals import Refused
from tests.services.api.serving import service_of


def test_until_it_is_open_it_says_what_is_waited_for(tmp_path: Path) -> None:
    service = service_of(None, tmp_path)
    service.readiness.missing |= {"postgres": "secret", "broker": "secret"}
    with pytest.raises(Refused) as info:
        _ = service.application
    assert info.value.code == "starting"
    assert info.value.message.endswith("broker, postgres")


def test_the_version_is_that_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DISTRIBUTION", "no-such-distribution")
    assert module.installed_version() == "0"
