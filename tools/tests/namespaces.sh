# Two network namespaces, as any user may make them, and a software HCA in each. $UVERBS is ours:
#   UVERBS=target/debug/uverbs unshare --map-root-user --net sh tools/tests/namespaces.sh
set -e
unshare --net sleep infinity &
far=$!
trap 'kill $far' EXIT
until [ "$(readlink /proc/$far/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
there="nsenter --target $far --net"
ip link add near type veth peer name far netns $far
ip addr add 10.9.0.1/24 dev near
ip link set near up
$there ip addr add 10.9.0.2/24 dev far
$there ip link set far up

between() { # what arguments...
    what=$1
    shift
    $UVERBS $what --server -d softhca@10.9.0.1 "$@" &
    server=$!
    until grep -q ' 0A ' /proc/net/tcp /proc/net/tcp6; do
        kill -0 $server
        sleep 0.01
    done
    $there $UVERBS $what 10.9.0.1 -d softhca@10.9.0.2 "$@"
    wait $server
}

between pingpong -s 100000 -n 20 --chk
between "perf write bw" -s 64K -n 50
between "perf read bw" -s 64K -n 50
between "perf send lat" -c UD -s 1K -n 50
