# COMMAND... while the port of hfi1_0 has a LID of more than 16 bits.
set -e
lid=/sys/module/rvt_loopback/parameters/lid
echo 0x12345 > $lid
trap 'echo 1 > $lid' EXIT
"$@"
