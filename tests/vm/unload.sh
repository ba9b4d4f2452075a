# mlx5_core gives mlx5_0 up in order. A machine that powers off ends it by a fast teardown.
set -e
device=$(readlink -f /sys/class/infiniband/mlx5_0/device)
echo ${device##*/} > /sys/bus/pci/drivers/mlx5_core/unbind
[ ! -e /sys/class/infiniband/mlx5_0 ]
