# A program of the C stack as server and as client, on one device: PROGRAM ARGUMENTS...
set -e
"$@" &
sleep 1
"$@" 127.0.0.1
wait $!
