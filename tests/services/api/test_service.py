from pathlib import Path

import pytest

from loomlog.services.api import service as module
from loomlog.services.api.metric_handlers import MetricHandlers
from loomlog.services.api.process_handlers import ProcessHandlers
from loomlog.services.application.operations.log import LIST_TOPICS
from loomlog.services.application.operations.process import GET_CALLER, PROCESS_OPERATIONS
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


def test_every_operation_of_the_process_has_a_handler(tmp_path: Path) -> None:
    service = service_of(None, tmp_path)
    handlers = {**ProcessHandlers(service).by_operation(), **MetricHandlers(service).by_operation()}
    assert set(handlers) == set(PROCESS_OPERATIONS)


def test_before_the_log_is_there_only_the_operations_of_the_process_are_carried_out(tmp_path: Path) -> None:
    service = service_of(None, tmp_path)
    assert service.dispatch(GET_CALLER) is service.process_dispatch
    with pytest.raises(Refused, match="not ready yet"):
        service.dispatch(LIST_TOPICS)
