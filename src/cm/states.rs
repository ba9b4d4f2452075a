//! A queue pair's changes of state, as the connection manager says.
//!
//! It answers `INIT_QP_ATTR` with attributes and a mask. As librdmacm does (`cma.c`,
//! `ucma_modify_qp_rtr`, `ucma_modify_qp_rts`), INIT comes again before RTR, since only then the
//! rights are known, and how many READs go either way is the program's to say.
//!
//! iWARP's queue pairs are brought to RTS by the kernel, with their connection. Its answers say so
//! by a mask without a path (kernel `iwcm.c`, `iw_cm_init_qp_attr`).

use uverbs_core::attr::{
    AccessFlags, AckTimeout, InitAttr, Mtu, Path, RnrTimer, RtrAttr, RtsAttr, UdInitAttr,
    UdRtrAttr, UnreliableRtsAttr,
};
use uverbs_core::error::Error;
use uverbs_kernel_abi::qp::{IB_QP_AV, IB_QPS_INIT, IB_QPS_RTR, IB_QPS_RTS};

use super::Id;
use super::param::Depths;
use crate::QueuePair;
use crate::provider::Provider;
use crate::transport::Ud;

impl Id {
    /// Brings a queue pair to INIT on this id's port: receives can be posted from here on.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` before the address was resolved.
    #[doc(alias = "rdma_init_qp_attr")]
    pub fn init<P: Provider>(&self, qp: &mut QueuePair<P>) -> Result<(), Error> {
        self.note_able(Depths::able(qp));
        let attr = self.init_qp_attr(IB_QPS_INIT)?;
        qp.init(&InitAttr {
            port: attr.port_num,
            pkey_index: attr.pkey_index,
            access: AccessFlags::from_bits_truncate(attr.qp_access_flags),
        })
    }

    /// Brings a queue pair for datagrams to RTS on this id's port, with the port space's Q_Key.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` before the address was resolved.
    #[doc(alias = "rdma_create_qp")]
    pub fn bring_up_datagrams<P: Provider>(&self, qp: &mut QueuePair<P, Ud>) -> Result<(), Error> {
        self.note_able(Depths::able(qp));
        let attr = self.init_qp_attr(IB_QPS_INIT)?;
        let (port, pkey_index, qkey) = (attr.port_num, attr.pkey_index, attr.qkey);
        qp.init(&UdInitAttr { port, pkey_index, qkey })?;
        qp.ready_to_receive(&UdRtrAttr)?;
        qp.ready_to_send(&UnreliableRtsAttr { sq_psn: 0 })
    }

    /// Brings a queue pair from RESET or INIT to RTS. Call it after the peer's request or answer
    /// has arrived. `responder_resources` is the number of READs and atomics that the queue pair
    /// serves at a time, `initiator_depth` the number that it may have outstanding.
    /// On iWARP the kernel makes the transition when the connection is established, and takes these
    /// numbers from the connection's parameters and the peer's answer. A client on siw passes the
    /// `responder_resources` of [`Established`](crate::cm::EventKind::Established) as its
    /// `initiator_depth`: with 0 its READs are refused.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` before the peer's message arrived.
    #[doc(alias = "rdma_init_qp_attr")]
    pub fn ready<P: Provider>(
        &self,
        qp: &mut QueuePair<P>,
        responder_resources: u8,
        initiator_depth: u8,
    ) -> Result<(), Error> {
        let depths = Depths { serves: responder_resources, asks: initiator_depth };
        self.init(qp)?;
        let attr = self.init_qp_attr(IB_QPS_RTR)?;
        if attr.qp_attr_mask & IB_QP_AV == 0 {
            return qp.connected(depths.asks.min(self.served()));
        }
        qp.ready_to_receive(&RtrAttr {
            dest_qpn: attr.dest_qp_num,
            rq_psn: attr.rq_psn,
            path_mtu: Mtu::from_raw(u8::try_from(attr.path_mtu).unwrap_or(0)),
            path: Path::from_ah(&attr.ah_attr),
            max_dest_rd_atomic: depths.serves,
            // The kernel leaves 0, which is 655 ms (`cma.c:rdma_init_qp_attr`).
            min_rnr_timer: match attr.min_rnr_timer {
                0 => RnrTimer::DEFAULT,
                code => RnrTimer::from_code(code).unwrap_or(RnrTimer::DEFAULT),
            },
        })?;
        let attr = self.init_qp_attr(IB_QPS_RTS)?;
        qp.ready_to_send(&RtsAttr {
            sq_psn: attr.sq_psn,
            max_rd_atomic: depths.asks,
            timeout: AckTimeout::from_code(attr.timeout).unwrap_or(AckTimeout::DEFAULT),
            retry_count: attr.retry_cnt,
            rnr_retry: attr.rnr_retry,
        })
    }
}
