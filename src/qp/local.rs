//! The local half of a connection: port, GID, rights and timers of this side.

use uverbs_core::attr::{AccessFlags, AckTimeout, Mtu, RnrTimer};

/// Local half of a connection: attributes to bring a queue pair up with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Local {
    /// Port, from 1. Default 1.
    pub port: u8,
    /// Index into the port's GID table. Default `None`: takes
    /// [`Context::best_gid`](crate::Context::best_gid).
    pub gid_index: Option<u32>,
    /// Index into the port's partition table. Default 0, the full partition of most ports.
    pub pkey_index: u16,
    /// Rights of the peer in memory exposed to it. Default none. Atomics are left out on a device
    /// without them ([`DeviceAttr::atomic_cap`](crate::DeviceAttr)).
    pub access: AccessFlags,
    /// First PSN, 24 bits. Default `None`: takes a random one.
    pub psn: Option<u32>,
    /// Largest packet payload. Default `None`: takes the port's, and `connect` the smaller of both
    /// sides'.
    pub mtu: Option<Mtu>,
    /// READs and atomics outstanding in each direction, as far as the device has them. Default 16.
    pub rd_atomic: u8,
    /// RNR timer: time that the peer waits before it retries a message without a posted receive.
    /// Default [`RnrTimer::DEFAULT`], 0.64 ms. A longer one makes a sender sleep where a receiver
    /// lags for a moment.
    pub min_rnr_timer: RnrTimer,
    /// Time to wait for an acknowledgement. Default [`AckTimeout::DEFAULT`], 67 ms.
    pub timeout: AckTimeout,
    /// Retries after a timeout or a sequence error, 0 to 7. Default 7.
    pub retry_count: u8,
    /// Retries after receiver-not-ready, 0 to 6; 7 is unlimited. Default 7, as perftest and
    /// librdmacm have it, since six retries of the default timer take 4 ms, less than the time that
    /// a receiver may wait for a processor. A SEND to a peer that lives and never posts a receive
    /// stays outstanding; a wait for its completion ends at the wait's limit.
    pub rnr_retry: u8,
    /// Service level, 0 to 15. Default 0.
    pub service_level: u8,
    /// Traffic class (DSCP and ECN on RoCE v2). Default 0.
    pub traffic_class: u8,
    /// Hop limit. Default 64.
    pub hop_limit: u8,
    /// The Q_Key that datagrams must carry to be received, UD only. Default `0x1111_1111`.
    pub qkey: u32,
}

impl Default for Local {
    /// Port 1, the best GID, no remote rights, 67 ms times seven for an acknowledgement, unlimited
    /// retries each 0.64 ms for a receive that isn't posted. To let the peer write, set `access`:
    ///
    /// ```
    /// # use uverbs::{AccessFlags, Local};
    /// let local = Local { access: AccessFlags::REMOTE_WRITE, ..Local::default() };
    /// ```
    fn default() -> Self {
        Self {
            port: 1,
            gid_index: None,
            pkey_index: 0,
            access: AccessFlags::empty(),
            psn: None,
            mtu: None,
            rd_atomic: 16,
            min_rnr_timer: RnrTimer::DEFAULT,
            timeout: AckTimeout::DEFAULT,
            retry_count: 7,
            rnr_retry: 7,
            service_level: 0,
            traffic_class: 0,
            hop_limit: 64,
            qkey: 0x1111_1111,
        }
    }
}
