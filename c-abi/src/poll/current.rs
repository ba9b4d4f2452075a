//! Current completion of an extended completion queue.

use std::ffi::c_int;

use uverbs_core::provider::View;
use uverbs_core::queues::completion::Sender;

use crate::poll::completion::{Plain, rare};
use crate::sys::{IBV_WC_GRH, IBV_WC_SUCCESS, ibv_wc_tm_info};

/// Extra members, decoded if the program asked for them.
pub(crate) const TIMESTAMP: u8 = 1;
pub(crate) const VLAN_TAG: u8 = 2;
pub(crate) const TAGS: u8 = 4;
/// Sends may have completions without opcode (`sent_kinds.rs`).
pub(crate) const SENT_KINDS: u8 = 8;
/// Receives may be raw packets.
pub(crate) const PACKETS: u8 = 16;
/// Members of EFA: GID of the sender, and whether a receive was consumed.
pub(crate) const EFA: u8 = 32;

/// Completion that the program reads.
#[derive(Clone, Copy, Default)]
pub(crate) struct Shown {
    pub(crate) plain: Plain,
    pub(crate) vendor_err: u32,
    pub(crate) vlan_tag: u16,
    pub(crate) timestamp: u64,
    /// Part of the header of a message that matched a tag.
    pub(crate) tag: ibv_wc_tm_info,
    /// GID of a sender without an address handle.
    pub(crate) sender_gid: Option<[u8; 16]>,
    pub(crate) is_unsolicited: bool,
    /// Dropped completions reported to the program so far.
    pub(crate) strays: u64,
    /// Completions to take before the consumer index is published.
    pub(crate) left: c_int,
    /// Value of `left` after a publication; see [`step`](crate::queues::cq::step).
    pub(crate) step: c_int,
}

impl Shown {
    /// Shows a completion, with its timestamp if asked for, without other extras. Returns its
    /// status.
    #[inline(always)]
    pub(crate) fn show<V: View>(&mut self, view: &V, extras: u8) -> u32 {
        if extras & TIMESTAMP != 0 {
            self.timestamp = view.timestamp().unwrap_or(0);
        }
        let Some((plain, _)) = Plain::of(view) else { return self.show_rare(view) };
        (self.plain, self.vendor_err) = (plain, 0);
        IBV_WC_SUCCESS
    }

    #[cold]
    #[inline(never)]
    fn show_rare<V: View>(&mut self, view: &V) -> u32 {
        let wc = rare(view, 0);
        self.plain = Plain {
            opcode: wc.opcode,
            byte_len: wc.byte_len,
            imm_data: wc.imm_data,
            flags: wc.wc_flags & !IBV_WC_GRH,
            qpn: wc.qp_num,
            sender: Sender::new(wc.src_qp, wc.sl, wc.wc_flags & IBV_WC_GRH != 0, wc.slid),
            path_bits: wc.dlid_path_bits,
        };
        self.vendor_err = wc.vendor_err;
        wc.status
    }
}
