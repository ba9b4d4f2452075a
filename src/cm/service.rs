//! Services that InfiniBand's subnet administration knows by number or name, and events that a
//! program writes itself: what Linux 6.17 brought.

use uverbs_core::attr::Gid;
use uverbs_core::commands::cm::SERVICE_LEN;
use uverbs_core::error::Error;
use uverbs_kernel_abi::rdma_cm::{
    RDMA_USER_CM_IB_SERVICE_FLAG_ID, RDMA_USER_CM_IB_SERVICE_FLAG_NAME,
    RDMA_USER_CM_IB_SERVICE_NAME_SIZE, rdma_ucm_ib_service,
};

use super::Id;

/// `enum rdma_cm_event_type` (`rdma/rdma_cm.h`).
const USER: u32 = 18;

/// Key of a search for services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceKey<'a> {
    /// Service id.
    Id(u64),
    /// Service name, at most 63 bytes.
    Name(&'a str),
}

impl ServiceKey<'_> {
    fn to_kernel(self) -> Result<rdma_ucm_ib_service, Error> {
        let mut service = rdma_ucm_ib_service::default();
        match self {
            Self::Id(id) => {
                (service.service_id, service.flags) = (id, RDMA_USER_CM_IB_SERVICE_FLAG_ID);
            }
            Self::Name(name) => {
                // A zero ends it.
                let most = RDMA_USER_CM_IB_SERVICE_NAME_SIZE - 1;
                let (value, limit) = (name.len() as u64, most as u64);
                if name.len() > most {
                    let (verb, what) = ("rdma_resolve_addrinfo", "length of the service's name");
                    return Err(Error::Limit { verb, what, value, limit });
                }
                service.service_name[..name.len()].copy_from_slice(name.as_bytes());
                service.flags = RDMA_USER_CM_IB_SERVICE_FLAG_NAME;
            }
        }
        Ok(service)
    }
}

/// A service as InfiniBand's subnet administration has it. IBTA vol 1, 15.2.5.14.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceRecord {
    /// Service id, which connections name.
    pub id: u64,
    /// The port that offers it.
    pub gid: Gid,
    /// The partition.
    pub pkey: u16,
    /// Seconds for which it is offered; 0xffffffff is for ever.
    pub lease: u32,
    /// Key that a change of the record must name.
    pub key: [u8; 16],
    /// Service name, up to the first zero.
    pub name: Vec<u8>,
    /// 64 bytes of service data: 16 of 8 bits, 8 of 16 bits, 4 of 32 bits and 2 of 64 bits, all
    /// big-endian.
    pub data: [u8; 64],
}

impl ServiceRecord {
    /// A `struct ib_user_service_rec` (kernel `rdma/ib_user_sa.h`).
    fn from_kernel(bytes: &[u8; SERVICE_LEN]) -> Self {
        fn part<const LEN: usize>(bytes: &[u8; SERVICE_LEN], at: usize) -> [u8; LEN] {
            std::array::from_fn(|byte| bytes[at + byte])
        }
        let name: [u8; RDMA_USER_CM_IB_SERVICE_NAME_SIZE] = part(bytes, 48);
        Self {
            id: u64::from_be_bytes(part(bytes, 0)),
            gid: Gid(part(bytes, 8)),
            pkey: u16::from_be_bytes(part(bytes, 24)),
            lease: u32::from_be_bytes(part(bytes, 28)),
            key: part(bytes, 32),
            name: name.into_iter().take_while(|byte| *byte != 0).collect(),
            data: part(bytes, 112),
        }
    }
}

impl Id {
    /// Starts to search for a service, from an id that is [bound](Self::bind) to a device's
    /// address. On [`ServiceResolved`](super::EventKind::ServiceResolved) the
    /// [records](Self::service_records) are available and the port of the first is the peer;
    /// [`ServiceError`](super::EventKind::ServiceError) reports a failure.
    ///
    /// Needs Linux 6.17, and a port of InfiniBand.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] on older kernels, and on RoCE and iWARP; [`Error::Limit`] for a name
    /// that is too long; [`Error::Kernel`]: `EINVAL` for an id that isn't bound to a device, or has
    /// resolved something already.
    #[doc(alias = "rdma_resolve_addrinfo")]
    pub fn resolve_service(&self, service: ServiceKey<'_>) -> Result<(), Error> {
        self.channel().ucma().resolve_ib_service(self.number(), &service.to_kernel()?)
    }

    /// The records of the service that was found.
    ///
    /// Needs Linux 6.17.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] on older kernels; [`Error::Kernel`]: `ENODATA` where none was found.
    #[doc(alias = "rdma_query_addrinfo")]
    pub fn service_records(&self) -> Result<Vec<ServiceRecord>, Error> {
        let records = self.channel().ucma().query_ib_service(self.number())?;
        Ok(records.iter().map(ServiceRecord::from_kernel).collect())
    }

    /// Puts an event of the program behind the pending events of this id:
    /// [`User`](super::EventKind::User), with a status and an [argument](super::Event::argument).
    /// It wakes a thread that waits at the channel.
    ///
    /// Needs Linux 6.17.
    ///
    /// ```
    /// use std::time::Duration;
    /// use uverbs::cm::{EventChannel, EventKind, PortSpace};
    ///
    /// let channel = EventChannel::of(&uverbs::device("softhca0")?)?;
    /// let id = channel.create_id(PortSpace::Tcp)?;
    /// id.write_event(0, 42)?;
    /// let event = channel.next(Duration::from_secs(1))?;
    /// assert_eq!((event.kind(), event.argument()), (EventKind::User, 42));
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] on older kernels; [`Error::Kernel`]: `EINVAL` for the id of a request
    /// that isn't accepted.
    #[doc(alias = "rdma_write_cm_event")]
    pub fn write_event(&self, status: i32, argument: u64) -> Result<(), Error> {
        self.channel().ucma().write_event(self.number(), USER, status, argument)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of C's structure, by its fields' offsets.
    #[test]
    fn a_record_is_that_of_c() {
        let mut bytes = [0; SERVICE_LEN];
        bytes[..8].copy_from_slice(&0x0102_0304_0506_0708u64.to_be_bytes());
        bytes[8..24].copy_from_slice(&[0xfe; 16]);
        bytes[24..26].copy_from_slice(&[0x80, 1]);
        bytes[28..32].copy_from_slice(&[0, 0, 1, 0]);
        bytes[32..48].copy_from_slice(&[7; 16]);
        bytes[48..52].copy_from_slice(b"disk");
        bytes[112..].copy_from_slice(&[9; 64]);
        let record = ServiceRecord::from_kernel(&bytes);
        let wanted = ServiceRecord {
            id: 0x0102_0304_0506_0708,
            gid: Gid([0xfe; 16]),
            pkey: 0x8001,
            lease: 256,
            key: [7; 16],
            name: b"disk".to_vec(),
            data: [9; 64],
        };
        assert_eq!(record, wanted);
    }

    #[test]
    fn a_name_has_room_for_63_bytes() {
        let name = "n".repeat(63);
        let service = ServiceKey::Name(&name).to_kernel().unwrap();
        assert_eq!(service.service_name[62..], [b'n', 0]);
        let long = "n".repeat(64);
        let error = ServiceKey::Name(&long).to_kernel().unwrap_err();
        assert!(matches!(error, Error::Limit { value: 64, limit: 63, .. }), "{error}");
    }
}
