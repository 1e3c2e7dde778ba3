"""An identity provider over HTTP: what `loomlog` and a browser need of one, with the keys of the fake provider.

It asks a person with one button. `requests` has every form that was posted, so that a test sees what was sent.
"""

import base64
import hashlib
import json
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from tests.connectors.identity_providers.provider import Provider

PAGE_CLIENT, DEVICE_CLIENT = "page", "command-line"
GRANT_DEVICE = "urn:ietf:params:oauth:grant-type:device_code"


@dataclass(slots=True)
class IdentityServer:
    """The provider. `claims` are those of its person; a claim that is None is left out."""

    provider: Provider
    claims: dict[str, Any] = field(default_factory=dict)
    access_claims: dict[str, Any] = field(default_factory=dict)
    client_secret: str = ""
    requests: list[dict[str, str]] = field(default_factory=list)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    devices: dict[str, dict[str, Any]] = field(default_factory=dict)
    refresh_tokens: set[str] = field(default_factory=set)
    lifetime_s: int = 600
    answers: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    """Answers instead of the usual ones, by path."""

    @property
    def issuer(self) -> str:
        return self.provider.issuer

    def discovery(self) -> dict[str, Any]:
        paths = {
            "authorization_endpoint": "/authorize",
            "token_endpoint": "/token",
            "device_authorization_endpoint": "/device",
            "revocation_endpoint": "/revoke",
            "jwks_uri": "/keys",
        }
        return {"issuer": self.issuer, **{name: self.issuer + path for name, path in paths.items()}}

    def authorize(self, query: Mapping[str, str]) -> str:
        """Return where the button of the provider's page leads."""
        code = secrets.token_urlsafe(16)
        self.codes[code] = dict(query)
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state'], 'session_state': 'x'})}"

    def token(self, form: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        match form.get("grant_type"):
            case "authorization_code":
                asked = self.codes.pop(form["code"], None)
                digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
                challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
                if asked is None or asked["code_challenge"] != challenge or asked["code_challenge_method"] != "S256":
                    return 400, {"error": "invalid_grant", "error_description": "the code is not known"}
                return 200, self.tokens(asked["client_id"], nonce=asked.get("nonce"))
            case "refresh_token":
                if form["refresh_token"] not in self.refresh_tokens:
                    return 400, {"error": "invalid_grant"}
                self.refresh_tokens.remove(form["refresh_token"])
                return 200, self.tokens(form["client_id"])
            case grant if grant == GRANT_DEVICE:
                device = self.devices[form["device_code"]]
                if device["state"] != "allowed":
                    return 400, {"error": device["state"]}
                return 200, self.tokens(form["client_id"])
        return 400, {"error": "unsupported_grant_type"}

    def tokens(self, client_id: str, nonce: str | None = None) -> dict[str, Any]:
        refresh = secrets.token_urlsafe(16)
        self.refresh_tokens.add(refresh)
        changes = {"exp": self.provider.claims()["iat"] + self.lifetime_s, **self.claims}
        return {
            "access_token": self.provider.token(**{**changes, **self.access_claims}),
            "id_token": self.provider.token(**{"aud": client_id, "nonce": nonce, **changes}),
            "refresh_token": refresh,
            "token_type": "Bearer",
            "expires_in": self.lifetime_s,
        }

    def begin_device(self) -> dict[str, Any]:
        code, user_code = secrets.token_urlsafe(16), secrets.token_hex(4).upper()
        self.devices[code] = {"user_code": user_code, "state": "authorization_pending"}
        uri = f"{self.issuer}/device"
        return {
            "device_code": code,
            "user_code": user_code,
            "verification_uri": uri,
            "verification_uri_complete": f"{uri}?user_code={user_code}",
            "expires_in": 60,
            "interval": 1,
        }

    def decide_device(self, user_code: str, state: str = "allowed") -> None:
        for device in self.devices.values():
            if device["user_code"] == user_code:
                device["state"] = state


@contextmanager
def serve_identity(host: str = "127.0.0.1", **options: Any) -> Iterator[IdentityServer]:
    """Serve a provider on a port of its own. `host`: its name; localhost is another site than 127.0.0.1."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    made = IdentityServer(Provider(issuer=f"http://{host}:{server.server_port}"), **options)
    server.identity = made  # type: ignore[attr-defined]  # what the handler asks
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    @property
    def identity(self) -> IdentityServer:
        return self.server.identity  # type: ignore[attr-defined]

    def log_message(self, *arguments: Any) -> None:
        pass

    def do_GET(self) -> None:
        path, query = self._target()
        if path in self.identity.answers:
            self._send(*self.identity.answers[path])
        elif path == "/.well-known/openid-configuration":
            self._json(200, self.identity.discovery())
        elif path == "/keys":
            self._json(200, self.identity.provider.key_set())
        elif path == "/authorize":
            self._page(self.identity.authorize(query))
        elif path == "/device":
            self._page(f"/allow?{urlencode(query)}")
        elif path == "/allow":
            self.identity.decide_device(query["user_code"])
            self._send(200, b"<h1>You may close this page</h1>", "text/html")
        else:
            self._json(404, {})

    def do_POST(self) -> None:
        path, _ = self._target()
        form = {
            name: values[0]
            for name, values in parse_qs(self.rfile.read(int(self.headers["content-length"])).decode()).items()
        }
        self.identity.requests.append({"path": path, **form})
        expected = base64.b64encode(f"{PAGE_CLIENT}:{self.identity.client_secret}".encode()).decode()
        if path in self.identity.answers:
            self._send(*self.identity.answers[path])
        elif path == "/token":
            if self.identity.client_secret and self.headers.get("authorization") != f"Basic {expected}":
                self._json(401, {"error": "invalid_client"})
                return
            self._json(*self.identity.token(form))
        elif path == "/device":
            self._json(200, self.identity.begin_device())
        elif path == "/revoke":
            self.identity.refresh_tokens.discard(form["token"])
            self._send(200, b"")
        else:
            self._json(404, {})

    def _target(self) -> tuple[str, dict[str, str]]:
        parts = urlsplit(self.path)
        return parts.path, {name: values[0] for name, values in parse_qs(parts.query).items()}

    def _page(self, link: str) -> None:
        escaped = link.replace("&", "&amp;")
        self._send(200, f'<h1>The provider</h1><a href="{escaped}">Allow</a>'.encode(), "text/html")

    def _json(self, status: int, value: Any) -> None:
        self._send(status, json.dumps(value).encode())

    def _send(self, status: int, body: bytes, media_type: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", media_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
