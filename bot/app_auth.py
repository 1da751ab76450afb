"""A GitHub App's credentials: a short-lived signed word of the App, and the token it is given.

The App signs with its private key (a JWT, at most ten minutes long), GitHub answers with a token of
the installation on the lab's repository, good for an hour and for that repository only. Times are
GitHub's, from its answers' `Date`: a machine whose clock is wrong still gets in.
"""

import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt

from bot.wire import Answer, Later, Moved, Refused, Unauthorized, Wire
from runner import redact

LIFE = timedelta(minutes=9)  # of a signed word; GitHub takes ten minutes at most
BACKDATED = timedelta(seconds=60)  # as GitHub advises
RENEW_BEFORE = timedelta(minutes=5)  # a token's end


class AppAuth:
    """Call it for the token of the next request. Safe to share between threads."""

    def __init__(
        self,
        app: str,
        private_key: str,
        repository: str,
        *,
        api: str = "https://api.github.com",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`app`: the App's client id or number; `private_key`: its PEM text."""
        self._app = app
        self._key = private_key
        self._repository = repository
        self._wire = Wire(api, monotonic)
        self._lock = threading.Lock()
        self._token = self._held = ""
        self._until: datetime | None = None
        self._id: int | None = None  # of the repository, whatever its name
        redact.hold(private_key)

    def __call__(self) -> str:
        """The installation's token. Raises Later where GitHub gives none: without a token nothing
        is known and nothing is done, which is no answer to what was going to be asked."""
        with self._lock:
            if not self._token or self._until is None or self._is_old(self._until):
                self._get_token()
            return self._token

    def renew(self, token: str) -> None:
        """GitHub did not take this token: the next one is another."""
        with self._lock:
            if token == self._token:
                self._token = ""

    def app_token(self) -> str:
        """The App's own signed word, for requests as the App."""
        with self._lock:
            if not self._wire.answered:
                self._as_app("GET", "/app")
            return self._signed()

    def login(self) -> str:
        """What the App's words are signed with. Raises Later."""
        with self._lock:
            return f"{self._as_app('GET', '/app').found['slug']}[bot]"

    def _is_old(self, until: datetime) -> bool:
        return self._wire.now() >= until - RENEW_BEFORE

    def _get_token(self) -> None:
        # Asked anew each time: who installs the App again has another installation.
        found = self._installation()
        if found.get("suspended_at"):
            raise Later("the App's installation is suspended")
        only: dict[str, Any] = {"repositories": [self._repository.rpartition("/")[2]]}
        if self._id is not None:
            only = {"repository_ids": [self._id]}
        made = self._as_app("POST", f"/app/installations/{found['id']}/access_tokens", only).found
        if self._id is None and len(made.get("repositories") or ()) == 1:
            self._id = int(made["repositories"][0]["id"])
        self._token = str(made["token"])
        redact.hold(self._token, instead_of=self._held)
        self._held = self._token
        self._until = datetime.fromisoformat(made["expires_at"].replace("Z", "+00:00"))

    def _installation(self) -> Any:
        """Of the App, on the repository or on what it is called by now. Raises Later for a name
        that leads to another repository than before."""
        try:
            return self._as_app("GET", f"/repos/{self._repository}/installation").found
        except Moved as moved:
            found = re.fullmatch(r"/repositories/([0-9]+)/installation", moved.path)
            if found is None or self._id not in (None, int(found[1])):
                raise Later(f"{self._repository} is another repository now") from None
            self._id = int(found[1])
        try:
            return self._as_app("GET", found[0]).found
        except Moved:
            raise Later("GitHub redirects in a circle") from None

    def _as_app(self, verb: str, path: str, body: Any = None) -> Answer:
        """Ask as the App. Where the local clock was believed and is wrong, the refusal says what
        time it is, and the second word is right."""
        try:
            try:
                return self._wire.send(verb, path, self._signed(), body=body)
            except Unauthorized:
                return self._wire.send(verb, path, self._signed(), body=body)
        except Unauthorized as error:
            raise Later(f"GitHub does not take the App's key: {error}") from None
        except Refused as error:
            raise Later(f"the App gets no token for {self._repository}: {error}") from None

    def _signed(self) -> str:
        now = self._wire.now() if self._wire.answered else datetime.now(UTC)
        claims = {"iat": now - BACKDATED, "exp": now + LIFE, "iss": self._app}
        try:
            return jwt.encode(claims, self._key, algorithm="RS256")
        except (ValueError, TypeError, jwt.PyJWTError):
            words = "the App's private key cannot be read; it is the PEM file that GitHub gave"
            raise Later(words) from None  # what else is said of it may hold a part of it
