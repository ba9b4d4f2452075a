# The software HCA and soft-RoCE at the two ends of a veth pair. soft-RoCE has UDP port 4791 of the
# first network namespace, so the software HCA's end is in another one, far, at 10.1.0.2:
#   [loss] PROGRAM ARGUMENTS...             here
#   [loss] SERVER ARGUMENTS... -- CLIENT... the server here, the client there
# With loss, netem loses, repeats and reorders packets in both directions; with percent in its place
# it loses one in a hundred.
set -e
. /vm/ready.sh
far="/usr/bin/ip netns exec far"
if [ ! -e /run/netns/far ]; then
    mkdir -p /run
    /usr/bin/ip netns add far
    # Room for packets of 1024 bytes, as on most networks.
    /usr/bin/ip link add w0 type veth peer name w1 netns far
    /usr/bin/ip addr add 10.1.0.1/24 dev w0
    /usr/bin/ip addr add fd00:1::1/64 dev w0 nodad
    $far /usr/bin/ip addr add 10.1.0.2/24 dev w1
    $far /usr/bin/ip addr add fd00:1::2/64 dev w1 nodad
    /usr/bin/ip link set w0 up
    $far /usr/bin/ip link set w1 up
    $far /usr/bin/ip link set lo up
    /usr/bin/rdma link add rxe2 type rxe netdev w0
    ready rxe2
    wait_for "GID 2 of rxe2" has_gid rxe2 2
fi
# Of a run that was killed.
/usr/bin/tc qdisc del dev w0 root 2> /dev/null || :
$far /usr/bin/tc qdisc del dev w1 root 2> /dev/null || :
netem=
case "$1" in
    loss) netem="netem delay 200us 100us loss 1% duplicate 1% reorder 90% 50%" ;;
    percent) netem="netem loss 1%" ;;
esac
if [ -n "$netem" ]; then
    shift
    /usr/bin/tc qdisc add dev w0 root $netem
    $far /usr/bin/tc qdisc add dev w1 root $netem
    trap '/usr/bin/tc qdisc del dev w0 root; $far /usr/bin/tc qdisc del dev w1 root' EXIT
    export UVERBS_TEST_LOSS=1
fi
export UVERBS_TEST_DEVICE=rxe2 UVERBS_TEST_FAR="far 10.1.0.2 fd00:1::2"
case " $* " in
    *" -- "*) CLIENT_IN=$far sh /vm/connect.sh "$@" ;;
    *) "$@" ;;
esac
