# What Linux shows of the device's counters is what happened: DEVICE.
set -e
port=/sys/class/infiniband/$1/ports/1
# Linux asks again after ten milliseconds.
count() { sleep 0.1; cat "$port/$1"; }
differs() { [ $(($(count "$1") - $2)) -eq "$3" ] || { echo "$1: $2, and then $(count "$1"), not $3 more"; exit 1; }; }

writes=$(count hw_counters/rx_write_requests)
atomics=$(count hw_counters/rx_atomic_requests)
reads=$(count hw_counters/rx_read_requests)
packets=$(count counters/port_xmit_packets)
words=$(count counters/port_xmit_data)
errors=$(count hw_counters/req_cqe_error)
# Each side does so many, and verifies the others.
uverbs pingpong -d "$1" --opcode write -n 100 --warmup 0
differs hw_counters/rx_write_requests "$writes" 200
uverbs pingpong -d "$1" --opcode fetch-add -n 50 --warmup 0
differs hw_counters/rx_atomic_requests "$atomics" 100
uverbs pingpong -d "$1" --opcode read -n 30 --warmup 0
differs hw_counters/rx_read_requests "$reads" 60
differs hw_counters/rx_write_requests "$writes" 200
differs hw_counters/req_cqe_error "$errors" 0
# A request and its acknowledgement each, all of which come back.
differs counters/port_xmit_packets "$packets" 720
[ "$(count counters/port_rcv_packets)" = "$(count counters/port_xmit_packets)" ]
[ "$(count counters/port_rcv_data)" = "$(count counters/port_xmit_data)" ]
[ "$(count counters/port_xmit_data)" -gt "$words" ]
[ "$(count counters/symbol_error)" = 0 ]
