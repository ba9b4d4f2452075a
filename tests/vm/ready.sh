# present DEVICE: waits until an RDMA device is there.
# ready DEVICE: waits until its port is active and has two GIDs.
# served [PID]: waits until a server listens, for TCP or rdma_cm, or has the UDP port of our datagrams;
# no other program in the guest does. Or until that process waits, with a function of vfio-pci: its
# ids are not in the kernel.
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
# The driver's thread is there, and the main thread waits in one system call for five looks: read,
# poll, accept, recvfrom, recvmsg, futex, epoll (x86-64). Between looks at a command it sleeps.
is_waiting() { # pid
    grep -qs uverbs-mlx5 /proc/$1/task/*/comm || return
    now=$(cat /proc/$1/syscall)
    [ "$now" = "$before" ] && looks=$((looks + 1)) || looks=0
    before=$now
    case "${now%% *}" in
        0 | 7 | 43 | 45 | 47 | 202 | 232 | 271 | 281 | 288) [ $looks -ge 5 ] ;;
        *) looks=0 && false ;;
    esac
}
is_served() {
    grep -q ' 0A ' /proc/net/tcp /proc/net/tcp6 && return
    grep -q ':1C07 ' /proc/net/udp && return # 7175
    /usr/bin/rdma resource show cm_id | grep -q 'state LISTEN' && return
    [ -n "$1" ] && is_waiting $1
}
# An id's state is LISTEN a moment before requests are taken (kernel cma.c, rdma_listen), and a
# processor of the guest may stand still in between.
served() {
    wait_for "a server" is_served $1
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
