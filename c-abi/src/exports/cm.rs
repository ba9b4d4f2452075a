//! Exported names of librdmacm: see `exports.rs`.
#![allow(unsafe_code, reason = "assembly")]

use crate::cm::addrinfo;
use crate::cm::channel;
use crate::cm::connect;
use crate::cm::delivery;
use crate::cm::device;
use crate::cm::ece;
use crate::cm::endpoint;
use crate::cm::event;
use crate::cm::info;
use crate::cm::lifetime;
use crate::cm::multicast;
use crate::cm::qp;
use crate::cm::resolve;
use crate::exports::verbs::node;
use crate::rsocket;

node! { "RDMACM_1.0":
    raccept = rsocket::connect::raccept;
    rbind = rsocket::connect::rbind;
    rclose = rsocket::connect::rclose;
    rconnect = rsocket::connect::rconnect;
    rdma_accept = connect::accept;
    rdma_ack_cm_event = event::ack_cm_event;
    rdma_bind_addr = resolve::bind_addr;
    rdma_connect = connect::connect;
    rdma_create_ep = endpoint::create_ep;
    rdma_create_event_channel = channel::create_event_channel;
    rdma_create_id = lifetime::create_id;
    rdma_create_qp = qp::create_qp;
    rdma_create_qp_ex = qp::create_qp_ex;
    rdma_create_srq = qp::create_srq;
    rdma_create_srq_ex = qp::create_srq_ex;
    rdma_destroy_ep = endpoint::destroy_ep;
    rdma_destroy_event_channel = channel::destroy_event_channel;
    rdma_destroy_id = lifetime::destroy_id;
    rdma_destroy_qp = qp::destroy_qp;
    rdma_destroy_srq = qp::destroy_srq;
    rdma_disconnect = connect::disconnect;
    rdma_event_str = event::event_str;
    rdma_free_devices = device::free_devices;
    rdma_freeaddrinfo = info::freeaddrinfo;
    rdma_get_cm_event = delivery::get_cm_event;
    rdma_get_devices = device::get_devices;
    rdma_get_dst_port = resolve::get_dst_port;
    rdma_get_request = endpoint::get_request;
    rdma_get_src_port = resolve::get_src_port;
    rdma_getaddrinfo = info::getaddrinfo;
    rdma_join_multicast = multicast::join_multicast;
    rdma_leave_multicast = multicast::leave_multicast;
    rdma_listen = connect::listen;
    rdma_migrate_id = lifetime::migrate_id;
    rdma_notify = connect::notify;
    rdma_reject = connect::reject;
    rdma_resolve_addr = resolve::resolve_addr;
    rdma_resolve_route = resolve::resolve_route;
    rdma_set_option = resolve::set_option;
    rfcntl = rsocket::options::rfcntl;
    rgetpeername = rsocket::connect::rgetpeername;
    rgetsockname = rsocket::connect::rgetsockname;
    rgetsockopt = rsocket::options::rgetsockopt;
    riomap = rsocket::mapping::riomap;
    riounmap = rsocket::mapping::riounmap;
    riowrite = rsocket::mapping::riowrite;
    rlisten = rsocket::connect::rlisten;
    rpoll = rsocket::poll::rpoll;
    rread = rsocket::transfer::rread;
    rreadv = rsocket::transfer::rreadv;
    rrecv = rsocket::transfer::rrecv;
    rrecvfrom = rsocket::transfer::rrecvfrom;
    rrecvmsg = rsocket::transfer::rrecvmsg;
    rselect = rsocket::poll::rselect;
    rsend = rsocket::transfer::rsend;
    rsendmsg = rsocket::transfer::rsendmsg;
    rsendto = rsocket::transfer::rsendto;
    rsetsockopt = rsocket::options::rsetsockopt;
    rshutdown = rsocket::connect::rshutdown;
    rsocket = rsocket::connect::rsocket;
    rwrite = rsocket::transfer::rwrite;
    rwritev = rsocket::transfer::rwritev;
}

node! { "RDMACM_1.1":
    rdma_join_multicast_ex = multicast::join_multicast_ex;
}

node! { "RDMACM_1.2":
    rdma_establish = connect::establish;
    rdma_init_qp_attr = connect::init_qp_attr;
}

node! { "RDMACM_1.3":
    rdma_get_remote_ece = ece::get_remote_ece;
    rdma_reject_ece = connect::reject_ece;
    rdma_set_local_ece = ece::set_local_ece;
}

node! { "RDMACM_1.4":
    rdma_query_addrinfo = addrinfo::query_addrinfo;
    rdma_resolve_addrinfo = addrinfo::resolve_addrinfo;
    rdma_write_cm_event = addrinfo::write_cm_event;
}

node! { "RDMACM_1.5":
    repoll_create = rsocket::epoll::repoll_create;
    repoll_ctl = rsocket::epoll::repoll_ctl;
    repoll_wait = rsocket::epoll::repoll_wait;
}
