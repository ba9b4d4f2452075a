# A server and its client that meet by a name: PROGRAM ARGUMENTS...
set -e
echo "10.0.0.1 server.test" >> /etc/hosts
sh /vm/connect.sh "$@" --server --bind server.test -- "$@" server.test
