# One of perftest's programs by another script: SCRIPT ARGUMENTS... Two ends of perftest's own are
# run again. Before it reports, it compares the processor's counter with the time of day
# (get_clock.c), and gives up where the machine stood still meanwhile. With -R its server listens
# twice; a client that is there before the second time is rejected for an unknown service (8), and
# Debian's crashes as it tries again (perftest_communication.c, rdma_cm_client_connection).
out=/tmp/perftest.$$
for i in 1 2 3 4 5; do
    sh "$@" > $out 2>&1 && status=0 || status=$?
    cat $out
    [ $status -ne 0 ] || exit 0
    grep -q -e "Correlation coefficient" -e "EVENT_REJECTED; error: 8" $out || exit $status
done
exit $status
