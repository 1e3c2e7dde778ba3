from loomlog.connectors.configuration.principals import IMPLIED_SCOPES
from loomlog.connectors.configuration.principals import SCOPES as CONFIGURED
from loomlog.services.core.access.scopes import INCLUDES, SCOPES, TENANT_READ, USER


def test_the_configuration_knows_the_same_scopes() -> None:
    assert SCOPES == CONFIGURED


def test_the_configuration_includes_the_same_in_each_scope() -> None:
    assert dict(INCLUDES) == dict(IMPLIED_SCOPES)


def test_whatever_includes_something_includes_only_scopes_of_the_catalogue() -> None:
    for scope, included in INCLUDES.items():
        assert scope in SCOPES
        assert included <= SCOPES


def test_only_isolated_users_lack_what_their_scopes_include() -> None:
    for holder, included in INCLUDES.items():
        for scope in included:
            missing = INCLUDES.get(scope, frozenset()) - included - {holder}
            assert missing == ({TENANT_READ} if holder == USER else set())
