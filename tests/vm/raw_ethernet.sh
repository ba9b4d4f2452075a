# One of perftest's programs for raw Ethernet as server and as client, on one port: PROGRAM
# ARGUMENTS... The server's flow rule is about the address that the client sends to.
set -e
here=02:00:00:00:00:01
there=02:00:00:00:00:02
"$@" --server -d mlx5_0 -B $here -E $there &
server=$!
trap 'kill $server 2> /dev/null || :' EXIT
sleep 3
"$@" --client -d mlx5_0 -B $there -E $here
wait $server
