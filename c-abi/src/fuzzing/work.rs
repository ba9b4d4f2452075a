//! Calls that post work requests and poll completions.
#![allow(unsafe_code, reason = "calls functions of C")]

use std::ptr::{null, null_mut};

use super::feed::Feed;
use super::world::World;
use super::{checked, odd};
use crate::poll::basic;
use crate::queues::qp;
use crate::sys::*;

/// Maximum SGEs of a list, and work requests of a list.
const PIECES: usize = 4;
const CHAIN: usize = 5;
/// `IBV_QPT_UD`.
const UD: u32 = 4;
/// `IBV_WR_BIND_MW`.
const BIND_MW: u32 = 8;

pub(super) fn any(world: &mut World, feed: &mut Feed<'_>) {
    // SAFETY: C's contract is kept, as the head of `mod.rs` says.
    unsafe {
        match feed.below(7) {
            0 | 1 => sends(world, feed),
            2 => receives(world, feed),
            3 => pieces(world, feed),
            4 => completions(world, feed),
            5 => extended(world, feed),
            _ => world.step(),
        }
    }
}

/// An SGE: bytes of the program's memory or anywhere, with the lkey of their region or another.
fn sge(world: &World, feed: &mut Feed<'_>) -> ibv_sge {
    let (at, len) = world.bytes(feed);
    let key = world.mrs.any(feed).map_or(0, |region| {
        // SAFETY: the region exists.
        unsafe { (*region).lkey }
    });
    let addr = if feed.below(16) == 0 { feed.u64() } else { at.expose_provenance() as u64 };
    ibv_sge { addr, len: odd(feed, len as u32), lkey: odd(feed, key) }
}

/// An SGE for inline data, whose bytes the program owns: they are copied.
fn inline(world: &World, feed: &mut Feed<'_>) -> ibv_sge {
    let (at, len) = world.bytes(feed);
    ibv_sge { addr: at.expose_provenance() as u64, len: len.min(2048) as u32, lkey: 0 }
}

unsafe fn sends(world: &mut World, feed: &mut Feed<'_>) {
    let Some(of) = world.qps.any(feed) else { return };
    // SAFETY: by C's contract (`mod.rs`).
    let of_datagrams = unsafe { (*of).qp_type } == UD;
    let ah = world.ahs.any(feed);
    if of_datagrams && ah.is_none() {
        return;
    }
    let mut lists = [[ibv_sge { addr: 0, len: 0, lkey: 0 }; PIECES]; CHAIN];
    let mut wrs = Vec::with_capacity(CHAIN);
    let alike = feed.below(2) == 0;
    for (at, list) in lists.iter_mut().enumerate() {
        // Half of the lists have one opcode.
        let first = wrs.first().filter(|first: &&ibv_send_wr| alike && first.opcode != BIND_MW);
        let first = first.map(|first| (first.opcode, first.send_flags, first.num_sge));
        let send_flags = first.map_or_else(|| odd(feed, 2), |(_, flags, _)| flags);
        for piece in list.iter_mut() {
            let is_inline = send_flags & IBV_SEND_INLINE != 0;
            *piece = if is_inline { inline(world, feed) } else { sge(world, feed) };
        }
        let window = world.mws.any(feed);
        let usual = u32::from(feed.u8() % 12);
        let opcode = Some(odd(feed, usual)).filter(|one| *one != BIND_MW || window.is_some());
        let (remote_addr, rkey) = (list[0].addr, odd(feed, list[0].lkey));
        let wr = match ah.filter(|_| of_datagrams) {
            Some(ah) => {
                let (remote_qpn, remote_qkey) = (odd(feed, 1), odd(feed, 0x1111));
                SendWr { ud: ibv_send_wr_ud { ah, remote_qpn, remote_qkey } }
            }
            None => {
                let (compare_add, swap) = (feed.u8().into(), feed.u8().into());
                SendWr { atomic: ibv_send_wr_atomic { remote_addr, compare_add, swap, rkey } }
            }
        };
        wrs.push(ibv_send_wr {
            wr_id: at as u64,
            next: null(),
            sg_list: list.as_ptr(),
            num_sge: first.map_or_else(|| i32::from(feed.u8() % 6) - 1, |(.., pieces)| pieces),
            opcode: first.map_or(opcode.unwrap_or(IBV_WR_SEND), |(opcode, ..)| opcode),
            send_flags,
            imm_data: rkey,
            wr,
            xrc_srqn: odd(feed, 1),
            bind_mw: BindMw {
                mw: window.unwrap_or(null_mut()),
                rkey: odd(feed, rkey),
                bind_info: ibv_mw_bind_info {
                    mr: world.mrs.any_or_null(feed),
                    addr: remote_addr,
                    length: list[1].len.into(),
                    mw_access_flags: odd(feed, 0xf),
                },
            },
        });
        // `num_sge` is the length of the list.
        let last = wrs.last_mut().expect("just pushed");
        last.num_sge = last.num_sge.min(PIECES as i32);
    }
    let count = 1 + feed.below(CHAIN);
    for at in 1..count {
        wrs[at - 1].next = &raw const wrs[at];
    }
    let mut bad = null();
    // SAFETY: by C's contract (`mod.rs`); the list lives over the call.
    unsafe {
        let post = (*(*of).context).ops.post_send.expect("it is there");
        if !checked("post_send", post(of, wrs.as_ptr(), &mut bad)) {
            let of_list = wrs.iter().any(|wr| std::ptr::eq(wr, bad));
            assert!(of_list, "post_send names none of the list");
        }
    }
}

unsafe fn receives(world: &mut World, feed: &mut Feed<'_>) {
    let list: [ibv_sge; PIECES] = std::array::from_fn(|_| sge(world, feed));
    let num_sge = (i32::from(feed.u8() % 6) - 1).min(PIECES as i32);
    let mut wrs = [ibv_recv_wr { wr_id: 7, next: null(), sg_list: list.as_ptr(), num_sge }; CHAIN];
    for at in 1..1 + feed.below(CHAIN) {
        wrs[at - 1].next = &raw const wrs[at];
    }
    let mut bad = null();
    // SAFETY: by C's contract (`mod.rs`); the list lives over the call.
    unsafe {
        let posted = match (feed.u8() % 3, world.srqs.any(feed), world.wqs.any(feed)) {
            (0, Some(of), _) => {
                let post = (*(*of).context).ops.post_srq_recv.expect("it is there");
                post(of, wrs.as_ptr(), &mut bad)
            }
            (1, _, Some(of)) => (*of).post_recv.expect("it is there")(of, wrs.as_ptr(), &mut bad),
            _ => {
                let Some(of) = world.qps.any(feed) else { return };
                let post = (*(*of).context).ops.post_recv.expect("it is there");
                post(of, wrs.as_ptr(), &mut bad)
            }
        };
        checked("post_recv", posted);
    }
}

/// Posts work requests by `ibv_wr_*`.
unsafe fn pieces(world: &mut World, feed: &mut Feed<'_>) {
    // SAFETY: by C's contract (`mod.rs`); between start and end the functions are this thread's.
    unsafe {
        let Some(base) = world.qps.any(feed) else { return };
        let of = qp::qp_to_qp_ex(base);
        if of.is_null() {
            return;
        }
        let (Some(start), Some(complete), Some(abort)) =
            ((*of).wr_start, (*of).wr_complete, (*of).wr_abort)
        else {
            return;
        };
        start(of);
        for _ in 0..feed.below(4) {
            ((*of).wr_id, (*of).wr_flags) = (feed.u8().into(), odd(feed, 2));
            let remote = sge(world, feed);
            let (key, addr) = (remote.lkey, remote.addr);
            match feed.below(10) {
                0 => (*of).wr_send.into_iter().for_each(|op| op(of)),
                1 => (*of).wr_send_imm.into_iter().for_each(|op| op(of, key)),
                2 => (*of).wr_send_inv.into_iter().for_each(|op| op(of, key)),
                3 => (*of).wr_rdma_write.into_iter().for_each(|op| op(of, key, addr)),
                4 => (*of).wr_rdma_write_imm.into_iter().for_each(|op| op(of, key, addr, key)),
                5 => (*of).wr_rdma_read.into_iter().for_each(|op| op(of, key, addr)),
                6 => (*of).wr_atomic_fetch_add.into_iter().for_each(|op| op(of, key, addr, 1)),
                7 => (*of).wr_atomic_cmp_swp.into_iter().for_each(|op| op(of, key, addr, 1, 2)),
                8 => (*of).wr_local_inv.into_iter().for_each(|op| op(of, key)),
                _ => {
                    if let (Some(op), Some(window)) = ((*of).wr_bind_mw, world.mws.any(feed)) {
                        let info = ibv_mw_bind_info {
                            mr: world.mrs.any_or_null(feed),
                            addr,
                            length: remote.len.into(),
                            mw_access_flags: odd(feed, 0xf),
                        };
                        op(of, window, key, &info);
                    }
                }
            }
            for _ in 0..feed.below(3) {
                set(world, feed, of);
            }
        }
        match feed.u8() % 4 {
            0 => abort(of),
            _ => {
                checked("wr_complete", complete(of));
            }
        }
    }
}

/// Sets destination and data of a work request.
unsafe fn set(world: &World, feed: &mut Feed<'_>, of: *mut ibv_qp_ex) {
    let list: [ibv_sge; PIECES] = std::array::from_fn(|_| sge(world, feed));
    let bytes = inline(world, feed);
    let from = std::ptr::with_exposed_provenance(bytes.addr as usize);
    let data = [ibv_data_buf { addr: from, length: bytes.len as usize }; 2];
    // SAFETY: by C's contract (`mod.rs`); lists are as long as said, and the program has the bytes.
    unsafe {
        match feed.below(6) {
            0 => {
                let [one, ..] = list;
                (*of).wr_set_sge.into_iter().for_each(|op| op(of, one.lkey, one.addr, one.len));
            }
            1 => {
                let count = feed.below(PIECES + 1);
                (*of).wr_set_sge_list.into_iter().for_each(|op| op(of, count, list.as_ptr()));
            }
            2 => {
                let len = bytes.len as usize;
                (*of).wr_set_inline_data.into_iter().for_each(|op| op(of, from, len));
            }
            3 => {
                let count = feed.below(3);
                (*of)
                    .wr_set_inline_data_list
                    .into_iter()
                    .for_each(|op| op(of, count, data.as_ptr()));
            }
            4 => {
                let number = odd(feed, 1);
                (*of).wr_set_xrc_srqn.into_iter().for_each(|op| op(of, number));
            }
            _ => {
                if let (Some(op), Some(ah)) = ((*of).wr_set_ud_addr, world.ahs.any(feed)) {
                    op(of, ah, odd(feed, 1), odd(feed, 0x1111));
                }
            }
        }
    }
}

unsafe fn completions(world: &mut World, feed: &mut Feed<'_>) {
    let of = match world.extended.any(feed).filter(|_| feed.below(2) == 0) {
        Some(of) => of.cast(),
        None => world.cqs.any_or_null(feed),
    };
    let mut all = [ibv_wc::default(); 8];
    if !of.is_null() {
        let room = feed.below(all.len() + 1) as i32;
        // SAFETY: by C's contract (`mod.rs`); there is as much room.
        let count = unsafe { basic::poll_cq(of, room, all.as_mut_ptr()) };
        assert!((-4095..=room).contains(&count), "poll_cq: {count} of {room}");
    }
}

unsafe fn extended(world: &mut World, feed: &mut Feed<'_>) {
    let Some(of) = world.extended.any(feed) else { return };
    let attr = odd(feed, 0);
    let mut info = ibv_wc_tm_info::default();
    // SAFETY: by C's contract (`mod.rs`); what is read is of the completion at hand.
    unsafe {
        if (*of).start_poll.expect("it is there")(of, &attr) != 0 {
            return;
        }
        for _ in 0..feed.below(8) {
            for read in [
                (*of).read_opcode,
                (*of).read_vendor_err,
                (*of).read_byte_len,
                (*of).read_imm_data,
                (*of).read_qp_num,
                (*of).read_src_qp,
                (*of).read_wc_flags,
                (*of).read_slid,
                (*of).read_flow_tag,
            ] {
                read.into_iter().for_each(|read| _ = read(of));
            }
            (*of).read_tm_info.into_iter().for_each(|read| read(of, &mut info));
            (*of).read_completion_ts.into_iter().for_each(|read| _ = read(of));
            if (*of).next_poll.expect("it is there")(of) != 0 {
                break;
            }
        }
        (*of).end_poll.expect("it is there")(of);
    }
}
