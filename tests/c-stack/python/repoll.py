"""Calls of librdmacm's epoll, valid and invalid, with their results."""

import ctypes
import errno
import os
import select

library = ctypes.CDLL("librdmacm.so.1", use_errno=True)


class Event(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("events", ctypes.c_uint32), ("data", ctypes.c_uint64)]


def event(events, data):
    return ctypes.byref(Event(events, data))


def fails(answer, why):
    assert (answer, ctypes.get_errno()) == (-1, why), (answer, ctypes.get_errno(), why)


def wait(number, most=4, timeout=0):
    events = (Event * 4)()
    found = library.repoll_wait(number, events, most, timeout)
    return sorted((event.data, event.events) for event in events[:found]) if found >= 0 else found


ADD, DEL, MOD = 1, 2, 3
fails(library.repoll_create(1), errno.EINVAL)
poll = library.repoll_create(os.O_CLOEXEC)
assert poll >= 0 and not os.get_inheritable(poll)
reads, writes = os.pipe()
socket = library.rsocket(2, 1, 0)
assert socket >= 0

fails(library.repoll_ctl(poll, ADD, -1, event(1, 1)), errno.EBADF)
fails(library.repoll_ctl(poll, ADD, poll, event(1, 1)), errno.EINVAL)
fails(library.repoll_ctl(reads, ADD, writes, event(1, 1)), errno.EINVAL)
fails(library.repoll_ctl(poll, 9, reads, event(1, 1)), errno.EINVAL)
fails(library.repoll_ctl(poll, MOD, reads, event(1, 1)), errno.ENOENT)
fails(library.repoll_ctl(poll, DEL, reads, None), errno.ENOENT)
fails(library.repoll_ctl(poll, ADD, reads, None), errno.EFAULT)
fails(library.repoll_wait(poll, None, 0, 0), errno.EINVAL)
fails(library.repoll_wait(reads, None, 1, 0), errno.EINVAL)

assert library.repoll_ctl(poll, ADD, socket, event(select.EPOLLIN, 5)) == 0
assert library.repoll_ctl(poll, ADD, reads, event(select.EPOLLIN, 7)) == 0
fails(library.repoll_ctl(poll, ADD, reads, event(1, 1)), errno.EEXIST)
assert wait(poll) == [] and wait(poll, timeout=20) == []
os.write(writes, b"x")
assert wait(poll) == [(7, select.EPOLLIN)] == wait(poll, timeout=-1)
assert library.repoll_ctl(poll, ADD, writes, event(select.EPOLLOUT, 8)) == 0
assert wait(poll) == [(7, select.EPOLLIN), (8, select.EPOLLOUT)]
assert len(wait(poll, most=1)) == 1

once = select.EPOLLIN | select.EPOLLONESHOT
assert library.repoll_ctl(poll, DEL, writes, None) == 0
assert library.repoll_ctl(poll, MOD, reads, event(once, 9)) == 0
assert wait(poll) == [(9, select.EPOLLIN)] and wait(poll) == []
assert library.repoll_ctl(poll, MOD, reads, event(once, 10)) == 0
assert wait(poll) == [(10, select.EPOLLIN)]

# A closed socket leaves the set, since its number may be reused.
assert library.rclose(socket) == 0
again = library.rsocket(2, 1, 0)
assert again == socket and library.repoll_ctl(poll, ADD, again, event(1, 1)) == 0
assert library.rclose(poll) == 0
fails(library.repoll_wait(poll, None, 1, 0), errno.EINVAL)
assert library.rclose(again) == 0
print("all as it should be")
