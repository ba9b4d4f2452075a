# World C: rxe0 and rxe1 at the two ends of a veth pair, in one network namespace. IPv4 reaches from
# a device to itself, IPv6 link-local addresses from one to the other. (In busybox's shell its own
# applets come before /usr/bin: hence the paths.)
set -e
# A link-local address is there at once.
echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad
/usr/bin/ip link set lo up
/usr/bin/ip link add v0 address 02:00:00:00:00:01 type veth peer name v1 address 02:00:00:00:00:02
for n in 0 1; do
    /usr/bin/ip addr add 10.0.0.$((n + 1))/24 dev v$n
    /usr/bin/ip link set v$n up
    /usr/bin/rdma link add rxe$n type rxe netdev v$n
done
. /vm/ready.sh
ready rxe0
ready rxe1
