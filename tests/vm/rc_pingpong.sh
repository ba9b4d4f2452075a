# ibv_rc_pingpong between two devices: FROM TO GID-INDEX. Sleeping in poll (-e): two busy pollers starve each other.
set -e
ibv_rc_pingpong -e -n 100 -d $1 -g $3 &
sleep 0.5
ibv_rc_pingpong -e -n 100 -d $2 -g $3 127.0.0.1
wait $!
