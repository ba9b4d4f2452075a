//! Calls that create objects, and their destruction.
#![allow(unsafe_code, reason = "calls functions of C")]

use std::ffi::c_void;
use std::ptr::null_mut;

use super::feed::Feed;
use super::world::World;
use super::{edit, odd};
use crate::device::counters;
use crate::device::devx;
use crate::memory::dm;
use crate::memory::mr;
use crate::memory::mw;
use crate::memory::parent_domain;
use crate::memory::pd;
use crate::queues::ah;
use crate::queues::channel;
use crate::queues::flow;
use crate::queues::make_cq;
use crate::queues::make_qp;
use crate::queues::rss;
use crate::queues::srq;
use crate::queues::wq;
use crate::queues::xrcd;
use crate::sys::*;

/// `enum ibv_qp_type`: RC, UC, UD, RAW_PACKET, XRC_SEND, XRC_RECV, DRIVER.
const QP_TYPES: [u32; 7] = [2, 3, 4, 8, 9, 10, 0xff];
/// `IBV_QP_INIT_ATTR_*` that name an indirection table.
const OF_TABLES: u32 = 16 | 32;

pub(super) fn any(world: &mut World, feed: &mut Feed<'_>) {
    // SAFETY: C's contract is kept, as the head of `mod.rs` says.
    unsafe {
        match feed.below(18) {
            0 => world.end_one(feed),
            1 if world.pds.has_room() => world.pds.keep(pd::alloc_pd(world.context)),
            2 => queue(world, feed),
            3 | 4 => queue_pair(world, feed),
            5 | 6 => region(world, feed),
            7 => address(world, feed),
            8 => shared(world, feed),
            9 => window(world, feed),
            10 if world.channels.has_room() => {
                world.channels.keep(channel::create_comp_channel(world.context));
            }
            11 => device_memory(world, feed),
            12 => work_queue(world, feed),
            13 => rule(world, feed),
            14 if world.counters.has_room() => {
                let attr = ibv_counters_init_attr { comp_mask: odd(feed, 0) };
                world.counters.keep(counters::create_counters(world.context, &attr));
            }
            15 => domain(world, feed),
            16 => of_the_device(world, feed),
            17 if world.xrcds.has_room() => {
                let comp_mask = odd(feed, 3);
                let (fd, oflags) = (-1, odd(feed, libc::O_CREAT as u32) as i32);
                let attr = ibv_xrcd_init_attr { comp_mask, fd, oflags };
                world.xrcds.keep(xrcd::open_xrcd(world.context, &attr));
            }
            _ => {}
        }
    }
}

/// Size of a queue, mostly small.
fn size(feed: &mut Feed<'_>) -> u32 {
    let few = u32::from(feed.u8() % 40);
    odd(feed, few)
}

unsafe fn queue(world: &mut World, feed: &mut Feed<'_>) {
    let channel = world.channels.any_or_null(feed);
    // SAFETY: by C's contract (`mod.rs`).
    unsafe {
        if feed.below(2) == 0 && world.cqs.has_room() {
            let (cqe, vector) = (size(feed) as i32, odd(feed, 0) as i32);
            let made = make_cq::create_cq(world.context, cqe, null_mut(), channel, vector);
            return world.cqs.keep(made);
        }
        let mut attr = ibv_cq_init_attr_ex {
            cqe: size(feed),
            cq_context: null_mut(),
            channel,
            comp_vector: odd(feed, 0),
            wc_flags: odd(feed, 0x7f).into(),
            comp_mask: odd(feed, 0),
            flags: odd(feed, 1),
            parent_domain: world.pds.any_or_null(feed),
        };
        if world.extended.has_room() {
            world.extended.keep(make_cq::create_cq_ex(world.context, &mut attr));
        }
    }
}

unsafe fn queue_pair(world: &mut World, feed: &mut Feed<'_>) {
    let Some(pd) = world.pds.any(feed).filter(|_| world.qps.has_room()) else { return };
    let cq = |feed: &mut Feed<'_>| match feed.u8() % 2 {
        0 => world.cqs.any_or_null(feed),
        _ => world.extended.any_or_null(feed).cast(),
    };
    let (send_cq, recv_cq) = (cq(feed), cq(feed));
    let usual = QP_TYPES[feed.below(QP_TYPES.len())];
    let mut key = [0_u8; 256];
    let table = world.tables.any(feed);
    let mut attr = ibv_qp_init_attr_ex {
        qp_context: null_mut(),
        send_cq,
        recv_cq,
        srq: if feed.below(4) == 0 { world.srqs.any_or_null(feed) } else { null_mut() },
        cap: ibv_qp_cap {
            max_send_wr: size(feed),
            max_recv_wr: size(feed),
            max_send_sge: odd(feed, 2),
            max_recv_sge: odd(feed, 2),
            max_inline_data: odd(feed, 64),
        },
        qp_type: odd(feed, usual),
        sq_sig_all: (feed.u8() & 1).into(),
        comp_mask: odd(feed, 1 | 64),
        pd,
        xrcd: null_mut(),
        create_flags: odd(feed, 0),
        max_tso_header: 0,
        rwq_ind_tbl: table.map_or(null_mut(), |table| table.cast()),
        rx_hash_conf: ibv_rx_hash_conf {
            rx_hash_function: odd(feed, 1) as u8,
            rx_hash_key_len: odd(feed, 40) as u8,
            rx_hash_key: key.as_mut_ptr(),
            rx_hash_fields_mask: odd(feed, 3).into(),
        },
        source_qpn: odd(feed, 0),
        send_ops_flags: odd(feed, 0x1ff).into(),
    };
    match table {
        // Clears the mask bits of an absent table: a set bit promises a valid pointer.
        None => attr.comp_mask &= !OF_TABLES,
        Some(_) if feed.below(2) == 0 => attr.comp_mask = 1 | OF_TABLES,
        Some(_) => {}
    }
    match world.xrcds.any(feed) {
        None => attr.comp_mask &= !2,
        Some(xrcd) => {
            attr.xrcd = xrcd;
            if attr.qp_type == 10 {
                attr.comp_mask |= 2;
            }
        }
    }
    // SAFETY: by C's contract (`mod.rs`).
    world.qps.keep(unsafe {
        match feed.u8() % 3 {
            0 => {
                let ibv_qp_init_attr_ex { cap, qp_type, sq_sig_all, srq, .. } = attr;
                let mut attr = ibv_qp_init_attr {
                    qp_context: null_mut(),
                    send_cq,
                    recv_cq,
                    srq,
                    cap,
                    qp_type,
                    sq_sig_all,
                };
                make_qp::create_qp(pd, &mut attr)
            }
            _ => make_qp::create_qp_ex(world.context, &mut attr),
        }
    });
}

unsafe fn region(world: &mut World, feed: &mut Feed<'_>) {
    let Some(pd) = world.pds.any(feed).filter(|_| world.mrs.has_room()) else { return };
    let (addr, len) = world.bytes(feed);
    let access = odd(feed, 0xf);
    // The kernel refuses to register more memory than exists.
    let len = if feed.below(8) == 0 { odd(feed, 0) as usize } else { len };
    // SAFETY: by C's contract (`mod.rs`); the memory outlives the run's regions.
    world.mrs.keep(unsafe {
        match (feed.below(4), world.dms.any(feed)) {
            (0, _) => mr::reg_mr_iova(pd, addr.cast(), len, odd(feed, 0).into(), access),
            (1, _) => mr::alloc_null_mr(pd),
            (2, Some(dm)) => mr::reg_dm_mr(pd, dm, odd(feed, 0).into(), len, access),
            _ => mr::reg_mr(pd, addr.cast(), len, access),
        }
    });
}

/// A nearly valid address vector.
fn vector(feed: &mut Feed<'_>) -> ibv_ah_attr {
    let mut attr = ibv_ah_attr { dlid: 1, port_num: 1, ..Default::default() };
    edit(feed, &mut attr);
    attr
}

unsafe fn address(world: &mut World, feed: &mut Feed<'_>) {
    let Some(pd) = world.pds.any(feed).filter(|_| world.ahs.has_room()) else { return };
    let attr = vector(feed);
    // SAFETY: by C's contract (`mod.rs`).
    world.ahs.keep(unsafe {
        if feed.below(4) != 0 {
            ah::create_ah(pd, &attr)
        } else {
            let (mut wc, mut grh) = (ibv_wc::default(), ibv_grh::default());
            (wc.slid, wc.wc_flags) = (1, odd(feed, 0));
            edit(feed, &mut wc);
            edit(feed, &mut grh);
            ah::create_ah_from_wc(pd, &wc, &grh, odd(feed, 1) as u8)
        }
    });
}

unsafe fn shared(world: &mut World, feed: &mut Feed<'_>) {
    let Some(pd) = world.pds.any(feed).filter(|_| world.srqs.has_room()) else { return };
    let attr = ibv_srq_attr { max_wr: size(feed), max_sge: odd(feed, 1), srq_limit: odd(feed, 0) };
    let mut init = ibv_srq_init_attr_ex {
        srq_context: null_mut(),
        attr,
        comp_mask: odd(feed, 3),
        srq_type: odd(feed, 0),
        pd,
        xrcd: null_mut(),
        cq: null_mut(),
        tm_cap: ibv_tm_cap { max_num_tags: odd(feed, 4), max_ops: odd(feed, 4) },
    };
    match (world.xrcds.any(feed), world.extended.any(feed)) {
        (Some(xrcd), Some(cq)) => (init.xrcd, init.cq) = (xrcd, cq.cast()),
        // Clears the mask bits of absent objects: a set bit promises a valid pointer.
        _ => init.comp_mask &= !(4 | 8),
    }
    // SAFETY: by C's contract (`mod.rs`).
    world.srqs.keep(unsafe { srq::create_srq_ex(world.context, &mut init) });
}

unsafe fn window(world: &mut World, feed: &mut Feed<'_>) {
    let Some(pd) = world.pds.any(feed).filter(|_| world.mws.has_room()) else { return };
    let kind = 1 + u32::from(feed.u8() & 1);
    // SAFETY: by C's contract (`mod.rs`).
    world.mws.keep(unsafe { mw::alloc_mw(pd, odd(feed, kind)) });
}

unsafe fn device_memory(world: &mut World, feed: &mut Feed<'_>) {
    let attr = ibv_alloc_dm_attr {
        length: size(feed) as usize,
        log_align_req: odd(feed, 0),
        comp_mask: odd(feed, 0),
    };
    if world.dms.has_room() {
        // SAFETY: by C's contract (`mod.rs`).
        world.dms.keep(unsafe { dm::alloc_dm(world.context, &attr) });
    }
}

/// Creates a work queue, or an indirection table.
unsafe fn work_queue(world: &mut World, feed: &mut Feed<'_>) {
    // SAFETY: by C's contract (`mod.rs`).
    unsafe {
        if feed.below(3) == 0 && world.tables.has_room() {
            let Some(first) = world.wqs.any(feed) else { return };
            let log_ind_tbl_size = feed.u8() % 3;
            let queues = [first; 4].map(|first| world.wqs.any(feed).unwrap_or(first));
            let attr = ibv_rwq_ind_table_init_attr {
                log_ind_tbl_size: log_ind_tbl_size.into(),
                ind_tbl: queues.as_ptr(),
                comp_mask: odd(feed, 0),
            };
            return world.tables.keep(rss::create_rwq_ind_table(world.context, &attr));
        }
        let (Some(pd), Some(cq)) = (world.pds.any(feed), world.cqs.any(feed)) else { return };
        let mut attr = ibv_wq_init_attr {
            wq_context: null_mut(),
            wq_type: odd(feed, 0),
            max_wr: size(feed),
            max_sge: odd(feed, 1),
            pd,
            cq,
            comp_mask: odd(feed, 0),
            create_flags: odd(feed, 0),
        };
        if world.wqs.has_room() {
            world.wqs.keep(wq::create_wq(world.context, &mut attr));
        }
    }
}

/// Creates a flow rule of at most one specification, with the right length.
unsafe fn rule(world: &mut World, feed: &mut Feed<'_>) {
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Rule {
        attr: ibv_flow_attr,
        kind: u32,
        size: u16,
        filter: [u8; 58],
    }
    let Some(qp) = world.qps.any(feed).filter(|_| world.flows.has_room()) else { return };
    let kinds = [0x20, 0x30, 0x31, 0x32, 0x40, 0x41, 0x50, 0x1000, 0x1001];
    let kind = kinds[feed.below(kinds.len())];
    let mut rule = Rule {
        attr: ibv_flow_attr {
            comp_mask: odd(feed, 0),
            r#type: odd(feed, 0),
            size: size_of::<Rule>() as u16,
            priority: odd(feed, 0) as u16,
            num_of_specs: feed.u8() & 1,
            port: odd(feed, 1) as u8,
            flags: odd(feed, 0),
        },
        kind: odd(feed, kind),
        size: [40, 16, 24, 64][feed.below(4)],
        filter: [0; 58],
    };
    edit(feed, &mut rule.filter);
    // SAFETY: by C's contract (`mod.rs`); the specification lies within.
    world.flows.keep(unsafe { flow::create_flow(qp, (&raw mut rule).cast()) });
}

/// Creates a thread domain, or a parent domain.
unsafe fn domain(world: &mut World, feed: &mut Feed<'_>) {
    // SAFETY: by C's contract (`mod.rs`).
    unsafe {
        if feed.below(2) == 0 && world.tds.has_room() {
            let attr = ibv_td_init_attr { comp_mask: odd(feed, 0) };
            return world.tds.keep(parent_domain::alloc_td(world.context, &attr));
        }
        let attr = ibv_parent_domain_init_attr {
            pd: world.pds.any_or_null(feed),
            td: world.tds.any_or_null(feed),
            comp_mask: odd(feed, 0),
            alloc: None,
            free: None,
            pd_context: null_mut(),
        };
        if world.pds.has_room() {
            world.pds.keep(parent_domain::alloc_parent_domain(world.context, &attr));
        }
    }
}

/// Creates objects of `mlx5dv.h`: DEVX memory, and objects by any command.
unsafe fn of_the_device(world: &mut World, feed: &mut Feed<'_>) {
    let (addr, len) = world.bytes(feed);
    let request = feed.bytes(256).to_vec();
    let mut answer = [0_u8; 64];
    let out: *mut c_void = answer.as_mut_ptr().cast();
    // SAFETY: by C's contract (`mod.rs`).
    unsafe {
        let (from, bytes) = (request.as_ptr().cast(), request.len());
        match feed.below(3) {
            0 if world.umems.has_room() => {
                let access = odd(feed, 7);
                world.umems.keep(devx::umem_reg(world.context, addr.cast(), len, access));
            }
            1 if world.objects.has_room() => {
                let made = devx::obj_create(world.context, from, bytes, out, answer.len());
                world.objects.keep(made);
            }
            _ => {
                let code = devx::general_cmd(world.context, from, bytes, out, answer.len());
                super::checked("devx_general_cmd", code);
            }
        }
    }
}
