"""A GitHub App's credentials: a short-lived signed word of the App, and the token it is given.

The App signs with its private key (a JWT, at most ten minutes long), GitHub answers with a token of
the installation on the lab's repository, good for an hour and for that repository only. Times are
GitHub's, from its answers' `Date`, where PyGithub's are this machine's: one whose clock is wrong
still gets in.
"""

import re
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import jwt
from github.Auth import AppAuth as PyGithubs
from github.Requester import WithRequester

from bot.github.connection import API, Credential, Later, Line, Moved, Refused, Unauthorized
from runner import redact

LIFE = timedelta(minutes=9)  # of a signed word; GitHub takes ten minutes at most
BACKDATED = timedelta(seconds=60)  # as GitHub advises
RENEW_BEFORE = timedelta(minutes=5)  # a token's end


class Bearer(Credential):
    """Speaks with the token that somebody hands out for each request; holds no other."""

    def __init__(self, credentials: Callable[[], str]) -> None:
        self.credentials = credentials
        self._last = ""

    @property
    def token(self) -> str:
        """For the next request. Raises Later where there is none."""
        self._last = self.credentials()
        return self._last

    def renewed(self) -> bool:
        """An App gets another token, who has a mere one does not."""
        renew = getattr(self.credentials, "renew", None)
        if renew is not None:
            renew(self._last)
        return renew is not None


class Signed(PyGithubs, Credential, WithRequester[Any]):
    """Speaks as the App itself, at GitHub's time."""

    token_type = "Bearer"

    def __init__(self, app: str, key: str) -> None:
        """`key` is PEM text."""
        self._sign = partial(jwt.encode, key=key, algorithm="RS256")
        super().__init__(app, sign_func=self._sign)

    def create_jwt(self, expiration: int | None = None) -> str:
        """The App's signed word. Raises Later where the key is none."""
        line = self.requester
        assert isinstance(line, Line)
        now = line.now() if line.answered else datetime.now(UTC)
        life = timedelta(seconds=expiration) if expiration else LIFE
        try:
            return self._sign({"iat": now - BACKDATED, "exp": now + life, "iss": self.app_id})
        except (ValueError, TypeError, jwt.PyJWTError):
            words = "the App's private key cannot be read; it is the PEM file that GitHub gave"
            raise Later(words) from None  # what else is said of it may hold a part of it

    def renewed(self) -> bool:
        """Where the local clock was believed and is wrong, the refusal has said what time it is."""
        return True


class AppAuth:
    """Call it for the token of the next request. Safe to share between threads."""

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
        self._repository = repository
        self.line = Line(api, Signed(app, private_key), monotonic)  # as the App itself
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

    def login(self) -> str:
        """What the App's words are signed with. Raises Later."""
        with self._lock:
            return f"{self._as_app('GET', '/app')['slug']}[bot]"

    def _is_old(self, until: datetime) -> bool:
        return self.line.now() >= until - RENEW_BEFORE

    def _get_token(self) -> None:
        # Asked anew each time: who installs the App again has another installation.
        found = self._installation()
        if found.get("suspended_at"):
            raise Later("the App's installation is suspended")
        # PyGithub would ask for a token of all repositories of the installation.
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
        """Of the App, on the repository or on what it is called by now. Raises Later for a name
        that leads to another repository than before."""
        try:
            return self._as_app("GET", f"/repos/{self._repository}/installation")
        except Moved as moved:
            found = re.fullmatch(r"/repositories/([0-9]+)/installation", moved.path)
            if found is None or self._id not in (None, int(found[1])):
                raise Later(f"{self._repository} is another repository now") from None
            self._id = int(found[1])
        try:
            return self._as_app("GET", found[0])
        except Moved:
            raise Later("GitHub redirects in a circle") from None

    def _as_app(self, verb: str, path: str, body: Any = None) -> Any:
        try:
            return self.line.requestJsonAndCheck(verb, path, input=body)[1]
        except Unauthorized as error:
            raise Later(f"GitHub does not take the App's key: {error}") from None
        except Refused as error:
            raise Later(f"the App gets no token for {self._repository}: {error}") from None
