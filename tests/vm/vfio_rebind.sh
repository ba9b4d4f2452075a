# Gives the function of vfio-pci back to mlx5_core and takes it again, COUNT times. Each driver finds
# the function as after a reset, which is the function's own (FLR).
set -e
. /vm/ready.sh
device=$(readlink -f /sys/bus/pci/drivers/vfio-pci/*:*)
device=${device##*/}
grep -qw flr /sys/bus/pci/devices/$device/reset_method
for i in $(seq $1); do
    uverbs vfio unbind $device --yes > /dev/null
    present mlx5_1
    uverbs vfio bind $device --yes > /dev/null
    [ ! -e /sys/class/infiniband/mlx5_1 ]
    # A probe that is killed leaves its objects, which the next owner doesn't see.
    uverbs vfio probe vfio:$device > /tmp/killed &
    sleep 0.$i
    kill -9 $! 2> /dev/null || :
    wait $! || :
    uverbs vfio probe vfio:$device
done
