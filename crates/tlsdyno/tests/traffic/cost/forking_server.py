"""An HTTPS server that begins a process for each connection: CERTIFICATE KEY PORT. It prints its port. With one word more it
does not wait for its processes."""

import signal
import socketserver
import ssl
import sys

context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])


class Answer(socketserver.BaseRequestHandler):
    def handle(self):
        connection = context.wrap_socket(self.request, server_side=True)
        while asked := connection.recv(4096):
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
            if b"close" in asked:
                break
        connection.unwrap()


class Server(socketserver.ForkingTCPServer):
    request_queue_size = 64

    def handle_error(self, request, address):
        """Whoever breaks off is none of its business."""


if len(sys.argv) > 4:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
server = Server(("127.0.0.1", int(sys.argv[3])), Answer)
print(server.server_address[1], flush=True)
server.serve_forever()
