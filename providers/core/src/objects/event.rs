//! Asynchronous events: unsolicited reports of the device. IBTA vol 1, 11.6.3.

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno as Known;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use uverbs_kernel_abi::event as abi;
use zerocopy::{FromZeros, IntoBytes};

use crate::Errno;
use crate::error::Error;
use crate::memory::process::Process;

/// Kind of an asynchronous event. Numbers of `enum ib_event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_event_type")]
#[non_exhaustive]
pub enum AsyncEventKind {
    /// A completion queue overflowed, or failed.
    #[doc(alias = "IBV_EVENT_CQ_ERR")]
    CqError,
    /// A queue pair failed and cannot report it by a completion.
    #[doc(alias = "IBV_EVENT_QP_FATAL")]
    QpFatal,
    /// A queue pair received an invalid request.
    #[doc(alias = "IBV_EVENT_QP_REQ_ERR")]
    QpRequestError,
    /// A peer attempted an access without the rights.
    #[doc(alias = "IBV_EVENT_QP_ACCESS_ERR")]
    QpAccessError,
    /// A packet arrived on a queue pair in RTR: the connection is established.
    #[doc(alias = "IBV_EVENT_COMM_EST")]
    CommunicationEstablished,
    /// A send queue is drained.
    #[doc(alias = "IBV_EVENT_SQ_DRAINED")]
    SendQueueDrained,
    /// A connection migrated to its alternate path.
    #[doc(alias = "IBV_EVENT_PATH_MIG")]
    PathMigrated,
    /// A connection failed to migrate to its alternate path.
    #[doc(alias = "IBV_EVENT_PATH_MIG_ERR")]
    PathMigrationError,
    /// The device failed.
    #[doc(alias = "IBV_EVENT_DEVICE_FATAL")]
    DeviceFatal,
    /// A port's link came up.
    #[doc(alias = "IBV_EVENT_PORT_ACTIVE")]
    PortActive,
    /// A port's link went down.
    #[doc(alias = "IBV_EVENT_PORT_ERR")]
    PortError,
    /// A port's LID changed.
    #[doc(alias = "IBV_EVENT_LID_CHANGE")]
    LidChange,
    /// A port's P_Key table changed.
    #[doc(alias = "IBV_EVENT_PKEY_CHANGE")]
    PkeyChange,
    /// The subnet manager changed.
    #[doc(alias = "IBV_EVENT_SM_CHANGE")]
    SmChange,
    /// A shared receive queue failed.
    #[doc(alias = "IBV_EVENT_SRQ_ERR")]
    SrqError,
    /// A shared receive queue fell below its low-water limit.
    #[doc(alias = "IBV_EVENT_SRQ_LIMIT_REACHED")]
    SrqLimitReached,
    /// A queue pair in ERR has taken its last receive from the shared receive queue.
    #[doc(alias = "IBV_EVENT_QP_LAST_WQE_REACHED")]
    LastWqeReached,
    /// The subnet manager requests reregistration.
    #[doc(alias = "IBV_EVENT_CLIENT_REREGISTER")]
    ClientReregister,
    /// A port's GID table changed.
    #[doc(alias = "IBV_EVENT_GID_CHANGE")]
    GidChange,
    /// A work queue failed.
    #[doc(alias = "IBV_EVENT_WQ_FATAL")]
    WqFatal,
    /// A port's speed changed.
    SpeedChange,
    /// An unknown number.
    Unknown(u32),
}

/// Kinds and their numbers.
const KINDS: [(u32, AsyncEventKind); 21] = [
    (abi::IB_EVENT_CQ_ERR, AsyncEventKind::CqError),
    (abi::IB_EVENT_QP_FATAL, AsyncEventKind::QpFatal),
    (abi::IB_EVENT_QP_REQ_ERR, AsyncEventKind::QpRequestError),
    (abi::IB_EVENT_QP_ACCESS_ERR, AsyncEventKind::QpAccessError),
    (abi::IB_EVENT_COMM_EST, AsyncEventKind::CommunicationEstablished),
    (abi::IB_EVENT_SQ_DRAINED, AsyncEventKind::SendQueueDrained),
    (abi::IB_EVENT_PATH_MIG, AsyncEventKind::PathMigrated),
    (abi::IB_EVENT_PATH_MIG_ERR, AsyncEventKind::PathMigrationError),
    (abi::IB_EVENT_DEVICE_FATAL, AsyncEventKind::DeviceFatal),
    (abi::IB_EVENT_PORT_ACTIVE, AsyncEventKind::PortActive),
    (abi::IB_EVENT_PORT_ERR, AsyncEventKind::PortError),
    (abi::IB_EVENT_LID_CHANGE, AsyncEventKind::LidChange),
    (abi::IB_EVENT_PKEY_CHANGE, AsyncEventKind::PkeyChange),
    (abi::IB_EVENT_SM_CHANGE, AsyncEventKind::SmChange),
    (abi::IB_EVENT_SRQ_ERR, AsyncEventKind::SrqError),
    (abi::IB_EVENT_SRQ_LIMIT_REACHED, AsyncEventKind::SrqLimitReached),
    (abi::IB_EVENT_QP_LAST_WQE_REACHED, AsyncEventKind::LastWqeReached),
    (abi::IB_EVENT_CLIENT_REREGISTER, AsyncEventKind::ClientReregister),
    (abi::IB_EVENT_GID_CHANGE, AsyncEventKind::GidChange),
    (abi::IB_EVENT_WQ_FATAL, AsyncEventKind::WqFatal),
    (abi::IB_EVENT_DEVICE_SPEED_CHANGE, AsyncEventKind::SpeedChange),
];

impl AsyncEventKind {
    /// Converts the kernel's number, `IB_EVENT_*`.
    #[must_use]
    pub fn from_raw(raw: u32) -> Self {
        KINDS
            .iter()
            .find(|(number, _)| *number == raw)
            .map_or(Self::Unknown(raw), |&(_, kind)| kind)
    }

    /// The kernel's number.
    #[must_use]
    pub fn raw(self) -> u32 {
        match self {
            Self::Unknown(raw) => raw,
            known => {
                KINDS.iter().find(|(_, kind)| *kind == known).map_or(u32::MAX, |&(raw, _)| raw)
            }
        }
    }
}

/// Object that an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AsyncElement {
    /// A completion queue, by its `event_id` (`CompletionQueue::event_id`).
    Cq(u64),
    /// A queue pair, by its `event_id` (`QueuePair::event_id`).
    Qp(u64),
    /// A shared receive queue, by its `event_id` (`SharedReceiveQueue::event_id`).
    Srq(u64),
    /// A work queue, by its `event_id` (`WorkQueue::event_id`).
    Wq(u64),
    /// A port, from 1.
    Port(u64),
    /// The whole device.
    Device,
    /// An object of an unknown kind, by the number in the event.
    Unknown(u64),
}

/// An asynchronous event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_async_event")]
#[doc(alias = "ibv_ack_async_event")]
#[non_exhaustive]
pub struct AsyncEvent {
    /// Kind of the event.
    pub kind: AsyncEventKind,
    /// Object that the event is about.
    pub element: AsyncElement,
}

impl AsyncEvent {
    /// Converts the kernel's record. Kind of object of each event: rdma-core `libibverbs/device.c`,
    /// `ibv_get_async_event`.
    #[must_use]
    pub fn from_abi(desc: &abi::ib_uverbs_async_event_desc) -> Self {
        use AsyncEventKind as K;
        let kind = K::from_raw(desc.event_type);
        let element = match kind {
            K::CqError => AsyncElement::Cq(desc.element),
            K::QpFatal
            | K::QpRequestError
            | K::QpAccessError
            | K::CommunicationEstablished
            | K::SendQueueDrained
            | K::PathMigrated
            | K::PathMigrationError
            | K::LastWqeReached => AsyncElement::Qp(desc.element),
            K::SrqError | K::SrqLimitReached => AsyncElement::Srq(desc.element),
            K::WqFatal => AsyncElement::Wq(desc.element),
            K::DeviceFatal => AsyncElement::Device,
            K::PortActive
            | K::PortError
            | K::LidChange
            | K::PkeyChange
            | K::SmChange
            | K::ClientReregister
            | K::GidChange
            | K::SpeedChange => AsyncElement::Port(desc.element),
            K::Unknown(_) => AsyncElement::Unknown(desc.element),
        };
        Self { kind, element }
    }
}

impl fmt::Display for AsyncEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {:?}", self.kind, self.element)
    }
}

/// File that a device's asynchronous events are read from.
///
/// Events need no acknowledgement. libibverbs hands out pointers to objects, so a destruction there
/// waits until the program is done with each event. Here events name objects by numbers that are
/// never reused, and the kernel drops unread events of an object with the object
/// (`ib_uverbs_release_uevent`).
#[derive(Debug)]
pub struct AsyncEvents {
    file: OwnedFd,
    /// Process that opened the file. A forked child shares the file, and would take its parent's
    /// events.
    process: Process,
}

impl AsyncEvents {
    /// Takes the event file that the kernel opened, and makes it non-blocking.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if the file cannot be made non-blocking.
    pub fn new(file: OwnedFd) -> Result<Self, Error> {
        non_blocking(&file)?;
        Ok(Self { file, process: Process::current() })
    }

    /// Next event; `None` if no event is there.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] with the errno of the read; [`Error::OtherProcess`] in a forked child. The
    /// removal of a device is an event, [`AsyncEventKind::DeviceFatal`], and the last one.
    pub fn try_next(&self) -> Result<Option<AsyncEvent>, Error> {
        if !self.process.is_current() {
            return Err(Error::OtherProcess { verb: "get_async_event" });
        }
        let mut desc = abi::ib_uverbs_async_event_desc::new_zeroed();
        let bytes = desc.as_mut_bytes();
        loop {
            match nix::unistd::read(&self.file, bytes) {
                Ok(len) if len == bytes.len() => return Ok(Some(AsyncEvent::from_abi(&desc))),
                // End of file or a partial record, neither of which the kernel returns.
                Ok(_) => return Err(Error::kernel("get_async_event", Errno::EIO)),
                Err(Known::EAGAIN) => return Ok(None),
                Err(Known::EINTR) => {}
                Err(errno) => {
                    return Err(Error::kernel("get_async_event", Errno::of_nix(errno)));
                }
            }
        }
    }

    /// Waits up to `timeout` for the next event.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`]; [`Error::Kernel`] as [`Self::try_next`].
    #[doc(alias = "ibv_get_async_event")]
    pub fn next_within(&self, timeout: Duration) -> Result<AsyncEvent, Error> {
        let start = Instant::now();
        loop {
            if let Some(event) = self.try_next()? {
                return Ok(event);
            }
            let Some(left) = timeout.checked_sub(start.elapsed()).filter(|left| !left.is_zero())
            else {
                let waited = start.elapsed();
                return Err(Error::TimedOut { verb: "get_async_event", waited, why: None });
            };
            wait_readable(self.file.as_fd(), left)
                .map_err(|errno| Error::kernel("get_async_event", errno))?;
        }
    }
}

impl AsFd for AsyncEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl AsRawFd for AsyncEvents {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.file.as_raw_fd()
    }
}

/// Makes reads of `file` non-blocking.
pub(crate) fn non_blocking(file: &OwnedFd) -> Result<(), Error> {
    let system = |errno| Error::System { what: "fcntl", errno: Errno::of_nix(errno) };
    let flags = fcntl(file, FcntlArg::F_GETFL).map_err(system)?;
    let flags = OFlag::from_bits_retain(flags) | OFlag::O_NONBLOCK;
    fcntl(file, FcntlArg::F_SETFL(flags)).map_err(system)?;
    Ok(())
}

/// Waits about `timeout` until `file` is readable. May return early: the caller looks again.
///
/// # Errors
///
/// The errno of `poll`, except `EINTR`.
pub fn wait_readable(file: BorrowedFd<'_>, timeout: Duration) -> Result<(), Errno> {
    // Rounded up, so that the last fraction of a millisecond is slept, not spun.
    let millis = timeout.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32;
    let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
    match poll(&mut [PollFd::new(file, PollFlags::POLLIN)], timeout) {
        Ok(_) | Err(Known::EINTR) => Ok(()),
        Err(errno) => Err(Errno::of_nix(errno)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pipe() -> (AsyncEvents, OwnedFd) {
        let (read, write) = nix::unistd::pipe().unwrap();
        (AsyncEvents::new(read).unwrap(), write)
    }

    #[test]
    fn events_are_read_whole_and_in_order() {
        let (events, write) = pipe();
        assert_eq!(events.try_next().unwrap(), None);
        #[rustfmt::skip]
        let bytes = [
            [42u64.to_ne_bytes(), [0; 8]].concat(), // element, event_type CQ_ERR, reserved
            [1u64.to_ne_bytes(), (9u64.to_le()).to_ne_bytes()].concat(), // port 1, PORT_ACTIVE
        ]
        .concat();
        nix::unistd::write(&write, &bytes).unwrap();
        let next = || events.try_next().unwrap().map(|event| (event.kind, event.element));
        assert_eq!(next(), Some((AsyncEventKind::CqError, AsyncElement::Cq(42))));
        if cfg!(target_endian = "little") {
            assert_eq!(next(), Some((AsyncEventKind::PortActive, AsyncElement::Port(1))));
            assert_eq!(next(), None);
        }
    }

    #[test]
    fn a_wait_ends() {
        let (events, write) = pipe();
        let wait = Duration::from_millis(20);
        let start = Instant::now();
        assert!(matches!(events.next_within(wait), Err(Error::TimedOut { .. })));
        assert!(start.elapsed() >= wait);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(wait);
                let desc = abi::ib_uverbs_async_event_desc { event_type: 8, ..Default::default() };
                nix::unistd::write(&write, desc.as_bytes()).unwrap();
            });
            let event = events.next_within(Duration::from_secs(30)).unwrap();
            assert_eq!(event.element, AsyncElement::Device);
        });
    }

    #[test]
    fn the_end_of_the_file_is_an_error_and_not_a_loop() {
        let (events, write) = pipe();
        nix::unistd::write(&write, &[0; 5]).unwrap();
        drop(write);
        let eio = Error::kernel("get_async_event", Errno::EIO);
        assert_eq!(events.try_next(), Err(eio.clone()));
        assert_eq!(events.next_within(Duration::from_secs(30)), Err(eio));
    }

    proptest! {
        #[test]
        fn any_event_survives(element: u64, event_type: u32) {
            for event_type in [event_type, event_type % 32] {
                let desc = abi::ib_uverbs_async_event_desc { element, event_type, reserved: 0 };
                let event = AsyncEvent::from_abi(&desc);
                prop_assert_eq!(event.kind.raw(), event_type);
                prop_assert_eq!(event.element == AsyncElement::Unknown(element), event_type > 20);
            }
        }
    }
}
