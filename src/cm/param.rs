//! Connection parameters that two sides agree on.

use uverbs_core::attr::DeviceAttr;
pub use uverbs_core::attr::Ece;
use uverbs_core::commands::cm::put_private_data;
use uverbs_core::error::Error;
use uverbs_core::provider::ContextOps;
use uverbs_kernel_abi::rdma_cm::rdma_ucm_conn_param;

use crate::QueuePair;
use crate::provider::Provider;
use crate::transport::Transport;

/// Parameters that this side sends when it connects or accepts.
///
/// They also decide the peer's rights in memory exposed to it, as the kernel sets them (kernel
/// `cm.c:cm_init_qp_init_attr`, `iwcm.c:iwcm_init_qp_init_attr`):
///
/// | connection | the peer may |
/// |---|---|
/// | agreed READs of the peer 0 | WRITE |
/// | agreed READs of the peer 1 or more | WRITE, READ, atomics |
/// | iWARP | WRITE, READ |
///
/// For fewer rights expose memory with fewer, or set `responder_resources` to 0.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "rdma_conn_param")]
pub struct Param {
    /// Private data for the peer's program: at most 56 bytes of a request (92 by InfiniBand
    /// addresses), 196 of an acceptance (iWARP: 252).
    pub private_data: Vec<u8>,
    /// READs and atomics of the peer that this side serves at a time; 0 refuses them. `None` is as
    /// many as the device can and the peer wants.
    pub responder_resources: Option<u8>,
    /// READs and atomics that this side has outstanding; `None` is as many as the device can and
    /// the peer serves.
    pub initiator_depth: Option<u8>,
    /// Retries after a timeout or a sequence error, 0 to 7.
    pub retry_count: u8,
    /// Retries after receiver-not-ready, 0 to 6; 7 is unlimited. The peer sets the time between
    /// two retries: 0.64 ms by this library, 655 ms by the kernel for a program in C.
    pub rnr_retry_count: u8,
    /// Tells the peer that the queue pair has a shared receive queue. Set by the library where it
    /// gets the queue pair ([`Route::connect`](super::Route::connect)).
    pub shared_receives: bool,
    /// ECE options for the two devices to agree on. Default: the device's, where the library gets
    /// the queue pair ([`Route::connect`](super::Route::connect)).
    pub ece: Ece,
}

impl Default for Param {
    /// No private data, the device's maximum depths, 7 retries; unlimited RNR retries as by
    /// librdmacm, since six of 0.64 ms are shorter than a receiver may wait for a processor.
    fn default() -> Self {
        Self {
            private_data: Vec::new(),
            responder_resources: None,
            initiator_depth: None,
            retry_count: 7,
            rnr_retry_count: 7,
            shared_receives: false,
            ece: Ece::default(),
        }
    }
}

/// READ depths in both directions: served, and outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Depths {
    pub(super) serves: u8,
    pub(super) asks: u8,
}

impl Depths {
    /// Largest depths that the message's fields hold.
    pub(super) const MOST: Self = Self { serves: u8::MAX, asks: u8::MAX };

    /// Depths that the queue pair's device supports.
    pub(super) fn able<P: Provider, T: Transport>(qp: &QueuePair<P, T>) -> Self {
        Self::of(qp.recv.home.context.provider().device_attr())
    }

    /// Depths that a device supports.
    pub(super) fn of(device: &DeviceAttr) -> Self {
        let byte = |most: u32| u8::try_from(most).unwrap_or(u8::MAX);
        Self { serves: byte(device.max_qp_rd_atom), asks: byte(device.max_qp_init_rd_atom) }
    }

    /// The smaller value of each depth.
    pub(super) fn least(self, other: Self) -> Self {
        Self { serves: self.serves.min(other.serves), asks: self.asks.min(other.asks) }
    }
}

/// Has the next change of state agree on ECE options with a peer whose device is of this vendor.
///
/// # Errors
///
/// As [`QueuePair::set_ece`].
pub(super) fn agree<P: Provider>(qp: &mut QueuePair<P>, theirs: Ece) -> Result<(), Error> {
    if theirs.options == 0 || theirs.vendor != qp.ece().vendor {
        return Ok(());
    }
    qp.set_ece(theirs)
}

impl Param {
    /// Copies the parameters, with the flag of the queue pair's shared receives, and its device's
    /// ECE options unless the program set some.
    pub(super) fn of_queue_pair<P: Provider>(&self, qp: &QueuePair<P>) -> Self {
        let ece = if self.ece == Ece::default() { qp.ece() } else { self.ece };
        Self { shared_receives: qp.core().srq().is_some(), ece, ..self.clone() }
    }

    /// Parameters of an answer: as [`of_queue_pair`](Self::of_queue_pair), with ECE options under
    /// the vendor of the request, and none where the request had none.
    pub(super) fn of_answer<P: Provider>(&self, qp: &QueuePair<P>, asked: Ece) -> Self {
        let mut param = self.of_queue_pair(qp);
        let shared = param.ece.vendor == asked.vendor;
        let options = if shared { param.ece.options } else { 0 };
        param.ece = Ece { vendor: asked.vendor, options };
        param
    }

    /// Both requested depths, supported or not; `most` for unset ones.
    pub(super) fn exact_depths(&self, most: Depths) -> Depths {
        Depths {
            serves: self.responder_resources.unwrap_or(most.serves),
            asks: self.initiator_depth.unwrap_or(most.asks),
        }
    }

    /// Both requested depths, limited by `able` and the peer's wishes.
    pub(super) fn depths(&self, able: Depths, peer: Option<Depths>) -> Depths {
        let most = able.least(peer.unwrap_or(Depths::MOST));
        self.exact_depths(most).least(most)
    }

    /// Encodes the parameters for the kernel's commands.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for private data or retries over their fields.
    pub(super) fn to_kernel(
        &self,
        verb: &'static str,
        qpn: u32,
        depths: Depths,
    ) -> Result<rdma_ucm_conn_param, Error> {
        Error::limit(verb, "retry count", self.retry_count.into(), 7)?;
        Error::limit(verb, "RNR retry count", self.rnr_retry_count.into(), 7)?;
        Error::limit(verb, "vendor of ECE", self.ece.vendor, 0xff_ffff)?;
        let mut param = rdma_ucm_conn_param {
            qp_num: qpn,
            responder_resources: depths.serves,
            initiator_depth: depths.asks,
            flow_control: 1,
            retry_count: self.retry_count,
            rnr_retry_count: self.rnr_retry_count,
            srq: self.shared_receives.into(),
            valid: 1,
            ..Default::default()
        };
        param.private_data_len =
            put_private_data(verb, &mut param.private_data, &self.private_data)?;
        Ok(param)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths_are_the_least_of_all() {
        let able = Depths { serves: 16, asks: 8 };
        let all = Param::default();
        assert_eq!(all.depths(able, None), able);
        let peer = Some(Depths { serves: 4, asks: 200 });
        assert_eq!(all.depths(able, peer), Depths { serves: 4, asks: 8 });
        let few = Param { initiator_depth: Some(0), responder_resources: Some(9), ..all };
        assert_eq!(few.depths(able, None), Depths { serves: 9, asks: 0 });
        let many = Param { initiator_depth: Some(9), responder_resources: Some(17), ..few };
        assert_eq!(many.depths(able, None), able);
    }

    #[test]
    fn exact_depths_leave_what_was_asked_for_to_the_kernel() {
        let most = Depths { serves: 16, asks: 8 };
        assert_eq!(Param::default().exact_depths(most), most);
        let many = Param { responder_resources: Some(17), ..Param::default() };
        assert_eq!(many.exact_depths(most), Depths { serves: 17, asks: 8 });
        let few = Param { initiator_depth: Some(0), ..Param::default() };
        assert_eq!(few.exact_depths(most), Depths { serves: 16, asks: 0 });
    }

    #[test]
    fn what_has_no_room_is_refused() {
        let depths = Depths { serves: 1, asks: 1 };
        let refused =
            |param: Param| param.to_kernel("rdma_connect", 1, depths).unwrap_err().to_string();
        let data = refused(Param { private_data: vec![0; 256], ..Param::default() });
        assert!(data.contains("256") && data.contains("255"), "{data}");
        let retries = refused(Param { retry_count: 8, ..Param::default() });
        assert!(retries.contains("retry count is 8"), "{retries}");
    }
}
