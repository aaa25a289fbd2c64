"""A hub of one's own on this machine: the few endpoints that an upload and a download of a repository use."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlparse

TOKEN = "hf_planted"
SHA = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """Repositories as {id: {path: bytes}}, and every request with the token it carried."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.asked: list[tuple[str, str, str]] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        return

    def _reply(self, code: int, body: object = None, **headers: str) -> None:
        blob = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(blob)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(blob)

    def _path(self) -> str:
        path = unquote(urlparse(self.path).path)
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        self.server.asked.append((self.command, path, token))
        return path

    def do_POST(self) -> None:
        path = self._path()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._reply(401, {"error": "Invalid username or password."})
            return
        repositories = self.server.repositories
        if path == "/api/repos/create":
            said = json.loads(body)
            name = f"{said['organization']}/{said['name']}" if said.get("organization") else f"me/{said['name']}"
            repositories.setdefault(name, {})
            self._reply(200, {"url": f"{self.server.address}/{name}"})
        elif path == "/api/validate-yaml":
            self._reply(200, {"errors": [], "warnings": []})
        elif path.endswith("/preupload/main"):
            files = [f | {"uploadMode": "regular", "shouldIgnore": False} for f in json.loads(body)["files"]]
            self._reply(200, {"files": files})
        else:
            name = re.fullmatch(r"/api/models/(.+)/commit/main", path)[1]
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    repositories[name][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            url = f"{self.server.address}/{name}/commit/{SHA}"
            self._reply(200, {"success": True, "commitOid": SHA, "commitUrl": url, "hookOutput": ""})

    def do_GET(self) -> None:
        path = self._path()
        info = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/[^/]+)?", path)
        tree = re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/[^/]+/?", path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path)
        files = self.server.repositories.get((info or tree or file)[1]) if info or tree or file else None
        if files is None or (file and file[2] not in files):
            self._reply(404, {"error": "not found"}, X_Error_Code="EntryNotFound" if files else "RepoNotFound")
        elif info:
            self._reply(200, {"id": info[1], "sha": SHA, "siblings": [{"rfilename": f} for f in files]})
        elif tree:
            self._reply(200, [{"type": "file", "path": f, "size": len(b), "oid": SHA} for f, b in files.items()])
        else:
            blob = files[file[2]]
            etag = f'"{hashlib.sha1(blob).hexdigest()}"'
            self._reply(200, blob, ETag=etag, X_Repo_Commit=SHA, Accept_Ranges="bytes")

    def do_HEAD(self) -> None:
        self.do_GET()


@contextmanager
def small_hub():
    """A hub that runs while it is needed."""
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()
