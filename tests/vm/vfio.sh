# Runs a program with the name of the function that vfio-pci has last: PROGRAM ARGUMENTS...
set -e
function=$(readlink -f /sys/bus/pci/drivers/vfio-pci/*:*)
exec "$@" vfio:${function##*/}
