# ibv_rc_pingpong between two devices: FROM TO GID-INDEX. Sleeping in poll (-e): two busy pollers
# starve each other.
set -e
. /vm/ready.sh
ibv_rc_pingpong -e -n 100 -d $1 -g $3 &
served
ibv_rc_pingpong -e -n 100 -d $2 -g $3 127.0.0.1
wait $!
