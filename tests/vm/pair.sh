# A program of the C stack as server and as client, on one device: PROGRAM ARGUMENTS...
set -e
. /vm/ready.sh
"$@" &
trap 'kill $! 2> /dev/null || :' EXIT
served
"$@" 127.0.0.1
wait $!
