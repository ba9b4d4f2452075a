# A program between the function of vfio-pci and mlx5_0, each of them once as server: PROGRAM
# ARGUMENTS... GID 1 of mlx5_0 is its link-local one over UDP. OPTIONS are the function's.
set -e
function=$(readlink -f /sys/bus/pci/drivers/vfio-pci/*:*)
function=vfio:${function##*/}$OPTIONS
sh /vm/connect.sh "$@" -d $function --server -- "$@" -d mlx5_0 -g 1 127.0.0.1
sh /vm/connect.sh "$@" -d mlx5_0 -g 1 --server -- "$@" -d $function 127.0.0.1
