# `uverbs check` of DEVICE: nothing fails. Parts that the device lacks are not tried, which is status 3.
# Then a bundle, without the device's addresses, and a run between two processes.
set -e
. /vm/ready.sh
device=$1
passes() { status=0; "$@" || status=$?; [ "$status" = 0 ] || [ "$status" = 3 ] || exit "$status"; }
# An emulated processor and an unoptimised program verify slowly.
check() { uverbs check -d "$device" --longest 4097 "$@"; }
passes check --queue-pairs 50 --limit 200 --bundle /tmp/bundle
grep -q '"kind": "uverbs-bundle"' /tmp/bundle
guid=$(cat /sys/class/infiniband/"$device"/node_guid)
if grep -q "$guid" /tmp/bundle; then echo "the bundle has $guid"; exit 1; fi
passes check --server --limit 200 > /tmp/served &
server=$!
seconds=60
(served) || { cat /tmp/served; exit 1; }
passes check --queue-pairs 0 --limit 200 127.0.0.1
wait "$server" || { cat /tmp/served; exit 1; }
