# A region of 128 MiB, registered by the driver in several pieces, and all of it there and back,
# compared.
set -e
. /vm/ready.sh
pingpong="ibv_rc_pingpong -d mlx5_0 -e -c -n 2 -s 134217728"
$pingpong &
# To fill and register it takes seconds under emulation.
seconds=60
served
$pingpong 127.0.0.1
wait $!
