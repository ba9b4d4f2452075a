# present DEVICE: waits until an RDMA device is there.
# ready DEVICE: waits until its port is active and has two GIDs.
# served: waits until a server listens, for TCP or rdma_cm, or has the UDP port of our datagrams; no
# other program in the guest does.
# What waits fails after ten seconds, or $seconds, and says what is missing.

wait_for() { # what condition...
    what=$1
    shift
    for i in $(seq ${seconds:-10}0); do
        "$@" && return 0
        sleep 0.1
    done
    echo "$what is not there after ${seconds:-10} s"
    exit 1
}

is_present() { [ -d /sys/class/infiniband/$1 ] && [ -e /dev/infiniband/rdma_cm ]; }
is_active() { grep -q ACTIVE /sys/class/infiniband/$1/ports/1/state; }
has_gid() { ! grep -q 0000:0000:0000:0000$ /sys/class/infiniband/$1/ports/1/gids/$2; }
is_served() {
    grep -q ' 0A ' /proc/net/tcp /proc/net/tcp6 && return
    grep -q ':1C07 ' /proc/net/udp && return # 7175
    /usr/bin/rdma resource show cm_id | grep -q 'state LISTEN'
}
# An id's state is LISTEN a moment before requests are taken (kernel cma.c, rdma_listen), and a
# processor of the guest may stand still in between.
served() {
    wait_for "a server" is_served
    sleep 0.3
}

present() { wait_for "$1" is_present $1; }
ready() {
    present $1
    wait_for "an active port of $1" is_active $1
    wait_for "GID 0 of $1" has_gid $1 0
    # An InfiniBand port has one GID.
    grep -q InfiniBand /sys/class/infiniband/$1/ports/1/link_layer || wait_for "GID 1 of $1" has_gid $1 1
}
