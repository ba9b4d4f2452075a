//! Address handles: iWARP has no datagrams, so there is none.
#![allow(unsafe_code, reason = "keeps a promise of which nobody can hold anything")]

use uverbs_core::objects::ah::AhCore;
use uverbs_core::provider::AhOps;

/// An address handle. None can be made.
#[derive(Clone, Debug)]
pub enum Ah {}

// SAFETY: there is no value.
unsafe impl AhOps for Ah {
    fn core(&self) -> &AhCore {
        match *self {}
    }

    fn peer(&self, _qpn: u32, _qkey: u32) -> [u64; 2] {
        match *self {}
    }
}
