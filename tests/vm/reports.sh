# `uverbs counters` and `resources` beside sysfs and rdma(8): DEVICE, and an interface of it.
set -e
device=$1
port=/sys/class/infiniband/$device/ports/1
uverbs pingpong -d "${2:+near:}${2:-$device}" -n 50 --warmup 0
# Linux asks the device again after ten milliseconds.
sleep 0.1
uverbs counters -d "$device" --all > /tmp/counters
for file in "$port"/counters/* "$port"/hw_counters/*; do
    name=${file##*/}
    [ -r "$file" ] && [ "$name" != lifespan ] || continue
    value=$(cat "$file")
    grep -Eq "^  $name +$value\$" /tmp/counters || { echo "$name is $value:"; cat /tmp/counters; exit 1; }
done
# "link rxe0/1 sent_pkts 7 rcvd_pkts 7 ..."
set -- $(/usr/bin/rdma statistic show link "$device/1")
shift 2
while [ $# -gt 1 ]; do
    grep -Eq "^  $1 +$2\$" /tmp/counters || { echo "rdma: $1 $2:"; cat /tmp/counters; exit 1; }
    shift 2
done
uverbs counters -d "$device" --prometheus | grep -q '^uverbs_unread_parts{.*} 0$'

# A server that waits for its client holds objects.
uverbs pingpong -d "$device" --server &
server=$!
for _ in 1 2 3 4 5 6 7 8 9 10; do
    uverbs resources -d "$device" > /tmp/held
    # It registers its memory last.
    grep -q "^pid $server " /tmp/held && grep -q "^  $device *mr " /tmp/held && break
    sleep 0.5
done
grep "^pid $server uverbs" /tmp/held
sorted() { sort -n | tr '\n' ' '; }
for kind in pd mr cq qp cm_id; do
    ours=$(grep -c "^  $device *$kind " /tmp/held || true)
    theirs=$(/usr/bin/rdma resource show $kind | grep -c "$device[ /]" || true)
    [ "$ours" = "$theirs" ] || { echo "$kind: $ours, rdma $theirs"; cat /tmp/held; exit 1; }
done
ours=$(sed -n 's/^  [^ ]* *qp *\([0-9]*\) .*/\1/p' /tmp/held | sorted)
theirs=$(/usr/bin/rdma resource show qp link "$device/1" | sed -n 's/.* lqpn \([0-9]*\) .*/\1/p' | sorted)
[ "$ours" = "$theirs" ] || { echo "qp: $ours, rdma: $theirs"; exit 1; }
kill $server
wait $server || true
uverbs topology
