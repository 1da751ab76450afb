"""A loopback server that answers Hugging Face's client as the Hub does, for one repository at a
time: it serves files, and takes commits."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """What the server has and what it was sent."""

    def __init__(self) -> None:
        self.url = ""
        self.files: dict[str, bytes] = {}  # of every repository, by name
        self.asked: list[tuple[str, str, str]] = []  # method, path, token
        self.sent: dict[str, bytes] = {}
        self.created: list[dict[str, object]] = []
        self.refuses = False


@contextmanager
def hub() -> Iterator[Hub]:
    state = Hub()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def _answer(self, said: object, code: int = 200, **headers: str) -> None:
            body = said if isinstance(said, bytes) else json.dumps(said).encode()
            self.send_response(code)
            for key, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(key.replace("_", "-"), value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def _note(self) -> str:
            path = self.path.partition("?")[0]
            state.asked.append((self.command, path, self.headers.get("Authorization", "")))
            return path

        def do_GET(self) -> None:
            path = self._note()
            if state.refuses:
                self._answer({"error": "Repository not found"}, 404)
            elif path.startswith("/api/models/"):
                name = "/".join(path.split("/")[3:5])
                siblings = [{"rfilename": file} for file in state.files]
                if "/tree/" in path:
                    tree = [{"type": "file", "path": file, "size": len(data), "oid": COMMIT}
                            for file, data in state.files.items()]  # fmt: skip
                    self._answer(tree, Content_Type="application/json")
                    return
                self._answer({"id": name, "sha": COMMIT, "siblings": siblings})
            elif (file := path.rpartition("/")[2]) in state.files:
                etag = f'"{len(state.files[file]):040x}"'
                self._answer(state.files[file], ETag=etag, X_Repo_Commit=COMMIT)
            else:
                self._answer({"error": "Entry not found"}, 404, X_Error_Code="EntryNotFound")

        do_HEAD = do_GET

        def do_POST(self) -> None:
            path = self._note()
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if state.refuses:
                self._answer({"error": "Forbidden: this token may not write"}, 403)
            elif path == "/api/repos/create":
                asked = json.loads(body)
                state.created.append(asked)
                self._answer({"url": f"{state.url}/{asked['organization']}/{asked['name']}"})
            elif "/preupload/" in path:
                files = [{"path": one["path"], "uploadMode": "regular", "shouldIgnore": False}
                         for one in json.loads(body)["files"]]  # fmt: skip
                self._answer({"files": files})
            elif "/commit/" in path:
                for line in map(json.loads, body.splitlines()):
                    if line["key"] == "file":
                        value = line["value"]
                        state.sent[value["path"]] = base64.b64decode(value["content"])
                url = f"{state.url}/{'/'.join(path.split('/')[3:5])}/commit/{COMMIT}"
                self._answer({"commitUrl": url, "commitOid": COMMIT})
            else:
                self._answer({})

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
