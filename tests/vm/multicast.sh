# A receiver of a multicast group and a sender to it: RECEIVER ARGUMENTS... -- SENDER ARGUMENTS...
set -e
echo "10.0.0.1 server.test" >> /etc/hosts
receiver=
while [ "$1" != -- ]; do
    receiver="$receiver $1"
    shift
done
shift
$receiver &
# Nothing in the guest tells that the receiver has joined.
sleep 3
"$@"
wait $!
