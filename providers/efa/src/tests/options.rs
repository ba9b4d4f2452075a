//! Options of queues as the driver gets them, and what completions then tell.
#![allow(unsafe_code, reason = "reads a completion by address")]

use std::sync::Arc;

use uverbs_core::attr::{Gid, QpType};
use uverbs_core::error::Error;
use uverbs_core::provider::{ContextOps, CqInit, Provider, QpInit, View};

use super::kernel::{Kernel, Model};
use super::rig::CAP;
use crate::Efa;
use crate::wc::{EfaCqe, Wc};

/// Capabilities of the model without and with the options.
const PLAIN: u32 = 0x27;
const ALL: u32 = PLAIN | 8 | 0x40;

#[test]
fn the_driver_is_asked_for_gids_and_unsolicited_writes() {
    for caps in [ALL, PLAIN] {
        let kernel = Arc::new(Kernel::default());
        kernel.state().caps = caps;
        let context = Efa::open(kernel.core()).unwrap();
        let pd = context.alloc_pd().unwrap();
        let (cq, _poll) = context.create_cq(&CqInit::new(8)).unwrap();
        assert_eq!(kernel.state().cq_flags, 0);
        let mut init = CqInit::new(8);
        init.sender_gids = true;
        let with_gids = context.create_cq(&init);
        let mut init = QpInit::new(Arc::clone(&pd), Arc::clone(&cq), cq);
        (init.qp_type, init.cap) = (QpType::Srd, CAP);
        (init.unsolicited_writes, init.service_level) = (true, 8);
        let qp = context.create_qp(&init);
        if caps == ALL {
            // WITH_SGID; WITH_UNSOLICITED_WRITE_RECV, and the level.
            assert!(with_gids.is_ok() && qp.is_ok());
            let flags = |state: &Model| (state.cq_flags, state.qp_flags);
            assert_eq!(flags(&kernel.state()), (2, 8 << 16 | 1));
        } else {
            assert!(matches!(with_gids, Err(Error::Unsupported { .. })));
            assert!(matches!(qp, Err(Error::Unsupported { .. })));
        }
    }
}

/// View of a completion.
fn view(entry: &Entry, size: u32, is_recv: bool) -> Wc<'_> {
    // SAFETY: the entry is aligned and borrowed by the view.
    let cqe = unsafe { EfaCqe::new(entry.0.as_ptr(), size) };
    // SAFETY: the same.
    unsafe { Wc::new(cqe, is_recv) }
}

/// Bytes of an entry, aligned as in a ring.
#[repr(align(8))]
struct Entry([u8; 32]);

#[test]
fn a_receive_tells_the_gid_of_an_unknown_sender() {
    const SEND: u8 = 0;
    const WRITE: u8 = 2;
    let (none, some) = ([0; 16], [7; 16]);
    for (operation, ah, size, gid, told) in [
        (SEND, 3, 32, some, None),
        (SEND, 0xffff, 32, some, Some(Gid(some))),
        (SEND, 0xffff, 16, some, None),
        // A queue without GIDs.
        (SEND, 0xffff, 32, none, None),
        // The upper half of the length is there.
        (WRITE, 0xffff, 32, some, None),
    ] {
        let mut entry = Entry([0; 32]);
        // Unsolicited if it is a WRITE, with immediate data, of a receive queue.
        entry.0[3] = u8::from(operation == WRITE) << 7 | operation << 4 | 1 << 3 | 2 << 1;
        entry.0[8..10].copy_from_slice(&u16::to_le_bytes(ah));
        entry.0[16..].copy_from_slice(&gid);
        let recv = view(&entry, size, true);
        assert_eq!(recv.sender_gid(), told, "{operation} {ah} {size}");
        assert_eq!(recv.is_unsolicited(), operation == WRITE);
        let send = view(&entry, size, false);
        assert_eq!((send.is_unsolicited(), send.sender_gid()), (false, None));
    }
}
