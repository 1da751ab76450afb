"""Switches that make the next requests fail the way GitHub and the network do.

| kind          | what happens                                             | did it take effect? |
| ------------- | -------------------------------------------------------- | ------------------- |
| status_before | answers `status` instead of doing it                     | no                  |
| status_after  | does it, then answers `status`                           | yes                 |
| drop_before   | closes the connection without an answer                  | no                  |
| drop_after    | does it, then closes the connection: outcome unknown     | yes                 |
| later         | answers `status`, and does it `seconds` later            | not yet             |
| cut           | does it, then breaks off in the middle of the answer     | yes                 |
| expired       | 401: this token is not valid any more, now or later      | no                  |
| stale         | a list leaves out what is younger than `seconds`         | (reads only)        |

Delayed effects happen with the first request after their time, or by `Gate.catch_up`.
"""

from __future__ import annotations

import re
import threading
from dataclasses import field
from typing import Literal

from pydantic.dataclasses import dataclass

Kind = Literal[
    "status_before", "status_after", "drop_before", "drop_after", "later", "cut", "expired",
    "stale",
]  # fmt: skip


@dataclass
class Fault:
    kind: Kind
    method: str = "*"
    path: str = ""  # a regular expression, searched for in the path after /api/v3
    times: int = 1
    status: int = 502
    body: str = '{"message": "Server Error"}'
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 60.0  # for stale: the minimum age; for later: the delay

    def matches(self, method: str, path: str) -> bool:
        """Whether it applies to such a request."""
        return self.method in ("*", method) and bool(re.search(self.path, path))


class Faults:
    """The active faults, in order; each request meets at most the first that matches."""

    def __init__(self) -> None:
        self._set: list[Fault] = []
        self._lock = threading.Lock()

    def add(self, fault: Fault) -> None:
        with self._lock:
            self._set.append(fault)

    def clear(self) -> None:
        with self._lock:
            self._set.clear()

    def take(self, method: str, path: str) -> Fault | None:
        with self._lock:
            for fault in self._set:
                if fault.matches(method, path):
                    fault.times -= 1
                    if fault.times <= 0:
                        self._set.remove(fault)
                    return fault
        return None
