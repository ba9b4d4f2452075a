# iSER target with a disk of 16 MiB, for the rows of programs.txt.
tgtd -f --iscsi portal=10.9.0.1:3260 --iser port=3260,pool_sz_mb=64 &
daemon=$!
trap 'kill -9 $daemon' TERM
id=iqn.2001-04.com.example:disk
until tgtadm --lld iser --mode target --op new --tid 1 --targetname $id; do sleep 0.1; done
tgtadm --lld iser --mode logicalunit --op new --tid 1 --lun 1 --backing-store /tmp/disk
tgtadm --lld iser --mode target --op bind --tid 1 --initiator-address ALL
# iSER logins need the initiator's name, too (tgt's iqn_acl).
tgtadm --lld iser --mode target --op bind --tid 1 \
    --initiator-name iqn.2007-10.com.github:sahlberg:libiscsi:iscsi-inq
wait
