# Worlds B and E: mlx5_0, which the software HCA serves. Its network device, if it has one, is set up, and so has GIDs.
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
# That of the IPv4 address, over UDP.
[ ! -e /sys/class/infiniband/mlx5_0/device/net ] || wait_for "GID 3 of mlx5_0" has_gid mlx5_0 3
