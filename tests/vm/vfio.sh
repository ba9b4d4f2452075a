# Runs a program; FUNCTION in its words is the name of the function of vfio-pci: PROGRAM ARGUMENTS...
# For programs of C on our library it has the address 10.0.0.3.
set -e
function=$(readlink -f /sys/bus/pci/drivers/vfio-pci/*:*)
function=vfio:${function##*/}
for word; do
    shift
    case $word in *FUNCTION*) word=${word%%FUNCTION*}$function${word#*FUNCTION} ;; esac
    set -- "$@" "$word"
done
export ON=$function,address=10.0.0.3/24 OURS=10.0.0.3
exec "$@"
