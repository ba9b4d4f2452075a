# A server that nothing tells of until it is asked, and its client: SERVER ARGUMENTS... -- CLIENT ARGUMENTS...
# Sockets of datagrams listen at a UDP port, which /proc/net/udp shows.
set -e
. /vm/ready.sh
server=
while [ "$1" != -- ]; do
    server="$server $1"
    shift
done
shift
is_bound() { grep -q ":1C07 " /proc/net/udp; } # port 7175
$server &
trap 'kill $! 2> /dev/null || :' EXIT
wait_for "a server" is_bound
"$@"
wait $!
