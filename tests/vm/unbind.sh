# The driver is taken from mlx5_1 by tests of PROGRAM, one at a time, and is given back after each:
#   PROGRAM FILTER
set -e
device=$(readlink -f /sys/class/infiniband/mlx5_1/device)
device=${device##*/}
tests=$("$1" "$2" --list --format terse | sed -n 's/: test$//p')
[ -n "$tests" ] || { echo "$1 has no test $2"; exit 1; }
for test in $tests; do
    UVERBS_TEST_UNBIND=mlx5_1 "$1" --exact "$test"
    [ ! -e /sys/class/infiniband/mlx5_1 ] || { echo "$test took no driver"; exit 1; }
    echo "$device" > /sys/bus/pci/drivers/mlx5_core/bind
    sh /vm/setup-b.sh
done
