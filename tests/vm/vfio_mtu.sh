# Runs a program while the ports of mlx5_0 and of the function of vfio-pci have this MTU: BYTES PROGRAM
# ARGUMENTS...
set -e
net=$(echo /sys/class/infiniband/mlx5_0/device/net/*)
/usr/bin/ip link set ${net##*/} mtu $1
export OPTIONS=,mtu=$1
shift
trap '/usr/bin/ip link set ${net##*/} mtu 1500' EXIT
"$@"
