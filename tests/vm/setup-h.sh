# World H: hfi1_0, whose module made it when it was loaded.
set -e
. /vm/ready.sh
ready hfi1_0
