# Takes the mlx5 drivers out and puts them in again, twice: the device must come back each time.
set -e
for i in 1 2; do
    rmmod mlx5_ib
    rmmod mlx5_core
    insmod /vm/modules/mlx5_core.ko
    insmod /vm/modules/mlx5_ib.ko
    sh /vm/setup-b.sh
done
