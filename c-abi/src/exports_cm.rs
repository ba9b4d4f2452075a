//! librdmacm's names: see `exports.rs`. Sockets (`rsocket` and its like) aren't implemented.
#![allow(unsafe_code, reason = "assembly")]

use crate::cm::{channel, connect, device, endpoint, event, id, info, multicast, qp};
use crate::exports::node;
use crate::stubs;

node! { "RDMACM_1.0":
    raccept = stubs::no_number;
    rbind = stubs::no_number;
    rclose = stubs::no_number;
    rconnect = stubs::no_number;
    rdma_accept = connect::accept;
    rdma_ack_cm_event = event::ack_cm_event;
    rdma_bind_addr = id::bind_addr;
    rdma_connect = connect::connect;
    rdma_create_ep = endpoint::create_ep;
    rdma_create_event_channel = channel::create_event_channel;
    rdma_create_id = id::create_id;
    rdma_create_qp = qp::create_qp;
    rdma_create_qp_ex = qp::create_qp_ex;
    rdma_create_srq = qp::create_srq;
    rdma_create_srq_ex = qp::create_srq_ex;
    rdma_destroy_ep = endpoint::destroy_ep;
    rdma_destroy_event_channel = channel::destroy_event_channel;
    rdma_destroy_id = id::destroy_id;
    rdma_destroy_qp = qp::destroy_qp;
    rdma_destroy_srq = qp::destroy_srq;
    rdma_disconnect = connect::disconnect;
    rdma_event_str = event::event_str;
    rdma_free_devices = device::free_devices;
    rdma_freeaddrinfo = info::freeaddrinfo;
    rdma_get_cm_event = event::get_cm_event;
    rdma_get_devices = device::get_devices;
    rdma_get_dst_port = id::get_dst_port;
    rdma_get_request = endpoint::get_request;
    rdma_get_src_port = id::get_src_port;
    rdma_getaddrinfo = info::getaddrinfo;
    rdma_join_multicast = multicast::join_multicast;
    rdma_leave_multicast = multicast::leave_multicast;
    rdma_listen = connect::listen;
    rdma_migrate_id = id::migrate_id;
    rdma_notify = connect::notify;
    rdma_reject = connect::reject;
    rdma_resolve_addr = id::resolve_addr;
    rdma_resolve_route = id::resolve_route;
    rdma_set_option = id::set_option;
    rfcntl = stubs::no_number;
    rgetpeername = stubs::no_number;
    rgetsockname = stubs::no_number;
    rgetsockopt = stubs::no_number;
    riomap = stubs::no_number;
    riounmap = stubs::no_number;
    riowrite = stubs::no_number;
    rlisten = stubs::no_number;
    rpoll = stubs::no_number;
    rread = stubs::no_number;
    rreadv = stubs::no_number;
    rrecv = stubs::no_number;
    rrecvfrom = stubs::no_number;
    rrecvmsg = stubs::no_number;
    rselect = stubs::no_number;
    rsend = stubs::no_number;
    rsendmsg = stubs::no_number;
    rsendto = stubs::no_number;
    rsetsockopt = stubs::no_number;
    rshutdown = stubs::no_number;
    rsocket = stubs::no_number;
    rwrite = stubs::no_number;
    rwritev = stubs::no_number;
}

node! { "RDMACM_1.1":
    rdma_join_multicast_ex = multicast::join_multicast_ex;
}

node! { "RDMACM_1.2":
    rdma_establish = connect::establish;
    rdma_init_qp_attr = connect::init_qp_attr;
}

node! { "RDMACM_1.3":
    rdma_get_remote_ece = connect::ece;
    rdma_reject_ece = connect::reject_ece;
    rdma_set_local_ece = connect::ece;
}

node! { "RDMACM_1.4":
    rdma_query_addrinfo = stubs::no_number;
    rdma_resolve_addrinfo = stubs::no_number;
    rdma_write_cm_event = stubs::no_number;
}

node! { "RDMACM_1.5":
    repoll_create = stubs::no_number;
    repoll_ctl = stubs::no_number;
    repoll_wait = stubs::no_number;
}
