# Programs of rdma_cm, one end on the C stack and the other on our library, both ways round:
#   LIBRARY NAME...
# Our library's end is at OURS, the address of the device that ON names, or both are at 10.0.0.1.
set -e
ours="sh /vm/ours.sh $1"
shift

# Server and client.
ends() {
    case $1 in
    cmtime) server="cmtime -b $at"; client="cmtime -s $at -c 20" ;;
    perftest) server="ib_send_bw -F -R -n 200"; client="$server $at" ;;
    perftest-lat) server="ib_write_lat -F -R -n 100"; client="$server $at" ;;
    rdma_client) server="rdma_server -s $at"; client="rdma_client -s $at" ;;
    rdma_xclient) server="rdma_xserver -c r"; client="rdma_xclient -s $at -c r" ;;
    riostream) server="riostream -b $at -S 4096 -C 50 -I 2 -T v"; client="riostream -s $at -S 4096 -C 50 -I 2 -T v" ;;
    rping) server="rping -s -a $at -C 20 -V -S 4096"; client="rping -c -a $at -C 20 -V -S 4096" ;;
    rstream) server="rstream -b $at -S 4096 -C 50 -I 2 -T v"; client="rstream -s $at -S 4096 -C 50 -I 2 -T v" ;;
    ucmatose) server="ucmatose -b $at -c 4 -C 20 -S 2048"; client="ucmatose -s $at -c 4 -C 20 -S 2048" ;;
    ucmatose-migrate) server="ucmatose -b $at -c 2 -m"; client="ucmatose -s $at -c 2 -m" ;;
    udaddy) server="udaddy -b $at -c 4 -C 20 -S 512"; client="udaddy -s $at -c 4 -C 20 -S 512" ;;
    *) echo "no program $1"; exit 1 ;;
    esac
}

for name in "$@"; do
    [ $name != cmtime ] || export ENDLESS=1
    case $name in
    perftest*) meet="sh /vm/perftest.sh /vm/connect.sh" ;;
    *) meet="sh /vm/connect.sh" ;;
    esac
    at=${OURS:-10.0.0.1}
    ends $name
    echo "== $name, the server on our library"
    $meet $ours $server -- $client
    at=10.0.0.1
    ends $name
    echo "== $name, the client on our library"
    $meet $server -- $ours $client
    unset ENDLESS
done
