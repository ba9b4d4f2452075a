//! Limits and capabilities beyond the verbs'.

use crate::Context;

/// Most work requests of a queue: two bits of a request's number tell apart queue pairs that had
/// the same number one after the other.
pub(crate) const MOST_WR: u32 = 1 << 14;

/// Limits of a device beyond the verbs' (`efadv_query_device`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "efadv_device_attr")]
pub struct Limits {
    /// Work requests of a send queue.
    pub max_sq_wr: u32,
    /// Work requests of a receive queue.
    pub max_rq_wr: u32,
    /// SGEs of a SEND.
    pub max_sq_sge: u16,
    /// SGEs of a receive.
    pub max_rq_sge: u16,
    /// Bytes of inline data in a work request of 64 bytes.
    pub inline: u16,
    /// Bytes of inline data in a work request of 128 bytes; 0 if the device has only short ones.
    pub inline_long: u16,
    /// Bytes of the longest READ or WRITE.
    pub max_rdma_size: u32,
    /// Bytes of the longest SEND.
    pub max_message_size: u32,
    /// Bytes of the largest send queue.
    pub max_llq_size: u32,
    /// Units of 64 bytes that a doorbell may announce; 0 is unlimited.
    pub max_tx_batch: u16,
    /// Fewest work requests of a send queue.
    pub min_sq_wr: u16,
    /// Rings of a completion queue.
    pub sub_cqs: u16,
    /// READ.
    pub read: bool,
    /// WRITE, with and without immediate data.
    pub write: bool,
    /// A limit of RNR retries can be set.
    pub rnr_retry: bool,
    /// Completion channels.
    pub notifications: bool,
    /// Completions of receives may tell the GID of a sender without an address handle.
    pub sender_gids: bool,
    /// A WRITE with immediate data may complete without consuming a receive.
    pub unsolicited_writes: bool,
    /// Completion counters.
    pub counters: bool,
    /// Data within an aligned block of 128 bytes arrives in order.
    pub in_order_128: bool,
}

impl Limits {
    /// Most sends of a queue whose work requests have `wqe` bytes: 64 or 128 (rdma-core
    /// `verbs.c:efa_calc_sq_max_depth`).
    #[must_use]
    pub fn most_sends(&self, wqe: u32) -> u32 {
        let fit = self.max_llq_size.checked_div(wqe).unwrap_or(0).min(self.max_sq_wr);
        fit.checked_ilog2().map_or(0, |bits| 1 << bits).min(MOST_WR)
    }
}

/// Limits of an open device, as it told them when it was opened.
#[must_use]
pub fn limits(context: &Context) -> Limits {
    context.opened().state.limits()
}
