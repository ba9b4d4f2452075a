# World B: mlx5_0, which the software HCA serves. Its network device is set up, and so has GIDs.
set -e
. /vm/ready.sh
present mlx5_0
/usr/bin/ip link set lo up
for path in /sys/class/infiniband/mlx5_0/device/net/*; do
    [ -e "$path" ] || continue
    /usr/bin/ip addr add 10.0.0.1/24 dev "${path##*/}"
    /usr/bin/ip link set "${path##*/}" up
done
ready mlx5_0
