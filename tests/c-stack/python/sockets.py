"""Python's sockets: sockets.py WAY server|client ADDRESS. Each end prints what it saw."""

import os
import select
import socket
import sys
import threading
import time

PORT = 7000
DATA = bytes(range(256)) * 1500


def echo(connection):
    """Gives back what comes, to its end; True if something came."""
    total = 0
    while True:
        part = connection.recv(50000)
        if not part:
            return total
        total += len(part)
        connection.sendall(part)


def listener(address):
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((address, PORT))
    server.listen(4)
    return server


def serve(address):
    """One connection."""
    with listener(address) as server:
        connection, peer = server.accept()
        with connection:
            print("echoed", echo(connection), "for", connection.getpeername()[0])


def serve_forked(address):
    """One connection, by a child."""
    with listener(address) as server:
        connection, _ = server.accept()
        child = os.fork()
        if child == 0:
            server.close()
            total = echo(connection)
            print("echoed", total, "for", connection.getpeername()[0], flush=True)
            connection.close()
            os._exit(0)
        connection.close()
        assert os.waitpid(child, 0)[1] == 0


def serve_by(wait, address):
    """One connection, without waiting but by `wait`."""
    with listener(address) as server:
        server.setblocking(False)
        wait(server, False)
        connection, _ = server.accept()
        connection.setblocking(False)
        total, pending, ended = 0, b"", False
        while pending or not ended:
            readable, writable = wait(connection, bool(pending))
            if readable and not ended and len(pending) < 1 << 20:
                try:
                    part = connection.recv(50000)
                    total, pending, ended = total + len(part), pending + part, not part
                except BlockingIOError:
                    pass
            if writable and pending:
                try:
                    pending = pending[connection.send(pending):]
                except BlockingIOError:
                    pass
        print("echoed", total, "for", connection.getpeername()[0])
        connection.close()


def by_select(file, write):
    readable, writable, _ = select.select([file], [file] if write else [], [], 20)
    assert readable or writable, "nothing in 20 seconds"
    return readable, writable


def by_poll(file, write):
    poll = select.poll()
    poll.register(file, select.POLLIN | (select.POLLOUT if write else 0))
    found = poll.poll(20000)
    assert found, "nothing in 20 seconds"
    seen = found[0][1]
    return seen & ~select.POLLOUT, seen & select.POLLOUT


class ByEpoll:
    """One epoll for all, with a pipe of the system's among its members."""

    def __init__(self):
        self.epoll = select.epoll()
        self.pipe = os.pipe()
        self.known = {}
        self.woken = False
        self.epoll.register(self.pipe[0], select.EPOLLIN)

    def __call__(self, file, write):
        events = select.EPOLLIN | (select.EPOLLOUT if write else 0)
        number = file.fileno()
        if self.known.get(number) is None:
            self.epoll.register(number, events)
            os.write(self.pipe[1], b"x")
        elif self.known[number] != events:
            self.epoll.modify(number, events)
        self.known[number] = events
        while True:
            found = dict(self.epoll.poll(20))
            assert found, "nothing in 20 seconds"
            if found.pop(self.pipe[0], 0):
                os.read(self.pipe[0], 1)
                self.woken = True
            if found:
                assert self.woken, "nothing came by the pipe"
                seen = found[number]
                return seen & ~select.EPOLLOUT, seen & select.EPOLLOUT


def connected(address):
    """Nothing tells that the server listens but its answer."""
    for _ in range(300):
        client = socket.socket()
        try:
            client.connect((address, PORT))
            return client
        except ConnectionRefusedError:
            client.close()
            time.sleep(0.05)
    sys.exit("nobody listens")


def ask(address):
    """Sends by a copied descriptor, in calls and out of a file, while a thread receives."""
    with connected(address) as client:
        got = bytearray()

        def receive():
            while part := client.recv(60000):
                got.extend(part)

        thread = threading.Thread(target=receive)
        thread.start()
        with client.dup() as copy:
            copy.sendall(DATA)
        with open(__file__, "rb") as file:
            client.sendfile(file)
            size = file.tell()
            client.shutdown(socket.SHUT_WR)
            thread.join()
            file.seek(0)
            assert size == len(file.read()) > 0
            file.seek(0)
            print("the same" if bytes(got) == DATA + file.read() else "other bytes", len(got))


SERVERS = {
    "plain": serve,
    "forked": serve_forked,
    "select": lambda address: serve_by(by_select, address),
    "poll": lambda address: serve_by(by_poll, address),
    "epoll": lambda address: serve_by(ByEpoll(), address),
}

way, end, at = sys.argv[1:]
ask(at) if end == "client" else SERVERS[way](at)
