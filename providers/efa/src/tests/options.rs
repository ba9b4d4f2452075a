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
    let mut entry = Entry([0; 32]);
    // A WRITE with immediate data that consumed no receive; then its sender has no handle.
    entry.0[3] = 1 << 7 | 2 << 4 | 1 << 3 | 2 << 1;
    entry.0[16..].copy_from_slice(&[7; 16]);
    let views = [(3, 32), (0xffff, 32), (0xffff, 16)].map(|(ah, size)| {
        entry.0[8..10].copy_from_slice(&u16::to_le_bytes(ah));
        let view = view(&entry, size, true);
        (view.is_unsolicited(), view.sender_gid())
    });
    assert_eq!(views, [(true, None), (true, Some(Gid([7; 16]))), (true, None)]);
    let send = view(&entry, 32, false);
    assert_eq!((send.is_unsolicited(), send.sender_gid()), (false, None));
}
