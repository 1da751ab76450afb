"""Answers to reads, kept for the next time: GitHub is asked only whether they have changed, which
is free of its hourly limit. Git's objects never change, so they are not asked for again."""

import copy
import re
from collections import OrderedDict
from dataclasses import dataclass

import requests
from github.Requester import RequestsResponse

MAX_KEPT = 16 << 20  # bytes of all answers
MAX_EACH = 1 << 20  # bytes of one
OBJECT = re.compile(r"/git/(blobs|trees)/[0-9a-f]{40,64}(\?recursive=\w+)?$")


@dataclass(frozen=True)
class KnownAnswer:
    """An answer to a read, with its validator."""

    etag: str
    response: requests.Response
    lasts: bool  # it is about an object that never changes

    def answer(self, unchanged: requests.Response | None = None) -> RequestsResponse:
        """It, again; with the headers of a 304 that says it is `unchanged`."""
        response = copy.copy(self.response)
        if unchanged is not None:
            response.headers = copy.copy(self.response.headers)
            response.headers.update(unchanged.headers)
        return RequestsResponse(response)


class Reads:
    """The newest answers to reads of one API, by URL."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, KnownAnswer] = OrderedDict()
        self._size = 0

    def known(self, verb: str, url: str) -> KnownAnswer | None:
        """The last answer to this request."""
        if verb != "GET" or url not in self._kept:
            return None
        self._kept.move_to_end(url)
        return self._kept[url]

    def keep(self, verb: str, url: str, answered: RequestsResponse) -> RequestsResponse:
        """Keep an answer, if it can be asked for again. Returns it."""
        response, etag = answered.response, answered.response.headers.get("etag", "")
        if verb == "GET" and response.status_code == 200 and etag:
            if old := self._kept.pop(url, None):
                self._size -= len(old.response.content)
            if len(response.content) <= MAX_EACH:
                self._kept[url] = KnownAnswer(etag, response, bool(OBJECT.search(url)))
                self._size += len(response.content)
            while self._size > MAX_KEPT:
                _, first = self._kept.popitem(last=False)
                self._size -= len(first.response.content)
        return answered
