"""Asks a language model for the labels of a step, at an endpoint that speaks OpenAI's chat
completions. The lab does this, never a job.

No request is sent twice. Before it is sent, the store gets a claim; afterwards, an answer
(`runner.schema.replies`). A request with a claim and no answer may have been sent, so it counts as
asked, without a reply. Only a refusal (429 or 503) may be followed by another try. The budget holds
at any time: a request is sent only if all that were sent, and those that are under way at their
most, leave room for it."""

import itertools
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import Any

import httpx

from runner.lib import bounds, redact
from runner.lib.canonical_json import to_json
from runner.lib.untrusted_files import printable
from runner.schema import replies
from runner.schema.replies import Answer, Asked, Reply
from runner.store.store import Store

SECONDS = 120.0  # for a reply
MAX_ANSWER = 1 << 20  # bytes
TRIES = 5  # in one call, of a request that is refused
MAX_PAUSE = 60.0  # seconds between them
MAX_FAILED = 10  # requests in a row without a reply
REFUSED = (429, 503)
UNFIT = (400, 413, 422)  # one document is refused, such as one that is too long
OVERHEAD = 64  # tokens that an endpoint may add to a prompt
NOTHING = "it replied nothing; if it thought for all of its `reply_tokens`, raise them"
LOST = "no answer to it is recorded: the lab ended while it waited"


class CannotAsk(Exception):
    """Asking ends before all is answered; the message says why. What was answered is recorded."""


@dataclass(frozen=True)
class Endpoint:
    """Where a language model is asked, and what its tokens cost."""

    url: str  # up to and without /chat/completions
    key: str = ""
    input_price: float = 0.0  # dollars per million tokens
    output_price: float = 0.0

    def dollars(self, tokens_in: int, tokens_out: int) -> float:
        """The cost of so many tokens."""
        return (tokens_in * self.input_price + tokens_out * self.output_price) / 1e6


def ask(
    store: Store,
    endpoint: Endpoint,
    step: str,
    config: Mapping[str, Any],
    requests: Iterable[Mapping[str, Any]],
    at_once: int = 4,
    pause: Callable[[float], None] = time.sleep,
) -> dict[str, Reply]:
    """The replies to all requests of the step with this fingerprint, whose section `ask` is
    `config`, by request; recorded as the step reads them. Raises CannotAsk and StoreError."""
    named = {replies.sha256(one): one for one in requests}
    asker = _Asker(store, endpoint, step, config, pause)
    asker.recall(named)
    with asker.client, ThreadPoolExecutor(at_once) as pool:
        try:
            list(pool.map(asker.answer, named))
        except BaseException:  # such as Ctrl-C; what is under way is still recorded
            asker.stop("it was interrupted")
            raise
    if asker.stopped:
        raise CannotAsk(asker.stopped)
    found = {name: Reply(reply=of.reply, why=of.why) for name, of in asker.answers.items()}
    store.create(f"{replies.folder(step)}/{replies.FILE}", replies.BUNDLE.dump_json(found))
    return found


class _Asker:
    """Asks in several threads. `stopped` is why it asks no more; empty while it does."""

    def __init__(
        self,
        store: Store,
        endpoint: Endpoint,
        step: str,
        config: Mapping[str, Any],
        pause: Callable[[float], None],
    ) -> None:
        self.answers: dict[str, Answer] = {}
        self.stopped = ""
        self._store, self._endpoint, self._step, self._pause = store, endpoint, step, pause
        self._config, self._lock = config, Lock()
        self._requests: Mapping[str, Mapping[str, Any]] = {}
        self._tries: dict[str, int] = {}
        self._tokens, self._dollars, self._failed, self._said = 0, 0.0, 0, ""
        self.client = httpx.Client(timeout=SECONDS)

    def recall(self, requests: Mapping[str, Mapping[str, Any]]) -> None:
        """Read what earlier calls have recorded, of this step and of others."""
        self._requests = requests
        for name in requests:
            for number in itertools.count(1):
                asked = self._read(f"asked/{name}.{number}", Asked)
                if asked is None:
                    break
                self._tries[name] = number
                answer = self._read(f"answers/{name}.{number}", Answer)
                if answer is None:
                    answer = Answer(
                        by=asked.by, why=LOST, tokens=asked.tokens, dollars=asked.dollars
                    )
                if answer.by == self._step:
                    self._tokens += answer.tokens
                    self._dollars += answer.dollars
                if not answer.refused:
                    self.answers[name] = answer

    def answer(self, name: str) -> None:
        """Ask, unless there is an answer."""
        for again in range(1, TRIES + 1):
            if name in self.answers or self.stopped:
                return
            number = self._tries.get(name, 0) + 1
            asked = self._most(name)
            if not self._reserve(asked):
                return
            if not self._create(f"asked/{name}.{number}", asked):
                self.stop("another process asks for the same labels; wait until it is done")
                return
            self._tries[name] = number
            answer, wait, why = self._sent(name, asked)
            self._create(f"answers/{name}.{number}", answer)
            self._account(name, asked, answer)
            if why:
                self.stop(why)
            elif answer.refused and again < TRIES:
                self._pause(min(MAX_PAUSE, wait or 2.0**again))
        if name not in self.answers:
            self.stop(f"{self._endpoint.url} refused one request {TRIES} times; ask later")

    def _most(self, name: str) -> Asked:
        """What a request may use at most: a token has at least one byte."""
        sent = len(to_json(self._requests[name]["messages"])) + OVERHEAD
        replied = self._config["reply_tokens"]
        dollars = self._endpoint.dollars(sent, replied)
        return Asked(by=self._step, tokens=sent + replied, dollars=dollars)

    def _reserve(self, asked: Asked) -> bool:
        with self._lock:
            if self.stopped:
                return False
            tokens, dollars = self._tokens + asked.tokens, self._dollars + asked.dollars
            if tokens > self._config["max_tokens"] or dollars > self._config["max_dollars"]:
                self.stopped = self._spent()
                return False
            self._tokens, self._dollars = tokens, dollars
            return True

    def _account(self, name: str, asked: Asked, answer: Answer) -> None:
        """Replace what a request may have used by what it has used."""
        with self._lock:
            self._tokens += answer.tokens - asked.tokens
            self._dollars += answer.dollars - asked.dollars
            if answer.refused:
                return
            self.answers[name] = answer
            self._failed = 0 if answer.reply is not None else self._failed + 1
            if self._failed >= MAX_FAILED:
                why = f"{answer.why}{self._said}"
                self.stopped = f"{MAX_FAILED} requests in a row had no reply; the last: {why}"
            over = self._tokens > self._config["max_tokens"]
            if over or self._dollars > self._config["max_dollars"]:
                self.stopped = f"a reply used more than it could at most. {self._spent()}"

    def _spent(self) -> str:
        most = f"{self._config['max_tokens']:,} tokens and ${self._config['max_dollars']:.2f}"
        return (
            f"the next request may cost more than what is left of {most}: {self._tokens:,} tokens "
            f"and ${self._dollars:.2f} are used or under way; {len(self.answers):,} of "
            f"{len(self._requests):,} documents have an answer, which is kept. Raise `max_tokens` "
            "or `max_dollars`, or lower `documents`, and have the new plan approved"
        )

    def stop(self, why: str) -> None:
        """Send nothing more."""
        with self._lock:
            self.stopped = self.stopped or why

    # ── One request ──────────────────────────────────────────────────────────────────────────

    def _sent(self, name: str, asked: Asked) -> tuple[Answer, float, str]:
        """Send a request. Returns the answer, the seconds that a refusal asks for, and why nothing
        more must be sent; empty if it may."""
        lost = Answer(by=self._step, tokens=asked.tokens, dollars=asked.dollars)
        refused = Answer(by=self._step, refused=True)
        headers = {"Authorization": f"Bearer {self._endpoint.key}"} if self._endpoint.key else {}
        until = time.monotonic() + SECONDS
        try:
            with self.client.stream(
                "POST",
                f"{self._endpoint.url.rstrip('/')}/chat/completions",
                json=self._requests[name],
                headers=headers,
            ) as response:
                data = b""
                for part in response.iter_bytes():
                    data += part
                    if len(data) > MAX_ANSWER or time.monotonic() > until:
                        why = "its answer is too long, or too slow"
                        return lost.model_copy(update={"why": why}), 0.0, ""
        except httpx.ConnectError as error:  # nothing was sent
            why = f"{self._endpoint.url} cannot be reached: {error}; check the endpoint"
            return refused.model_copy(update={"why": why[:500]}), 0.0, why
        except httpx.HTTPError as error:
            why = f"no answer: {type(error).__name__}"
            return lost.model_copy(update={"why": why}), 0.0, ""
        status = response.status_code
        self._said = ""
        if status in REFUSED:
            return refused.model_copy(update={"why": str(status)}), _seconds(response), ""
        if status in UNFIT:
            said = printable(redact.clean(data.decode(errors="replace")))[:500]
            self._said = f"; it said: {said}"
            why = f"the endpoint answered {status}: it does not take this document"
            return Answer(by=self._step, why=why), 0.0, ""
        if 300 <= status < 500:
            why = f"{self._endpoint.url} answers {status}; check the endpoint, the key and `model`"
            return refused.model_copy(update={"why": why}), 0.0, why
        if status != 200:
            return lost.model_copy(update={"why": f"the endpoint answered {status}"}), 0.0, ""
        return self._read_answer(data, lost), 0.0, ""

    def _read_answer(self, data: bytes, lost: Answer) -> Answer:
        """The reply in an answer; if there is none, what is lost, and why."""
        try:
            said = bounds.plain(data, MAX_ANSWER)
            reply = said["choices"][0]["message"]["content"]
            used = [said["usage"][key] for key in ("prompt_tokens", "completion_tokens")]
            counts = all(type(one) is int and one >= 0 for one in used)
            if not isinstance(reply, str | None) or not counts:
                raise TypeError
        except (ValueError, KeyError, IndexError, TypeError):
            return lost.model_copy(update={"why": "its answer is not a chat completion with usage"})
        spent = Answer(by=self._step, tokens=sum(used), dollars=self._endpoint.dollars(*used))
        found = {"why": NOTHING} if reply is None else {"reply": reply[-replies.MAX_REPLY :]}
        return spent.model_copy(update=found)

    # ── The store ────────────────────────────────────────────────────────────────────────────

    def _read(self, name: str, kind: Any) -> Any:
        data = self._store.read(f"{replies.FOLDER}/{name}.json")
        return None if data is None else bounds.parse(kind, data)

    def _create(self, name: str, of: Asked | Answer) -> bool:
        return self._store.create(f"{replies.FOLDER}/{name}.json", of.canonical())


def _seconds(response: httpx.Response) -> float:
    """How long a refusal asks to wait; 0 if it does not say."""
    said = response.headers.get("retry-after", "")
    return float(said) if said.isdigit() else 0.0
