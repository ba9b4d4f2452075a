//! Fuzz target (`fuzz/`): sequences of correct, nearly correct and arbitrary commands. A plain test
//! replays the stored inputs.

use std::cell::LazyCell;

use crate::{Pending, SoftHca};
use uverbs_kernel_abi::ioctl::ib_uverbs_attr;
use uverbs_kernel_abi::mr::ib_uverbs_reg_mr;
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_abi::pd::ib_uverbs_alloc_pd;
use uverbs_kernel_abi::qp::ib_uverbs_query_qp;
use uverbs_kernel_abi::write::*;

use super::rig::*;

/// Commands of one run, and bytes of client memory for them.
const COMMANDS: usize = 40;
const MEMORY: usize = 1 << 20;

thread_local! {
    /// One arena for all runs of a thread.
    static ARENA: LazyCell<Arena> = LazyCell::new(|| Arena::new(MEMORY));
}

/// Methods that destroy an object by its handle.
const DESTROYS: &[(u16, u16)] = &[
    (UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY),
    (UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY),
    (UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY),
    (UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY),
    (UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY),
    (UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY),
    (UVERBS_OBJECT_XRCD, UVERBS_METHOD_XRCD_DESTROY),
    (UVERBS_OBJECT_MW, UVERBS_METHOD_MW_DESTROY),
];

/// Runs an arbitrary sequence: no panic, no effect on another file, and no state left at the end.
pub(crate) fn ioctls(data: &[u8]) {
    let arena = ARENA.with(|arena| arena.anew());
    let hca = SoftHca::builder().stepped().memlock_limit(1 << 20).build().unwrap();
    let other = hca.open().unwrap();
    let rig = Rig { door: hca.open().unwrap(), hca, arena };
    rig.get_context().send(&*other).unwrap();
    rig.alloc_pd(&ib_uverbs_alloc_pd::default(), 4).0.send(&*other).unwrap();
    let before = rig.hca.objects();
    rig.get_context().send(rig.door()).unwrap();
    let mut bytes = data.iter().copied();
    for _ in 0..COMMANDS {
        let Some(op) = bytes.next() else { break };
        let mut next = || bytes.next().unwrap_or(0);
        if op % 12 == 11 {
            rig.hca.step_until_idle(100);
            continue;
        }
        let mut cmd = command(&rig, op, &mut next);
        for _ in 0..(op / 12) % 4 {
            spoil(&rig.arena, &mut cmd, &mut next);
        }
        let _ = cmd.send(rig.door());
    }
    rig.hca.step_until_idle(100);
    let Rig { hca, door, arena: _ } = rig;
    drop(door);
    assert_eq!(hca.objects(), before, "of another opening");
    assert_eq!(hca.pinned_bytes(), 0);
    drop(other);
    assert!(hca.objects().is_empty());
    // The device itself has no queue or doorbell page left.
    let Pending { qps, srqs, cqs, uars } = hca.pending();
    let numbers = (ids(&qps, |qp| qp.qpn), ids(&srqs, |srq| srq.srqn), ids(&cqs, |cq| cq.cqn));
    assert_eq!(numbers, (vec![], vec![], vec![]), "queues that nobody has");
    assert_eq!(ids(&uars, |uar| uar.0), [], "doorbell pages that nobody has");
}

fn ids<T>(all: &[T], id: impl Fn(&T) -> u32) -> Vec<u32> {
    all.iter().map(id).collect()
}

/// Builds a command that is correct if the objects that it names exist.
fn command(rig: &Rig, op: u8, next: &mut impl FnMut() -> u8) -> Cmd {
    // Handles and page numbers are small.
    let mut handle = || u32::from(next() % 16);
    match op % 12 {
        0 => rig.alloc_pd(&ib_uverbs_alloc_pd::default(), 4).0,
        1 => rig.uar_cmd().0,
        2 => rig.cq_cmd(0x10 + handle() % 4, [1, 3, 7, 15][handle() as usize % 4]).0,
        3 | 4 => rig.qp_cmd(0x10 + handle() % 4, handle(), handle()).0,
        5 => {
            let (addr, _) = rig.arena.range();
            let request = ib_uverbs_reg_mr {
                start: addr,
                hca_va: addr,
                length: 4096 * u64::from(handle()),
                pd_handle: handle(),
                access_flags: DATA_RIGHTS,
                ..Default::default()
            };
            rig.write(IB_USER_VERBS_CMD_REG_MR, &request, 12).0
        }
        6 => {
            let (qp, gid) = (handle(), [0; 16]);
            let request = [to_init(qp), to_rtr(qp, handle(), gid), to_rts(qp)];
            let request = &request[handle() as usize % 3];
            write_cmd(IB_USER_VERBS_CMD_MODIFY_QP).input(&rig.arena, UVERBS_ATTR_CORE_IN, request)
        }
        7 => {
            let request = ib_uverbs_query_qp { qp_handle: handle(), ..Default::default() };
            rig.write(IB_USER_VERBS_CMD_QUERY_QP, &request, 128).0
        }
        8 => {
            let (object, method) = DESTROYS[handle() as usize % DESTROYS.len()];
            let cmd = Cmd::new(object, method).handle(first_attr(object), handle());
            match object {
                UVERBS_OBJECT_CQ | UVERBS_OBJECT_QP | UVERBS_OBJECT_SRQ => {
                    // The second attribute receives the event counts.
                    cmd.output(&rig.arena, first_attr(object) + 1, 8).0
                }
                _ => cmd,
            }
        }
        9 => {
            // A write command of any number, except the command that opens a file.
            let number = (u32::from(next()) % 64) | (u32::from(next() & 1) << 31);
            let number = if number == IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL { 0 } else { number };
            let request = std::array::from_fn::<u8, 64, _>(|at| if at < 24 { next() } else { 0 });
            rig.write(number, &request, 64).0
        }
        _ => {
            let object = u16::from(next());
            let (object, driver) = (object % 24, object & 0x80 != 0);
            let object = if driver { 0x1000 + object } else { object };
            let method = if driver { 0x1000 } else { 0 } + u16::from(next() % 10);
            let mut cmd = Cmd::new(object, method);
            // This method opens descriptors, which the test would not close.
            if object == UVERBS_OBJECT_ASYNC_EVENT {
                return cmd;
            }
            for _ in 0..next() % 8 {
                let (id, len) = (u16::from(next() % 16), usize::from(next()));
                let id = if next() & 1 == 0 { id } else { 0x1000 + id };
                let out = rig.arena.out(len.max(8));
                let data = if len > 8 { out } else { u64::from(next()) };
                cmd = cmd.attr(id, len, data);
            }
            cmd
        }
    }
}

/// Changes one attribute of a command, or one byte of its input.
fn spoil(arena: &Arena, cmd: &mut Cmd, next: &mut impl FnMut() -> u8) {
    let count = cmd.attrs.len().max(1);
    let Some(attr) = cmd.attrs.get_mut(usize::from(next()) % count) else { return };
    match next() % 8 {
        0 => attr.len = u16::from(next()),
        1 => attr.flags = u16::from(next()),
        2 => attr.attr_id ^= 1 << (next() % 16),
        3 => attr.data = attr.data & !0xff | u64::from(next()),
        4 => attr.data = 1 << (next() % 32),
        _ => spoil_payload(arena, attr, next),
    }
}

fn spoil_payload(arena: &Arena, attr: &ib_uverbs_attr, next: &mut impl FnMut() -> u8) {
    let (base, all) = arena.range();
    let (at, len) = (attr.data, u64::from(attr.len));
    if len <= 8 || at < base || at + len > base + all {
        return;
    }
    let mut bytes = arena.read(at, len as usize);
    let place = usize::from(next()) % bytes.len();
    bytes[place] = next();
    // A changed byte may turn a value into an address. Addresses outside of the arena are reset,
    // since the device would write to memory of this process.
    for start in (0..bytes.len().saturating_sub(7)).step_by(4) {
        let word = u64::from_ne_bytes(bytes[start..start + 8].try_into().unwrap());
        if (1 << 32..1 << 48).contains(&word) && !(base..base + all).contains(&word) {
            let word = base + word % all;
            bytes[start..start + 8].copy_from_slice(&word.to_ne_bytes());
        }
    }
    arena.write(at, &bytes);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    #[test]
    fn what_is_kept() {
        support::replay("ioctls", super::ioctls);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn any_sequence(data in prop::collection::vec(any::<u8>(), 0..400)) {
            super::ioctls(&data);
        }
    }
}
