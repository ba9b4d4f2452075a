//! Error syndromes of failed WQEs.

use crate::bits::named;

/// `vendor_err_synd` of a page fault on a queue with on-demand paging.
pub const MLX5_CQE_VENDOR_SYNDROME_ODP_PFAULT: u8 = 0x93;

named! {
    /// Error syndrome of a completion (mlx5dv.h, `MLX5_CQE_SYNDROME_*`).
    pub struct Syndrome(u8) {
        /// Local length error. [`Syndrome::explanation`] has a sentence for each syndrome.
        LOCAL_LENGTH_ERR = 0x01,
        /// Local QP operation error.
        LOCAL_QP_OP_ERR = 0x02,
        /// Local protection error.
        LOCAL_PROT_ERR = 0x04,
        /// Flushed.
        WR_FLUSH_ERR = 0x05,
        /// Memory window bind error.
        MW_BIND_ERR = 0x06,
        /// Bad response.
        BAD_RESP_ERR = 0x10,
        /// Local access error.
        LOCAL_ACCESS_ERR = 0x11,
        /// Remote invalid request.
        REMOTE_INVAL_REQ_ERR = 0x12,
        /// Remote access error.
        REMOTE_ACCESS_ERR = 0x13,
        /// Remote operation error.
        REMOTE_OP_ERR = 0x14,
        /// Transport retries exceeded.
        TRANSPORT_RETRY_EXC_ERR = 0x15,
        /// Receiver-not-ready retries exceeded.
        RNR_RETRY_EXC_ERR = 0x16,
        /// Remote abort.
        REMOTE_ABORTED_ERR = 0x22,
    }
}

impl Syndrome {
    /// Explanation in one sentence, for a log (IBTA 10.10.3 names the completion errors).
    #[must_use]
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::LOCAL_LENGTH_ERR => {
                "The message exceeds the receive buffers, or the maximum of the transport."
            }
            Self::LOCAL_QP_OP_ERR => "The queue pair found its own work request inconsistent.",
            Self::LOCAL_PROT_ERR => {
                "A local key does not cover the address, length or right that the request needs."
            }
            Self::WR_FLUSH_ERR => {
                "The queue pair was in the error state before the request was done."
            }
            Self::MW_BIND_ERR => {
                "The memory window could not be bound: key, range or rights are wrong."
            }
            Self::BAD_RESP_ERR => "The responder answered with an unexpected opcode.",
            Self::LOCAL_ACCESS_ERR => {
                "A local buffer became inaccessible while an incoming message was written to it."
            }
            Self::REMOTE_INVAL_REQ_ERR => {
                "The responder refused the request as malformed, unsupported or too long."
            }
            Self::REMOTE_ACCESS_ERR => {
                "The remote key does not cover the address, length or right that the request needs."
            }
            Self::REMOTE_OP_ERR => "The responder failed internally.",
            Self::TRANSPORT_RETRY_EXC_ERR => {
                "No acknowledgement after all retries: peer gone, path broken or numbers wrong."
            }
            Self::RNR_RETRY_EXC_ERR => "The responder had no receive posted in all retries.",
            Self::REMOTE_ABORTED_ERR => "The responder aborted the operation.",
            _ => "The syndrome has no name in the manual.",
        }
    }
}
