"""A GitHub App's credentials: a short-lived JWT that the App signs, and the token it gets for it.

The App signs with its private key (a JWT, valid for at most ten minutes). GitHub answers with a
token for the installation on the lab's repository, valid for an hour and for that repository only.
PyGithub has this, too, but with this machine's clock and a token for all repositories; here times
are GitHub's, from its answers' `Date`, so a wrong local clock does no harm.
"""

import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt

from bot.github.answers import Later, Moved, Refused, Unauthorized, Unusable
from bot.github.connection import API, Bearer, Line
from runner.lib import redact

LIFE = timedelta(minutes=9)  # of a JWT; GitHub takes ten minutes at most
BACKDATED = timedelta(seconds=60)  # as GitHub advises
RENEW_BEFORE = timedelta(minutes=5)  # before a token expires


class AppAuth:
    """Call it for the token of the next request. Thread-safe."""

    def __init__(
        self,
        app: str,
        private_key: str,
        repository: str,
        *,
        api: str = API,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`app`: the App's client id or number; `private_key`: its PEM text."""
        self._app = app
        self._key = private_key
        self._repository = repository
        # As the App itself. If the local clock is wrong, the refusal contains the right time, and
        # the second JWT is valid.
        self.line = Line(api, Bearer(self._signed, lambda _: None), monotonic)
        self._lock = threading.Lock()
        self._token = self._held = ""
        self._until = datetime.min.replace(tzinfo=UTC)
        self._id: int | None = None  # of the repository, whatever its name
        redact.hold(private_key)

    def __call__(self) -> str:
        """The installation's token. Raises Later if GitHub gives none: without a token nothing is
        known about the actual request."""
        with self._lock:
            if not self._token or self.line.now() >= self._until - RENEW_BEFORE:
                self._get_token()
            return self._token

    def renew(self, token: str) -> None:
        """GitHub refused this token: the next one is another."""
        with self._lock:
            if token == self._token:
                self._token = ""

    def login(self) -> str:
        """The bot's login. Raises Later."""
        with self._lock:
            return f"{self._as_app('GET', '/app')['slug']}[bot]"

    def _get_token(self) -> None:
        # Looked up each time: installing the App again gives another installation.
        found = self._installation()
        if found.get("suspended_at"):
            raise Later("the App's installation is suspended")
        # PyGithub would request a token for all repositories of the installation.
        only: dict[str, Any] = {"repositories": [self._repository.rpartition("/")[2]]}
        if self._id is not None:
            only = {"repository_ids": [self._id]}
        made = self._as_app("POST", f"/app/installations/{found['id']}/access_tokens", only)
        if self._id is None and len(made.get("repositories") or ()) == 1:
            self._id = int(made["repositories"][0]["id"])
        self._token = str(made["token"])
        redact.hold(self._token, instead_of=self._held)
        self._held = self._token
        self._until = datetime.fromisoformat(made["expires_at"])

    def _installation(self) -> Any:
        """The App's installation on the repository, also after a rename. Raises Later if the name
        leads to another repository than before."""
        try:
            return self._as_app("GET", f"/repos/{self._repository}/installation")
        except Moved as moved:
            found = re.fullmatch(r"/repositories/([0-9]+)/installation", moved.path or "")
            if found is None or self._id not in (None, int(found[1])):
                raise Later(f"{self._repository} is another repository now") from None
            self._id = int(found[1])
        return self._as_app("GET", found[0])

    def _as_app(self, verb: str, path: str, body: Any = None) -> Any:
        try:
            return self.line.requestJsonAndCheck(verb, path, input=body)[1]
        except Unauthorized as error:
            raise Later(f"GitHub does not take the App's key: {error}") from None
        except Refused as error:
            raise Later(f"the App gets no token for {self._repository}: {error}") from None

    def _signed(self) -> str:
        now = self.line.now() if self.line.answered else datetime.now(UTC)
        claims = {"iat": now - BACKDATED, "exp": now + LIFE, "iss": self._app}
        try:
            return jwt.encode(claims, self._key, algorithm="RS256")
        except (ValueError, TypeError, jwt.PyJWTError):
            words = "the App's private key cannot be read; it is the PEM file that GitHub gave"
            raise Unusable(words) from None  # other details may contain a part of it
