# A program of the C stack on our library, and on the device that ON names: LIBRARY PROGRAM
# ARGUMENTS...
set -e
mkdir -p /tmp/ours
for name in libibverbs.so.1 libefa.so.1 libmlx5.so.1 librdmacm.so.1; do
    [ -e $1 ]
    ln -sf $1 /tmp/ours/$name
done
shift
[ -z "$ON" ] || export UVERBS_DEVICE=$ON
export LD_LIBRARY_PATH=/tmp/ours:$LD_LIBRARY_PATH
exec "$@"
