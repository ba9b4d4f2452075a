# A network namespace with two interfaces, which any user may create. A program gets their MTU and
# MAC addresses for its ports.
#   unshare --map-root-user --net sh two_ports.sh PROGRAM...
set -e
ip link add port0 type veth peer name port1
ip link set port0 up
ip link set port1 up
exec "$@"
