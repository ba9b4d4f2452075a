"""Python's sockets: sockets.py WAY server|client ADDRESS. Each end prints what it saw."""

import os
import resource
import select
import socket
import sys
import threading
import time

PARENT = os.getpid()
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


def serve_with_children(address):
    """One connection. A forked child can close it, and does no more with it."""
    with listener(address) as server:
        connection, _ = server.accept()
        assert connection.recv(1) == b"x"
        ways = (
            lambda: connection.send(b"y"),
            lambda: connection.recv(1),
            lambda: connection.shutdown(socket.SHUT_RDWR),
            connection.close,
        )
        for way in ways:
            child = os.fork()
            if child == 0:
                error = 0
                try:
                    way()
                except OSError as why:
                    error = why.errno
                os._exit(error)
            print(os.strerror(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
        connection.sendall(b"z")
        assert connection.recv(1) == b""


def ask_with_children(address):
    with connected(address) as connection:
        connection.sendall(b"x")
        assert connection.recv(1) == b"z"


def serve_by_workers(address):
    """Two connections, each by one of two workers. The listener is older than they are."""
    with listener(address) as server:
        server.setblocking(False)
        workers = [os.fork() for _ in range(2) if os.getpid() == PARENT]
        if os.getpid() != PARENT:
            wait = ByEpoll()
            wait(server, False)
            connection, _ = server.accept()
            connection.setblocking(True)
            print("echoed", echo(connection), "for", connection.getpeername()[0], flush=True)
            connection.close()
            os._exit(0)
        for _ in workers:
            assert os.wait()[1] == 0


def serve_without_descriptors(address):
    """A worker that can't begin to listen is told why."""
    with listener(address) as server:
        worker = os.fork()
        if worker == 0:
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
            try:
                server.accept()
            except OSError as error:
                os._exit(error.errno)
            os._exit(0)
        status = os.waitpid(worker, 0)[1]
        print(os.strerror(os.waitstatus_to_exitcode(status)))


def files():
    return len(os.listdir("/proc/self/fd"))


MANY = 20
# Each of the first connections has two areas of memory that other processes can map.
FIRST = 40


def serve_many(address):
    """Descriptors of a connection, but the first ones."""
    with listener(address) as server:
        kept = [server.accept()[0] for _ in range(FIRST)]
        before = files()
        kept += [server.accept()[0] for _ in range(MANY)]
        print((files() - before) / MANY)
        assert kept[0].recv(1) == b""


def ask_many(address):
    kept = [connected(address) for _ in range(FIRST)]
    before = files()
    kept += [connected(address) for _ in range(MANY)]
    print((files() - before) / MANY)
    time.sleep(0.1)


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


def ask_twice(address):
    """The second connection is accepted by the worker that is left."""
    ask(address)
    ask(address)


SERVERS = {
    "plain": serve,
    "forked": serve_forked,
    "children": serve_with_children,
    "workers": serve_by_workers,
    "full": serve_without_descriptors,
    "many": serve_many,
    "select": lambda address: serve_by(by_select, address),
    "poll": lambda address: serve_by(by_poll, address),
    "epoll": lambda address: serve_by(ByEpoll(), address),
}

way, end, at = sys.argv[1:]
ASK = {
    "children": ask_with_children,
    "full": lambda at: None,
    "many": ask_many,
    "workers": ask_twice,
}.get(way, ask)
ASK(at) if end == "client" else SERVERS[way](at)
