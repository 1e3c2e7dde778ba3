"""An MCP server that asks for tokens, with its authorization server at the same address; each as bad as a test says."""

import base64
import hashlib
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

from tests.connectors.mcp.peer_server import PeerServer, Raw, document

RESOURCE, SERVER = "/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-authorization-server/as"


class GuardedServer(PeerServer):
    """`tokens`: those that it takes, with their scopes. `forms`: what was sent to its token endpoint."""

    def __init__(self, **answers: Callable[[dict], Any]) -> None:
        super().__init__(**answers)
        self.guard = self._check
        self.tokens: dict[str, str] = {}
        self.refresh_tokens: set[str] = set()
        self.codes: dict[str, dict[str, str]] = {}
        self.forms: list[dict[str, str]] = []
        self.registered: list[bytes] = []
        self.needs_scope = ""
        self.challenge: dict[str, str] = {}
        """Parameters of the challenge, besides or instead of the usual ones."""
        self.resource: dict[str, Any] = {}
        self.metadata: dict[str, Any] = {}
        """What documents say instead of the truth; None: nothing."""
        self.pages = {
            RESOURCE: lambda headers, body: _without_none({**self._resource(), **self.resource}),
            SERVER: lambda headers, body: _without_none({**self._metadata(), **self.metadata}),
            "/as/register": self._register,
            "/as/token": self._give_tokens,
        }

    @property
    def site(self) -> str:
        return self.url.removesuffix("/mcp")

    def consent(self, url: str, **changes: str) -> dict[str, str]:
        """Return what the browser brings back when a person has agreed at an address."""
        asked = dict(parse_qsl(urlsplit(url).query))
        code = f"code-{len(self.codes)}"
        self.codes[code] = asked
        return {"state": asked["state"], "code": code, "iss": f"{self.site}/as", **changes}

    def _resource(self) -> dict[str, Any]:
        return {"resource": self.url, "authorization_servers": [f"{self.site}/as"], "scopes_supported": ["read"]}

    def _metadata(self) -> dict[str, Any]:
        return {
            "issuer": f"{self.site}/as",
            "authorization_endpoint": f"{self.site}/as/authorize",
            "token_endpoint": f"{self.site}/as/token",
            "registration_endpoint": f"{self.site}/as/register",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_post"],
            "authorization_response_iss_parameter_supported": True,
        }

    def _check(self, headers: dict[str, str]) -> Raw | None:
        token = headers.get("authorization", "").removeprefix("Bearer ")
        said = {"resource_metadata": self.site + RESOURCE, **self.challenge}
        if token not in self.tokens:
            return Raw(401, {"www-authenticate": _challenge(said)})
        if self.needs_scope and self.needs_scope not in self.tokens[token].split():
            said = {"error": "insufficient_scope", "scope": self.needs_scope}
            return Raw(403, {"www-authenticate": _challenge(said)})
        return None

    def _register(self, headers: dict[str, str], body: bytes) -> Any:
        self.registered.append(body)
        return document({"client_id": f"client-{len(self.registered)}"}, 201)

    def _give_tokens(self, headers: dict[str, str], body: bytes) -> Any:
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        self.forms.append(form)
        match form["grant_type"]:
            case "authorization_code":
                asked = self.codes.pop(form["code"], None)
                if asked is None or not _is_same_client(asked, form):
                    return document({"error": "invalid_grant", "error_description": "no such code"}, 400)
                return self._tokens(asked.get("scope", ""))
            case "refresh_token":
                if form["refresh_token"] not in self.refresh_tokens:
                    return document({"error": "invalid_grant"}, 400)
                self.refresh_tokens.remove(form["refresh_token"])
                return self._tokens("read")
            case "client_credentials" if form.get("client_secret") == "s3cret":
                return self._tokens(form.get("scope", ""))
        return document({"error": "invalid_client"}, 401)

    def _tokens(self, scope: str) -> dict[str, Any]:
        access, refresh = f"access-{len(self.forms)}", f"refresh-{len(self.forms)}"
        self.tokens[access] = scope
        self.refresh_tokens.add(refresh)
        return {"access_token": access, "refresh_token": refresh, "token_type": "Bearer", "expires_in": 600}


def _is_same_client(asked: dict[str, str], form: dict[str, str]) -> bool:
    digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
    challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    same = ("redirect_uri", "client_id", "resource")
    return challenge == asked["code_challenge"] and all(asked[name] == form.get(name) for name in same)


def _challenge(parameters: dict[str, str]) -> str:
    return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in parameters.items() if value)


def _without_none(value: dict[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in value.items() if one is not None}
