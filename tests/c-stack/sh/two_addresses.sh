# A network namespace with two addresses, which any user may create, and a software HCA on each. $1
# runs on the first. $2, if given, runs on the second once the first listens. $RUN is `uverbs run`
# with its other options.
#   RUN='uverbs run --libraries DIR' unshare --map-root-user --net sh two_addresses.sh 'fi_info'
set -e
ip link set lo up
ip link add near type veth peer name far
ip addr add 10.9.0.1/24 dev near
ip addr add 10.9.0.2/24 dev near
ip link set near up
ip link set far up

on() { # address program...
    address=$1
    shift
    # A program that waits for ever would leave the test's pipes open.
    timeout 100 $RUN -d softhca@$address -- "$@"
}

if [ -z "$2" ]; then
    on 10.9.0.1 $1
    exit
fi
on 10.9.0.1 $1 >&2 &
server=$!
until grep -q ' 0A ' /proc/net/tcp /proc/net/tcp6; do
    kill -0 $server
    sleep 0.01
done
on 10.9.0.2 $2
wait $server
