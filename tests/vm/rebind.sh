# Takes the driver from mlx5_1 and gives it back: mlx5_0 goes on meanwhile, and then they reach each
# other again. It runs PROGRAM ARGUMENTS...
set -e
device=$(readlink -f /sys/class/infiniband/mlx5_1/device)
device=${device##*/}
echo $device > /sys/bus/pci/drivers/mlx5_core/unbind
[ ! -e /sys/class/infiniband/mlx5_1 ]
sh /vm/connect.sh "$@" -d mlx5_0 -- "$@" -d mlx5_0 127.0.0.1
echo $device > /sys/bus/pci/drivers/mlx5_core/bind
sh /vm/setup-b.sh
sh /vm/two.sh "$@"
