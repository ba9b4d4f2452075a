# A program of rdma_cm's between mlx5_0 and mlx5_1, each of them once as server: rping or ucmatose.
set -e

# Packets that a device's QP1 has sent: that connection management went over both is seen there.
sent() { /usr/bin/rdma resource show qp link mlx5_$1/1 lqpn 1 | sed -n 's/.*sq-psn \([0-9]*\).*/\1/p'; }

for n in 0 1; do
    server=10.0.0.$((n + 1))
    client=10.0.0.$((2 - n))
    before="$(sent 0) $(sent 1)"
    case $1 in
    rping) sh /vm/connect.sh rping -s -a $server -C 5 -- rping -c -a $server -I $client -C 5 ;;
    ucmatose) sh /vm/connect.sh ucmatose -b $server -- ucmatose -s $server -b $client ;;
    esac
    echo "from $client to $server: QP1 sent $before, now $(sent 0) $(sent 1)"
    set -- $1 $before
    # Each alone: a shell forgives what fails before an &&.
    [ $(sent 0) -gt $2 ]
    [ $(sent 1) -gt $3 ]
done
