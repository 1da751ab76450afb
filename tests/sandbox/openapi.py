"""Checks requests, and every answer of the sandbox's REST API, against GitHub's own description.

`REGATTA_TEST_OPENAPI` names the description's file (JSON, OpenAPI 3.0). A `Recorder` is an ASGI
middleware: put it around an app with `running(sandbox, wrap=Recorder(...))`, and `complaints` has
what did not fit. Operations the description does not know are left alone, but for requests of the
bot (`Recorder(bot=…)`), which are all to be in it, with no field or parameter that is not.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from openapi_schema_validator import OAS30Validator, oas30_format_checker
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT4
from starlette.types import ASGIApp, Message, Receive, Scope, Send

VARIABLE = "REGATTA_TEST_OPENAPI"
ROOT = "https://api.github.com/openapi.json"


class Description:
    def __init__(self, document: Mapping[str, Any]) -> None:
        _as_meant(document)
        self._document = document
        self._registry: Registry[Any] = Registry().with_resource(
            ROOT, Resource(contents=document, specification=DRAFT4)
        )
        # The longest fixed text first: /issues/comments/{id} before /issues/{number}/comments.
        self._paths = sorted(document["paths"], key=lambda path: (path.count("{"), -len(path)))
        self._patterns = {path: re.compile(_pattern(path)) for path in self._paths}
        self._validators: dict[int, OAS30Validator] = {}  # by the schema, which stays in memory
        self._found: dict[tuple[int, bytes], list[str]] = {}  # by schema and body

    def operation(self, method: str, path: str) -> dict[str, Any] | None:
        for template in self._paths:
            if self._patterns[template].fullmatch(path):
                found = self._document["paths"][template].get(method.lower())
                if found:
                    return found
        return None

    def complaint(self, method: str, path: str, status: int, body: bytes) -> str | None:
        """What is wrong with an answer, or None."""
        operation = self.operation(method, path)
        if operation is None or status in (301, 304, 401):  # which any request may be answered
            return None
        said = f"{method} {path} answered {status}"
        response = operation["responses"].get(str(status))
        if response is None:
            known = ", ".join(operation["responses"])
            return None if status in (403, 404, 422) else f"{said}; GitHub answers {known}"
        response = self._whole(response)
        schema = response.get("content", {}).get("application/json", {}).get("schema")
        if schema is None:
            return f"{said} with a body; GitHub has none" if body and status == 204 else None
        errors = self._errors(schema, body)
        return f"{said}: " + "; ".join(errors[:5]) if errors else None

    def _errors(self, schema: dict[str, Any], body: bytes) -> list[str]:
        """What is wrong with a body. Whoever polls is answered the same many times, so each answer
        is checked once."""
        key = id(schema), hashlib.sha256(body).digest()
        if key not in self._found:
            found = self._validator(schema).iter_errors(json.loads(body))
            self._found[key] = [
                f"{e.json_path}: {e.message[:300]}" for e in found if not _known_otherwise(e)
            ]
        return self._found[key]

    def request_complaint(self, method: str, path: str, query: str, body: bytes) -> str | None:
        """What is wrong with a request, or None."""
        said = f"{method} {path}"
        if path.startswith("/repositories/"):  # only where a redirect of GitHub's led
            return None
        if path == "/graphql":  # which a description of REST leaves out
            fits = method == "POST" and json.loads(body).keys() == {"query", "variables"}
            return None if fits else f"{said}: this is no query"
        operation = self.operation(method, path)
        if operation is None:
            return f"{said}: GitHub describes no such operation"
        known = {each["name"]: each for each in map(self._whole, operation.get("parameters", []))}
        wrong = []
        for name, value in parse_qsl(query, keep_blank_values=True):
            if known.get(name, {}).get("in") != "query":
                wrong.append(f"there is no parameter {name}")
                continue
            schema = known[name]["schema"]
            given: Any = (
                int(value) if schema.get("type") == "integer" and value.isdigit() else value
            )
            wrong += [f"{name}: {e.message}" for e in self._validator(schema).iter_errors(given)]
        described = self._whole(operation.get("requestBody", {}))
        if body and not described:
            wrong.append("a body, where GitHub takes none")
        if described:
            wrong += self._body_complaints(described, body)
        return f"{said}: " + "; ".join(wrong) if wrong else None

    def _body_complaints(self, described: dict[str, Any], body: bytes) -> list[str]:
        if not body:
            return ["no body"] if described.get("required") else []
        schema, sent = described["content"]["application/json"]["schema"], json.loads(body)
        wrong = [e.message[:300] for e in self._validator(schema).iter_errors(sent)]
        if isinstance(sent, dict) and "properties" in schema:
            wrong += [
                f"there is no field {name}" for name in sent if name not in schema["properties"]
            ]
        return wrong

    def _whole(self, node: dict[str, Any]) -> dict[str, Any]:
        """What a reference within the description stands for."""
        if "$ref" not in node:
            return node
        return functools.reduce(
            lambda at, key: at[key], node["$ref"][2:].split("/"), self._document
        )

    def _validator(self, schema: dict[str, Any]) -> OAS30Validator:
        if id(schema) not in self._validators:
            absolute = json.loads(json.dumps(schema).replace('"#/', f'"{ROOT}#/'))
            self._validators[id(schema)] = OAS30Validator(
                absolute, registry=self._registry, format_checker=oas30_format_checker
            )
        return self._validators[id(schema)]


def _known_otherwise(error: Any) -> bool:
    """GitHub answers null for the repository of a fork that was removed, whatever it describes."""
    return error.instance is None and error.json_path.endswith("head.repo")


def _as_meant(node: Any) -> None:
    """GitHub writes `nullable` beside an `enum` without null, and answers null; and it tells an
    array from an object by a `discriminator`, which only objects can have."""
    if isinstance(node, dict):
        if isinstance(node.get("discriminator"), dict):
            del node["discriminator"]
        if node.get("nullable") is True and isinstance(node.get("enum"), list):
            node["enum"] = [*node["enum"], None]
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            _as_meant(child)


def _pattern(template: str) -> str:
    """A path's regular expression; refs, names and file paths may hold slashes."""
    deep = ("ref", "path", "basehead", "name", "tree_sha")
    parts = re.split(r"\{(\w+)\}", template)
    for at in range(1, len(parts), 2):
        parts[at] = ".+" if parts[at] in deep else "[^/]+"
    parts[::2] = [re.escape(part) for part in parts[::2]]
    return "".join(parts)


@functools.cache
def description() -> Description | None:
    """GitHub's description; None when the variable is not set."""
    name = os.environ.get(VARIABLE)
    if not name:
        return None
    with open(name, encoding="utf-8") as file:  # noqa: PTH123
        return Description(json.load(file))


class Recorder:
    def __init__(self, prefix: str = "/api/v3", bot: Callable[[str], bool] | None = None) -> None:
        """`bot`: whether a request with this `Authorization` is the bot's, and to be described."""
        self.prefix = prefix
        self.bot = bot
        self.requests = 0  # of the bot, held against the description
        self.checked: dict[tuple[str, str], int] = {}
        self.complaints: list[str] = []

    def __call__(self, app: ASGIApp) -> ASGIApp:
        known = description()
        if known is None:
            return app

        async def recorded(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http" or not scope["path"].startswith(self.prefix):
                await app(scope, receive, send)
                return
            got: dict[str, Any] = {"status": 0, "json": False, "body": b""}
            sent = bytearray()

            async def heard() -> Message:
                message = await receive()
                sent.extend(message.get("body", b""))
                return message

            # uvicorn's connection, which faults close, is found through its own method.
            heard.__self__ = getattr(receive, "__self__", None)  # type: ignore[attr-defined]

            async def keep(message: Message) -> None:
                if message["type"] == "http.response.start":
                    got["status"] = message["status"]
                    types = [v for k, v in message["headers"] if k.lower() == b"content-type"]
                    got["fault"] = any(k == b"x-sandbox-fault" for k, _ in message["headers"])
                    got["json"] = any(v.startswith(b"application/json") for v in types)
                else:
                    got["body"] += message.get("body", b"")
                await send(message)

            await app(scope, heard, keep)
            method, path = scope["method"], scope["path"].removeprefix(self.prefix)
            headers = dict(scope["headers"])
            who = headers.get(b"authorization", b"").decode()
            unread = int(headers.get(b"content-length", b"0")) > len(sent)  # a fault came before
            if self.bot is not None and self.bot(who) and not unread:
                self.requests += 1
                query = scope["query_string"].decode()
                wrong = known.request_complaint(method, path, query, bytes(sent))
                if wrong:
                    self.complaints.append(wrong)
            if got.get("fault"):
                return
            if got["status"] in range(200, 500) and (got["json"] or got["status"] == 204):
                complaint = known.complaint(method, path, got["status"], got["body"])
                operation = known.operation(method, path)
                if operation:
                    key = (operation["operationId"], str(got["status"]))
                    self.checked[key] = self.checked.get(key, 0) + 1
                if complaint:
                    self.complaints.append(complaint)

        return recorded
