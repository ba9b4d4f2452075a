# World V: mlx5_0 stays with the kernel, the function of mlx5_1 goes to vfio-pci.
set -e
sh /vm/setup-b.sh
device=$(readlink -f /sys/class/infiniband/mlx5_1/device)
uverbs vfio bind ${device##*/} --yes
