# `uverbs top` in a pipe beside sysfs and rdma(8): DEVICE, and an interface of it.
set -e
device=$1
port=/sys/class/infiniband/$device/ports/1
interval=3

# Counters of the port as "NAME VALUE" lines: those of sysfs, then those of `rdma statistic`.
values() {
    for file in "$port"/counters/* "$port"/hw_counters/*; do
        [ "${file##*/}" != lifespan ] && echo "${file##*/} $(cat "$file" 2> /dev/null)"
    done
    # "link rxe0/1 sent_pkts 7 rcvd_pkts 7 ..."
    set -- $(/usr/bin/rdma statistic show link "$device/1")
    shift 2
    while [ $# -gt 1 ]; do
        echo "$1 $2"
        shift 2
    done
}

# A server that waits for its client holds objects.
uverbs pingpong -d "$device" --server &
server=$!
for _ in 1 2 3 4 5 6 7 8 9 10; do
    /usr/bin/rdma resource show qp link "$device/1" | grep -q "pid $server " && break
    sleep 0.5
done

# Messages between the first report and the second one. A slow machine tries again.
for _ in 1 2 3; do
    sleep 0.1
    values > /tmp/before
    uverbs top -d "$device" --count 2 --interval $interval > /tmp/top &
    top=$!
    until grep -q holder /tmp/top; do sleep 0.1; done
    uverbs pingpong -d "${2:+near:}${2:-$device}" -n 50 --warmup 0
    sleep 0.1
    values > /tmp/after
    in_time=$(kill -0 $top 2> /dev/null && echo yes || true)
    for kind in pd mr cq qp cm_id; do
        echo "$kind $(/usr/bin/rdma resource show $kind | grep "$device[ /]" | grep -c "pid $server " || true)"
    done > /tmp/held
    wait $top
    [ "$in_time" ] && break
done
[ "$in_time" ]
kill $server
wait $server || true

# Each counter that changed has a line, with its change in a second; no other one has a line. The
# port's line has the rates of its data, in bits, and of its packets.
awk -v interval=$interval -v device="$device" -v server="$server" '
    function wrong(text) { print "top: " text; failed = 1 }
    # A rate of three digits, or of one behind the point, over an interval that a slow machine
    # stretches.
    function is(rate, change,  exact) {
        exact = change / interval
        return rate <= exact * 1.01 + 0.05 && rate >= exact * 0.5 - 0.05
    }
    # Value of words from `at` on: "2.00 k" or "2.00 k/s".
    function scaled(at,  unit) {
        unit = substr($(at + 1), 1, 1)
        words = unit ~ /[kMG]/ ? 2 : 1
        return $at * (unit == "k" ? 1e3 : unit == "M" ? 1e6 : unit == "G" ? 1e9 : 1)
    }
    FILENAME == "/tmp/before" { old[FNR] = $2; next }
    FILENAME == "/tmp/after" {
        change = $2 - old[FNR]
        if (change) changed[$1] = change
        next
    }
    FILENAME == "/tmp/held" { held[$1] = $2; next }
    # The second report.
    /^uverbs top/ { report++; section = "ports" }
    report < 2 { next }
    /^changed counters/ { section = "counters"; next }
    / holder$/ { section = "holders"; for (i = 1; i < NF; i++) kind[i] = $i; next }
    section == "ports" && $1 == device {
        at = 4
        split("port_rcv_data port_rcv_packets port_xmit_data port_xmit_packets", name, " ")
        instead["port_rcv_packets"] = "rcvd_pkts"
        instead["port_xmit_packets"] = "sent_pkts"
        for (i = 1; i <= 4; i++) {
            if ($at == "-") { at++; continue }
            rate = scaled(at)
            at += words
            key = name[i] in changed ? name[i] : instead[name[i]]
            times = name[i] ~ /data/ ? 32 : 1
            if (!is(rate, changed[key] * times)) wrong("port: " name[i] " at " rate ": " changed[key])
            ports++
        }
    }
    section == "counters" && / port 1/ {
        # "2.00 k/s  NAME" or "2.0 /s  NAME".
        rate = scaled(1)
        key = $3
        lines++
        if (!(key in changed)) wrong(key " did not change")
        else if (!is(rate, changed[key])) wrong(key " at " rate ": " changed[key])
        seen[key]
    }
    section == "holders" && $0 ~ "pid " server " " {
        holders++
        for (i in kind)
            if (kind[i] in held && $i != held[kind[i]])
                wrong(kind[i] ": " $i ", rdma " held[kind[i]])
    }
    END {
        for (key in changed) if (!(key in seen)) wrong(key " changed by " changed[key])
        if (ports < 2 || lines < 2 || holders != 1) wrong(ports " rates, " lines " counters, " holders " holders")
        exit failed
    }
' /tmp/before /tmp/after /tmp/held /tmp/top || { cat /tmp/top /tmp/held; exit 1; }
