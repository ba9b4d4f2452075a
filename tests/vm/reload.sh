# Takes the mlx5 drivers out and puts them in again, twice: the devices must come back each time.
# Without the 6000 keys that the driver prepares for each device (profile 2, the usual one), and
# takes back one by one: once is enough.
set -e
for i in 1 2; do
    rmmod mlx5_ib
    rmmod mlx5_core
    insmod /vm/modules/mlx5_core.ko prof_sel=0
    insmod /vm/modules/mlx5_ib.ko
    sh /vm/setup-b.sh
done
