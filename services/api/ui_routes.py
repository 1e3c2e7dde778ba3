"""The routes with which a person signs in to the web page. Before: routes.py. After: ui_endpoints.py.

The page itself is no row of the table: ui_page.py serves its files and every address below /ui.
"""

from loomlog.services.api import ui_endpoints
from loomlog.services.api.route import Route
from loomlog.services.core.access.rules import ANY_CALLER, PUBLIC

UI_ROUTES: tuple[Route, ...] = (
    Route(
        method="POST",
        path="/ui/session",
        access=ANY_CALLER,
        handler=ui_endpoints.sign_in,
        status=204,
        summary="Sign in to the web page: the token of the Authorization header becomes a cookie.",
    ),
    Route(
        method="POST",
        path="/ui/logout",
        access=PUBLIC,
        handler=ui_endpoints.sign_out,
        status=204,
        summary="Sign out of the web page: clear the cookie.",
    ),
    Route(
        method="GET",
        path="/ui/login-config.json",
        access=PUBLIC,
        handler=ui_endpoints.get_login_config,
        summary="Get what the sign-in page and `loomlog login` need: ways to sign in, and pages that may pass a token.",
    ),
)
