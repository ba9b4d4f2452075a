# A server and its client: SERVER ARGUMENTS... -- CLIENT ARGUMENTS... What CLIENT_IN says stands
# before the client, such as another network namespace. ENDLESS says that the server never ends.
set -e
. /vm/ready.sh
server=
while [ "$1" != -- ]; do
    server="$server $1"
    shift
done
shift
$server &
trap 'kill $! 2> /dev/null || :' EXIT
served $!
$CLIENT_IN "$@"
[ -n "$ENDLESS" ] || wait $!
