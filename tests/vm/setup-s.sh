# World S: siw0 and siw1 at the two ends of a veth pair, in one network namespace. (In busybox's
# shell its own applets come before /usr/bin: hence the paths.)
set -e
echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad
/usr/bin/ip link set lo up
/usr/bin/ip link add v0 address 02:00:00:00:00:01 type veth peer name v1 address 02:00:00:00:00:02
for n in 0 1; do
    /usr/bin/ip addr add 10.0.0.$((n + 1))/24 dev v$n
    /usr/bin/ip link set v$n up
done
# A device's port is active if its interface has a carrier when it is made (kernel `siw_main.c`,
# `siw_newlink`), and so both ends are up before.
for n in 0 1; do
    /usr/bin/rdma link add siw$n type siw netdev v$n
done
. /vm/ready.sh
for n in 0 1; do
    present siw$n
    # Its GID is there from the beginning: the interface's MAC.
    wait_for "an active port of siw$n" is_active siw$n
done
