# Runs a program with the name of the function that vfio-pci has last: PROGRAM ARGUMENTS...
set -e
for path in /sys/bus/pci/drivers/vfio-pci/*:*; do
    function=${path##*/}
done
exec "$@" vfio:$function
