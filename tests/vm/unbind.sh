# The driver is taken from mlx5_1 by PROGRAM's tests, one at a time, and is given back after each:
# PROGRAM
set -e
device=$(readlink -f /sys/class/infiniband/mlx5_1/device)
device=${device##*/}
for test in $("$1" --list --format terse | sed -n 's/: test$//p'); do
    UVERBS_TEST_UNBIND=mlx5_1 "$1" --exact "$test"
    [ ! -e /sys/class/infiniband/mlx5_1 ] || { echo "$test took no driver"; exit 1; }
    echo "$device" > /sys/bus/pci/drivers/mlx5_core/bind
    sh /vm/setup-b.sh
done
