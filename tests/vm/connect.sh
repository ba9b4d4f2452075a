# A server and its client: SERVER ARGUMENTS... -- CLIENT ARGUMENTS...
set -e
server=
while [ "$1" != -- ]; do
    server="$server $1"
    shift
done
shift
$server &
sleep 1
"$@"
wait $!
