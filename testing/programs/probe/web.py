"""web.py ADDRESS PORT FOLDER KIND: Python's own web server, which serves each client in a thread or in a
process of its own (KIND is `thread` or `fork`)."""

import functools
import http.server
import socketserver
import sys

address, port, folder, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
mixin = {"thread": socketserver.ThreadingMixIn, "fork": socketserver.ForkingMixIn}[kind]
Server = type("Server", (mixin, http.server.HTTPServer), {"request_queue_size": 32})
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
Server((address, port), handler).serve_forever()
