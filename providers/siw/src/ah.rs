//! Address handles: iWARP has no datagrams, so none can be created.
#![allow(unsafe_code, reason = "keeps a promise about values that do not exist")]

use uverbs_core::objects::ah::AhCore;
use uverbs_core::provider::AhOps;

/// Address handle, without values.
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
