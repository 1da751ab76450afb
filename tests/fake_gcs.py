"""A small Google Cloud Storage on 127.0.0.1: the part of its JSON API that google-cloud-storage and
TensorStore use, honouring generation preconditions, with listings in pages of three. Trouble comes
when it is asked for: `fake.trouble(...)`.

    with serving() as fake:
        fake.buckets["bucket"] = {}
        # STORAGE_EMULATOR_HOST=fake.url, or TENSORSTORE_GCS_HTTP_URL=fake.url
"""

import asyncio
import hashlib
import json
import re
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any, Literal

import google_crc32c
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse

PAGE = 3  # objects and prefixes on one page of a listing
OBJECT = "/storage/v1/b/{bucket}/o/{name:path}"

What = Literal["insert", "download", "metadata", "list", "delete"]


@dataclass
class Stored:
    """One object."""

    name: str
    data: bytes
    generation: int
    about: dict[str, Any]  # what its writer said of it: contentType, metadata
    updated: str = field(default_factory=lambda: f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}")

    def resource(self, bucket: str) -> dict[str, Any]:
        """Its description, as the API gives it."""
        crc32c, md5 = _digests(self.data)
        return {
            "kind": "storage#object",
            "id": f"{bucket}/{self.name}/{self.generation}",
            "bucket": bucket,
            "name": self.name,
            "generation": str(self.generation),
            "metageneration": "1",
            "size": str(len(self.data)),
            "crc32c": crc32c,
            "md5Hash": md5,
            "etag": str(self.generation),
            "timeCreated": self.updated,
            "updated": self.updated,
            **{key: self.about[key] for key in ("contentType", "metadata") if key in self.about},
        }


@dataclass
class Trouble:
    """What goes wrong, with which requests, how often."""

    what: What
    how: Literal["refused", "lost", "cut", "changed"]
    status: int = 503
    message: str = "trouble"
    times: float = 1
    skip: int = 0  # requests that go well before


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class FakeGcs:
    """The buckets, the troubles to come, and the requests that came."""

    def __init__(self) -> None:
        self.url = ""
        self.buckets: dict[str, dict[str, Stored]] = {}
        self.asked: list[str] = []  # the bucket that each request was about
        self._troubles: list[Trouble] = []
        self._uploads: dict[str, dict[str, Any]] = {}
        self._generations = count(1_700_000_000_000_001)

    def trouble(self, what: What, how: str, **more: Any) -> None:
        """From now on: `refused` answers with `status` and does nothing; `lost` does it and answers
        with `status`; `cut` ends a download in its middle; `changed` sends other bytes."""
        self._troubles.append(Trouble(what, how, **more))  # type: ignore[arg-type]

    def peace(self) -> None:
        """No trouble any more."""
        self._troubles.clear()

    # ── What it does ─────────────────────────────────────────────────────────────────────────

    def _begin(self, what: What, bucket: str) -> Trouble | None:
        self.asked.append(bucket)
        for trouble in self._troubles:
            if trouble.what != what:
                continue
            if trouble.skip > 0:
                trouble.skip -= 1
            elif trouble.times > 0:
                trouble.times -= 1
                if trouble.how == "refused":
                    raise Refused(trouble.status, trouble.message)
                return trouble
        return None

    def _bucket(self, bucket: str) -> dict[str, Stored]:
        if bucket not in self.buckets:
            raise Refused(404, "The specified bucket does not exist.")
        return self.buckets[bucket]

    def _object(self, bucket: str, name: str) -> Stored:
        if name not in self._bucket(bucket):
            raise Refused(404, f"No such object: {bucket}/{name}")
        return self.buckets[bucket][name]

    def _precondition(self, bucket: str, name: str, wanted: str | None) -> None:
        there = self._bucket(bucket).get(name)
        if wanted is not None and int(wanted) != (there.generation if there else 0):
            raise Refused(412, "At least one of the pre-conditions you specified did not hold.")

    def _insert(
        self, bucket: str, name: str, data: bytes, about: dict[str, Any], match: str | None
    ) -> Response:
        trouble = self._begin("insert", bucket)
        self._precondition(bucket, name, match)
        if about.get("crc32c") not in (None, _digests(data)[0]):
            raise Refused(400, "The provided CRC32C does not match the object's content.")
        stored = Stored(name, data, next(self._generations), about)
        self.buckets[bucket][name] = stored
        if trouble:
            raise Refused(trouble.status, trouble.message)
        return JSONResponse(stored.resource(bucket))

    async def upload(self, request: Request, bucket: str) -> Response:
        """In one piece, with a description or without, or the beginning of one in several."""
        query = request.query_params
        if "upload_id" in query:
            return await self.resume(request, bucket)
        kind, match = query["uploadType"], query.get("ifGenerationMatch")
        if kind == "media":
            about = {"contentType": request.headers.get("content-type")}
            return self._insert(bucket, query["name"], await request.body(), about, match)
        if kind == "multipart":
            about, data = _parts(request.headers["content-type"], await request.body())
            return self._insert(bucket, query.get("name") or about["name"], data, about, match)
        about = json.loads(await request.body() or b"{}")
        name = query.get("name") or about["name"]
        self._precondition(bucket, name, match)
        id = f"upload-{len(self._uploads)}"
        self._uploads[id] = {"name": name, "about": about, "match": match, "data": b""}
        return Response(headers={"Location": f"{request.url}&upload_id={id}"})

    async def resume(self, request: Request, bucket: str) -> Response:
        """The next piece of an upload. One that is over answers as it did before."""
        upload = self._uploads[request.query_params["upload_id"]]
        if "done" in upload:
            return upload["done"]
        data = await request.body()
        first, end = re.fullmatch(
            r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)", request.headers["content-range"]
        ).groups()  # type: ignore[union-attr]
        if first is not None:
            upload["data"] = upload["data"][: int(first)] + data
        if end == "*" or len(upload["data"]) < int(end):
            return Response(
                status_code=308, headers={"Range": f"bytes=0-{len(upload['data']) - 1}"}
            )
        name, about = upload["name"], upload["about"]
        try:
            return self._insert(bucket, name, upload["data"], about, upload["match"])
        finally:
            if (stored := self.buckets[bucket].get(name)) and stored.about is about:
                upload["done"] = JSONResponse(stored.resource(bucket))

    def read(self, request: Request, bucket: str, name: str) -> Response:
        """An object's description, or its bytes or some of them."""
        query = request.query_params
        if query.get("alt") != "media":
            self._begin("metadata", bucket)
            return JSONResponse(self._object(bucket, name).resource(bucket))
        trouble = self._begin("download", bucket)
        stored = self._object(bucket, name)
        generation = str(stored.generation)
        if query.get("ifGenerationNotMatch") == generation:
            return Response(status_code=304)
        if query.get("ifGenerationMatch", generation) != generation:
            raise Refused(412, "At least one of the pre-conditions you specified did not hold.")
        crc32c, md5 = _digests(stored.data)
        headers = {
            "x-goog-generation": generation,
            "x-goog-metageneration": "1",
            "x-goog-stored-content-length": str(len(stored.data)),
            "x-goog-stored-content-encoding": "identity",
            "x-goog-hash": f"crc32c={crc32c},md5={md5}",
        }
        status, data = 200, stored.data
        if span := re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("range", "")):
            size = len(data)
            first = int(span[1]) if span[1] else max(0, size - int(span[2]))
            last = min(size - 1, int(span[2])) if span[1] and span[2] else size - 1
            if first >= size:
                raise Refused(416, "The requested range cannot be satisfied.")
            status, data = 206, data[first : last + 1]
            headers["content-range"] = f"bytes {first}-{last}/{size}"
        if trouble and trouble.how == "cut":
            headers["content-length"] = str(len(data))
            return StreamingResponse(_cut(data), status, headers)
        if trouble and trouble.how == "changed":
            data = data[:-1] + bytes([data[-1] ^ 1])
        return Response(data, status, headers, "application/octet-stream")

    def list(self, request: Request, bucket: str) -> Response:
        """A page of names that begin with a prefix; with a delimiter, folders as prefixes."""
        self._begin("list", bucket)
        query = request.query_params
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        found: dict[str, Stored | None] = {}
        for name, stored in sorted(self._bucket(bucket).items()):
            inner, more, _ = name.removeprefix(prefix).partition(delimiter or "\0")
            begun = name >= query.get("startOffset", "")
            if name.startswith(prefix) and begun and name < query.get("endOffset", "\U0010ffff"):
                found[prefix + inner + more if more else name] = None if more else stored
        names = [name for name in found if name > query.get("pageToken", "")]
        page = names[: min(PAGE, int(query.get("maxResults", PAGE)))]
        items = [stored.resource(bucket) for name in page if (stored := found[name])]
        prefixes = [name for name in page if found[name] is None]
        answer: dict[str, Any] = {"kind": "storage#objects", "items": items, "prefixes": prefixes}
        if len(names) > len(page):
            answer["nextPageToken"] = page[-1]
        return JSONResponse(answer)

    def delete(self, request: Request, bucket: str, name: str) -> Response:
        """Remove an object."""
        trouble = self._begin("delete", bucket)
        self._object(bucket, name)
        self._precondition(bucket, name, request.query_params.get("ifGenerationMatch"))
        del self.buckets[bucket][name]
        if trouble:
            raise Refused(trouble.status, trouble.message)
        return Response(status_code=204)


def _app(fake: FakeGcs) -> FastAPI:
    # All on one event loop: between a look and a deed nothing else happens.
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.exception_handler(Refused)
    async def refuse(request: Request, error: Refused) -> Response:
        if request.query_params.get("alt") == "media":
            return PlainTextResponse(error.message, error.status)
        return JSONResponse(
            {
                "error": {
                    "code": error.status,
                    "message": error.message,
                    "errors": [{"reason": "fake", "message": error.message}],
                }
            },
            error.status,
        )

    @app.get(f"/download{OBJECT}")
    @app.get(OBJECT)
    async def read(request: Request, bucket: str, name: str) -> Response:
        return fake.read(request, bucket, name)

    @app.delete(OBJECT)
    async def delete(request: Request, bucket: str, name: str) -> Response:
        return fake.delete(request, bucket, name)

    @app.get("/storage/v1/b/{bucket}")
    async def about(bucket: str) -> Response:
        fake._bucket(bucket)
        return JSONResponse({"kind": "storage#bucket", "name": bucket, "location": "EU"})

    @app.get("/storage/v1/b/{bucket}/o")
    async def listing(request: Request, bucket: str) -> Response:
        return fake.list(request, bucket)

    @app.post("/upload/storage/v1/b/{bucket}/o")
    async def upload(request: Request, bucket: str) -> Response:
        return await fake.upload(request, bucket)

    @app.put("/upload/storage/v1/b/{bucket}/o")
    async def resume(request: Request, bucket: str) -> Response:
        return await fake.resume(request, bucket)

    return app


async def _cut(data: bytes) -> Any:
    yield data[: len(data) // 2]
    await asyncio.sleep(0.05)  # until it has left
    raise ConnectionError("the connection breaks")


def _digests(data: bytes) -> tuple[str, str]:
    crc32c = google_crc32c.Checksum(data).digest()
    return b64encode(crc32c).decode(), b64encode(hashlib.md5(data).digest()).decode()


def _parts(content_type: str, body: bytes) -> tuple[dict[str, Any], bytes]:
    """The description and the bytes of a multipart/related body."""
    boundary = re.search(r"boundary=\"?([^\";]+)", content_type)[1].encode()  # type: ignore[index]
    _, first, rest = body.split(b"--" + boundary + b"\r\n", 2)
    data = rest.partition(b"\r\n\r\n")[2].rpartition(b"\r\n--" + boundary + b"--")[0]
    return json.loads(first.partition(b"\r\n\r\n")[2]), data


@contextmanager
def serving() -> Iterator[FakeGcs]:
    """A fake on a free port, for the `with` body."""
    fake = FakeGcs()
    config = uvicorn.Config(
        _app(fake), host="127.0.0.1", port=0, log_level=60, lifespan="off", timeout_keep_alive=60
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        threading.Event().wait(0.01)
    fake.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        yield fake
    finally:
        server.should_exit = server.force_exit = True
        thread.join()
