"""A web server on this machine that serves given files, and misbehaves where it is told to."""

import contextlib
import hashlib
import http.server
import re
import socket
import struct
import threading


class Served:
    """One file and how it is served. `breaks`: after how many bytes of the answer each connection is cut, in turn."""

    def __init__(self, content, *, etag=None, modified=None, ranges=True, breaks=(), length=True, status=200, to=None):
        self.content, self.etag, self.modified = content, etag, modified
        self.ranges, self.breaks, self.length, self.status, self.to = ranges, list(breaks), length, status, to
        self.gate = None  # an event that the answer waits for, half way

    @property
    def md5(self):
        return hashlib.md5(self.content).hexdigest()


class Server:
    """Files by path, and the requests that came: (path, Range header)."""

    def __init__(self):
        self.files, self.requests = {}, []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                outer.answer(self)

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def asked_for(self, path):
        return [wanted for name, wanted in self.requests if name == path]

    def answer(self, handler):
        self.requests.append((handler.path, handler.headers.get("Range")))
        served = self.files.get(handler.path, Served(b"nothing here", status=404))
        status, start = served.status, 0
        asked = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range") or "")
        same = handler.headers.get("If-Range") in (served.etag, served.modified)
        if asked and served.ranges and same and status == 200:
            start, status = int(asked[1]), 206
            if start >= len(served.content):
                status = 416
        body = b"" if status == 416 else served.content[start:]
        handler.send_response(status)
        for name, value in (("ETag", served.etag), ("Last-Modified", served.modified), ("Location", served.to)):
            if value is not None:
                handler.send_header(name, value)
        if status == 206:
            handler.send_header("Content-Range", f"bytes {start}-{len(served.content) - 1}/{len(served.content)}")
        if served.length:
            handler.send_header("Content-Length", str(len(body)))
        else:
            handler.send_header("Connection", "close")
        handler.end_headers()
        with contextlib.suppress(OSError):
            self._send(handler, served, body)
        handler.close_connection = True

    @staticmethod
    def _send(handler, served, body):
        if served.breaks and (keep := served.breaks.pop(0)) is not None:
            handler.wfile.write(body[:keep])
            handler.wfile.flush()
            # Closed with a reset, as a cable that is pulled would.
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            handler.connection.close()
            return
        if served.gate is not None:
            half = len(body) // 2
            handler.wfile.write(body[:half])
            handler.wfile.flush()
            served.gate.wait(20)
            body = body[half:]
        handler.wfile.write(body)
