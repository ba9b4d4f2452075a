//! Calls that modify and query objects.
#![allow(unsafe_code, reason = "calls functions of C")]

use std::mem::MaybeUninit;

use super::feed::Feed;
use super::world::World;
use super::{checked, edit, odd};
use crate::device::counters;
use crate::device::devx;
use crate::device::gid;
use crate::device::port;
use crate::device::query_device;
use crate::memory::mr;
use crate::queues::cq;
use crate::queues::ece;
use crate::queues::modify;
use crate::queues::qp;
use crate::queues::srq;
use crate::queues::wq;
use crate::sys::*;

/// States of queue pairs, each with the attribute mask that moves RC there.
const STEPS: [(u32, u32); 5] = [(0, 1), (1, 0x39), (2, 0x12_9181), (3, 0x1_2e01), (6, 1)];

pub(super) fn any(world: &mut World, feed: &mut Feed<'_>) {
    // SAFETY: C's contract is kept, as the head of `mod.rs` says.
    unsafe {
        match feed.below(10) {
            0..3 => queue_pair(world, feed),
            3 => connect(world, feed),
            4 => queue(world, feed),
            5 => shared(world, feed),
            6 => region(world, feed),
            7 => device(world, feed),
            8 => rest(world, feed),
            _ => ask(world, feed),
        }
    }
}

/// Nearly valid attributes of RC.
fn attributes(feed: &mut Feed<'_>, state: u32, to: u32) -> ibv_qp_attr {
    let mut attr = ibv_qp_attr {
        qp_state: state,
        cur_qp_state: state.saturating_sub(1),
        path_mtu: 3,
        qkey: 0x1111,
        dest_qp_num: to,
        qp_access_flags: 0xf,
        max_rd_atomic: 4,
        max_dest_rd_atomic: 4,
        min_rnr_timer: 12,
        port_num: 1,
        timeout: 14,
        retry_cnt: 1,
        rnr_retry: 1,
        ..Default::default()
    };
    (attr.ah_attr.dlid, attr.ah_attr.port_num, attr.ah_attr.is_global) = (1, 1, 1);
    edit(feed, &mut attr);
    attr
}

unsafe fn queue_pair(world: &mut World, feed: &mut Feed<'_>) {
    let Some(of) = world.qps.any(feed) else { return };
    let (state, mask) = STEPS[feed.below(STEPS.len())];
    let attr = attributes(feed, state, 0x40);
    let mask = odd(feed, mask) as i32;
    // SAFETY: by C's contract (`mod.rs`).
    unsafe {
        match feed.below(6) {
            0 => {
                let mut attr = MaybeUninit::<ibv_qp_attr>::uninit();
                let mut init = MaybeUninit::<ibv_qp_init_attr>::uninit();
                checked("query_qp", modify::query_qp(of, &mut attr, mask, &mut init));
            }
            1 => {
                // Detached at once: an attached queue pair cannot be destroyed.
                let (group, lid) = (ibv_gid { raw: [0xff; 16] }, odd(feed, 0xc000) as u16);
                if checked("attach_mcast", qp::attach_mcast(of, &group, lid)) {
                    assert!(checked("detach_mcast", qp::detach_mcast(of, &group, lid)));
                }
            }
            2 => {
                let mut options = ibv_ece { vendor_id: 0x15b3, options: 0, comp_mask: 0 };
                edit(feed, &mut options);
                checked("set_ece", ece::set_ece(of, &options));
            }
            _ => {
                checked("modify_qp", modify::modify_qp(of, &attr, mask));
            }
        }
    }
}

/// Connects an RC queue pair to itself, in as many steps as the input says.
unsafe fn connect(world: &mut World, feed: &mut Feed<'_>) {
    let Some(of) = world.qps.any(feed) else { return };
    for (state, mask) in &STEPS[..1 + feed.below(4)] {
        // SAFETY: by C's contract (`mod.rs`).
        unsafe {
            let attr = attributes(feed, *state, (*of).qp_num);
            // UD has a Q_Key instead of access rights, and no peer.
            let mask = match ((*of).qp_type, state) {
                (4, 1) => 0x71,
                (4, 2) => 1,
                (4, 3) => 0x1_0001,
                _ => *mask,
            };
            checked("modify_qp", modify::modify_qp(of, &attr, mask as i32));
        }
    }
}

unsafe fn queue(world: &mut World, feed: &mut Feed<'_>) {
    let Some(of) = world.cqs.any(feed) else { return };
    // SAFETY: by C's contract (`mod.rs`).
    unsafe {
        match feed.below(3) {
            0 => checked("resize_cq", cq::resize_cq(of, odd(feed, 40) as i32)),
            1 => {
                let moderate = ibv_moderate_cq { cq_count: 2, cq_period: 1 };
                let mut attr = ibv_modify_cq_attr { attr_mask: 1, moderate };
                edit(feed, &mut attr);
                checked("modify_cq", cq::modify_cq(of, &attr))
            }
            _ => checked("req_notify_cq", cq::req_notify_cq(of, feed.u8().into())),
        }
    };
}

unsafe fn shared(world: &mut World, feed: &mut Feed<'_>) {
    let Some(of) = world.srqs.any(feed) else { return };
    let mut attr = ibv_srq_attr { max_wr: 8, max_sge: 1, srq_limit: 1 };
    edit(feed, &mut attr);
    let mut now = MaybeUninit::<ibv_srq_attr>::uninit();
    let mut number = 0;
    // SAFETY: by C's contract (`mod.rs`).
    unsafe {
        match feed.below(3) {
            0 => checked("query_srq", srq::query_srq(of, &mut now)),
            1 => checked("get_srq_num", srq::get_srq_num(of, &mut number)),
            _ => checked("modify_srq", srq::modify_srq(of, &attr, odd(feed, 2) as i32)),
        }
    };
}

unsafe fn region(world: &mut World, feed: &mut Feed<'_>) {
    let (Some(of), pd) = (world.mrs.any(feed), world.pds.any_or_null(feed)) else { return };
    let (addr, len) = world.bytes(feed);
    let mut flags = odd(feed, 4) as i32;
    if pd.is_null() {
        flags &= !2;
    }
    // SAFETY: by C's contract (`mod.rs`); the domain is there if it is to be another one.
    unsafe {
        let code = mr::rereg_mr(of, flags, pd, addr.cast(), len, odd(feed, 0xf) as i32);
        // `IBV_REREG_MR_ERR_*` are below 0.
        assert!((-4..=0).contains(&code), "rereg_mr: {code}");
        if let Some(pd) = world.pds.any(feed) {
            let list = [ibv_sge { addr: addr as u64, len: len as u32, lkey: (*of).lkey }];
            let (advice, flags) = (odd(feed, 0), odd(feed, 1));
            checked("advise_mr", mr::advise_mr(pd, advice, flags, list.as_ptr(), 1));
        }
    }
}

/// Copies to and from device memory.
unsafe fn device(world: &mut World, feed: &mut Feed<'_>) {
    let Some(of) = world.dms.any(feed) else { return };
    let (at, len) = world.bytes(feed);
    // SAFETY: by C's contract (`mod.rs`); the program has so many bytes there.
    unsafe {
        let offset = odd(feed, 0).into();
        match feed.u8() % 2 {
            0 => {
                let copy = (*of).memcpy_to_dm.expect("it is there");
                checked("memcpy_to_dm", copy(of, offset, at.cast(), len))
            }
            _ => {
                let copy = (*of).memcpy_from_dm.expect("it is there");
                checked("memcpy_from_dm", copy(at.cast(), of, offset, len))
            }
        }
    };
}

/// Modifies work queues, counters and DEVX objects.
unsafe fn rest(world: &mut World, feed: &mut Feed<'_>) {
    // SAFETY: by C's contract (`mod.rs`); room is as long as said.
    unsafe {
        if let Some(of) = world.wqs.any(feed) {
            let (attr_mask, wq_state, curr_wq_state) = (1, 1, 0);
            let mut attr =
                ibv_wq_attr { attr_mask, wq_state, curr_wq_state, flags: 0, flags_mask: 0 };
            edit(feed, &mut attr);
            // C's provider also returns negative numbers if the state does not match.
            let code = wq::modify_wq(of, &attr);
            checked("modify_wq", code.abs());
        }
        if let Some(of) = world.counters.any(feed) {
            let mut values = [0; 16];
            let count = feed.u8() % 17;
            let read = counters::read_counters(of, values.as_mut_ptr(), count.into(), odd(feed, 0));
            checked("read_counters", read);
        }
        if let Some(of) = world.objects.any(feed) {
            let (request, mut answer) = (feed.bytes(128), [0_u8; 128]);
            let (from, bytes) = (request.as_ptr().cast(), request.len());
            let (out, room) = (answer.as_mut_ptr().cast(), answer.len());
            match feed.u8() % 2 {
                0 => checked("obj_query", devx::obj_query(of, from, bytes, out, room)),
                _ => checked("obj_modify", devx::obj_modify(of, from, bytes, out, room)),
            };
        }
    }
}

/// Queries the device.
unsafe fn ask(world: &mut World, feed: &mut Feed<'_>) {
    let (context, number) = (world.context, odd(feed, 1));
    let index = odd(feed, 0);
    // SAFETY: by C's contract (`mod.rs`); all bits of these structs are numbers.
    unsafe {
        match feed.below(6) {
            0 => {
                let mut attr: MaybeUninit<ibv_device_attr_ex> = MaybeUninit::zeroed();
                let input = odd(feed, 0);
                let size = usize::from(feed.u16()) % (size_of::<ibv_device_attr_ex>() + 1);
                let asked = query_device::query_device_ex(context, &input, attr.as_mut_ptr(), size);
                checked("query_device_ex", asked);
            }
            1 => {
                let mut attr = ibv_port_attr::default();
                let size = feed.below(size_of::<ibv_port_attr>() + 1);
                let asked = port::query_port_sized(context, number as u8, &mut attr, size);
                checked("query_port", asked);
            }
            2 => {
                let mut gid = ibv_gid::default();
                let code = gid::query_gid(context, number as u8, index as i32, &mut gid);
                assert!((-1..=0).contains(&code), "query_gid: {code}");
            }
            3 => {
                let mut entry: MaybeUninit<ibv_gid_entry> = MaybeUninit::zeroed();
                let size = size_of::<ibv_gid_entry>();
                let to = entry.as_mut_ptr();
                let flags = odd(feed, 0);
                checked("query_gid_ex", gid::query_gid_ex(context, number, index, to, flags, size));
            }
            4 => {
                let mut key = 0;
                let code = gid::query_pkey(context, number as u8, index as i32, &mut key);
                assert!((-1..=0).contains(&code), "query_pkey: {code}");
            }
            _ => {
                let mut values = ibv_values_ex { comp_mask: odd(feed, 1), raw_clock: [0; 2] };
                checked("query_rt_values", query_device::query_rt_values(context, &mut values));
            }
        }
    }
}
