# Ceph's monitor, manager and object store over async+rdma, each with a device of its own, and
# `rados bench`. For the rows of programs.txt.
set -e
export CEPH_CONF=/tmp/ceph/ceph.conf
mkdir -p /tmp/ceph/mon /tmp/ceph/osd /tmp/ceph/mgr /tmp/ceph/run
id=6b7a1c58-8f0b-4c4e-9a50-0d9a3f1f5e11
cat >$CEPH_CONF <<CONF
[global]
fsid = $id
mon_host = v1:127.0.0.1:6789
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
ms_type = async+rdma
ms_cluster_type = async+rdma
ms_public_type = async+rdma
ms_async_rdma_device_name = softhca_0
ms_async_rdma_buffer_size = 65536
ms_async_rdma_receive_buffers = 1024
ms_async_rdma_receive_queue_len = 256
ms_async_rdma_send_buffers = 512
ms_async_op_threads = 1
osd_pool_default_size = 1
osd_pool_default_min_size = 1
mon_allow_pool_size_one = true
mon_warn_on_pool_no_redundancy = false
osd_objectstore = memstore
memstore_device_bytes = 268435456
osd_crush_chooseleaf_type = 0
run_dir = /tmp/ceph/run
admin_socket = /tmp/ceph/run/\$name.asok
log_file =
log_to_stderr = true
err_to_stderr = true
log_to_syslog = false
mon_data = /tmp/ceph/mon
osd_data = /tmp/ceph/osd
mgr_data = /tmp/ceph/mgr
CONF
monmaptool --create --addv a v1:127.0.0.1:6789 --fsid $id /tmp/ceph/map
ceph-mon --mkfs -i a --monmap /tmp/ceph/map
ceph-mon -f -i a &
# A command may be refused while its client has no map of the monitors.
repeat() {
    until timeout 30 "$@"; do sleep 0.5; done
}
repeat ceph osd new $id 0
ceph-osd -i 0 --mkfs --osd-uuid $id
ceph-mgr -f -i x &
ceph-osd -f -i 0 &
repeat ceph osd pool create bench 8
until timeout 30 ceph osd stat | grep '1 up'; do sleep 0.5; done
timeout 60 rados bench -p bench 3 write -t 4 -b 65536 --no-cleanup
timeout 60 rados bench -p bench 2 seq -t 4
repeat ceph -s
kill -9 $(jobs -p)
