# Worlds B and E: mlx5_0 and mlx5_1, which the software HCA serves, on one wire. Network devices, if
# they have any, are set up, and so have GIDs.
set -e
. /vm/ready.sh
/usr/bin/ip link set lo up
for n in 0 1; do
    present mlx5_$n
    for path in /sys/class/infiniband/mlx5_$n/device/net/*; do
        [ -e "$path" ] || continue
        /usr/bin/ip addr replace 10.0.0.$((n + 1))/24 dev "${path##*/}"
        /usr/bin/ip link set "${path##*/}" up
        # Both are in this namespace, and Linux doesn't answer itself when it asks for an address.
        /usr/bin/ip neigh replace 10.0.0.$((2 - n)) lladdr 02:ca:05:00:00:0$((2 - n)) dev "${path##*/}" nud permanent
    done
done
for n in 0 1; do
    ready mlx5_$n
    # That of the IPv4 address, over UDP.
    [ ! -e /sys/class/infiniband/mlx5_$n/device/net ] || wait_for "GID 3 of mlx5_$n" has_gid mlx5_$n 3
    # The devices are numbered as they were plugged in.
    grep -q "0$((n + 1))\$" /sys/class/infiniband/mlx5_$n/node_guid
done
