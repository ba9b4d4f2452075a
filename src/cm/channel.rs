//! Event channels.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use uverbs_core::Errno;
use uverbs_core::commands::cm::Ucma;
use uverbs_core::doors::cm::{CmDoor, KernelCmDoor};
use uverbs_core::error::Error;
use uverbs_core::objects::event::wait_readable;

use super::{Event, Id, PortSpace};
use crate::Device;

/// Event channel of one or more [`Id`]s. Clones are handles of one channel, which closes when its
/// last handle and its last id are dropped.
#[derive(Clone, Debug)]
#[doc(alias = "rdma_event_channel")]
pub struct EventChannel {
    ucma: Ucma,
    /// Device that the channel serves; `None` serves all devices of the kernel.
    device: Option<Device>,
}

impl EventChannel {
    /// Opens a channel of the kernel's connection manager.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] where the module `rdma_ucm` isn't loaded;
    /// [`Error::PermissionDenied`]; [`Error::System`].
    #[doc(alias = "rdma_create_event_channel")]
    pub fn open() -> Result<Self, Error> {
        Self::opened(KernelCmDoor::open().map(|door| Arc::new(door) as Arc<dyn CmDoor>))
    }

    /// Opens a channel of the connection manager that connects this device. A software HCA has a
    /// separate connection manager for itself. For the kernel's devices this equals
    /// [`open`](Self::open).
    ///
    /// ```
    /// use uverbs::cm::{EventChannel, Listener};
    ///
    /// let device = uverbs::device("softhca0")?;
    /// let channel = EventChannel::of(&device)?;
    /// let listener = Listener::builder("0.0.0.0:0".parse()?).listen_on(channel)?;
    /// # drop(listener);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for a device without one; as [`open`](Self::open).
    pub fn of(device: &Device) -> Result<Self, Error> {
        let mut channel = Self::opened(device.source().open_cm())?;
        channel.device = Some(device.clone());
        Ok(channel)
    }

    /// Another channel of the same connection manager.
    pub(super) fn another(&self) -> Result<Self, Error> {
        self.device.as_ref().map_or_else(Self::open, Self::of)
    }

    pub(super) fn device(&self) -> Option<&Device> {
        self.device.as_ref()
    }

    fn opened(door: Result<Arc<dyn CmDoor>, Errno>) -> Result<Self, Error> {
        match door {
            Ok(door) => Ok(Self::from_door(door)),
            Err(Errno::EOPNOTSUPP) => Err(Error::Unsupported {
                verb: "rdma_create_event_channel",
                what: "the connection manager on this device".to_owned(),
            }),
            Err(Errno::ENOENT | Errno::ENODEV | Errno::ENXIO) => Err(Error::Unsupported {
                verb: "rdma_create_event_channel",
                what: format!(
                    "the kernel's connection manager: {} isn't there (modprobe rdma_ucm). A \
                     software HCA has another: EventChannel::of(&device), and resolve_on or \
                     listen_on",
                    KernelCmDoor::NODE
                ),
            }),
            Err(Errno::EACCES | Errno::EPERM) => {
                Err(Error::PermissionDenied { path: KernelCmDoor::NODE.to_owned() })
            }
            Err(errno) => Err(Error::System { what: "opening the connection manager", errno }),
        }
    }

    /// A channel of another connection manager: a wrapper that records or injects faults.
    #[must_use]
    pub fn from_door(door: Arc<dyn CmDoor>) -> Self {
        Self { ucma: Ucma::new(door), device: None }
    }

    pub(super) fn ucma(&self) -> &Ucma {
        &self.ucma
    }

    /// Creates an id whose events come to this channel.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `ENOMEM`.
    #[doc(alias = "rdma_create_id")]
    pub fn create_id(&self, space: PortSpace) -> Result<Id, Error> {
        Id::create(self.clone(), space)
    }

    /// The next event, if there is one now.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EIO` of a removed device.
    pub fn try_next(&self) -> Result<Option<Event>, Error> {
        Ok(self.ucma.next_event()?.map(|event| Event::new(event, self)))
    }

    /// Waits at most `limit` for the next event.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`]; [`Error::Kernel`]: `EIO` of a removed device.
    #[doc(alias = "rdma_get_cm_event")]
    pub fn next(&self, limit: Duration) -> Result<Event, Error> {
        // Waits first: most events are not pending yet, and a read that finds none is a wasted
        // system call.
        let start = Instant::now();
        let mut left = limit;
        loop {
            wait_readable(self.as_fd(), left)
                .map_err(|errno| Error::System { what: "waiting for an event", errno })?;
            if let Some(event) = self.try_next()? {
                return Ok(event);
            }
            let waited = start.elapsed();
            left = limit.saturating_sub(waited);
            if left.is_zero() {
                return Err(Error::TimedOut { verb: "rdma_get_cm_event", waited, why: None });
            }
        }
    }

    /// Returns the first result of `take`, and passes over events without one. Ends within `limit`,
    /// also if events never end.
    pub(super) fn next_of<T>(
        &self,
        limit: Duration,
        mut take: impl FnMut(Event) -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        let start = Instant::now();
        loop {
            let event = self.next(limit.saturating_sub(start.elapsed()))?;
            if let Some(found) = take(event)? {
                return Ok(found);
            }
            let waited = start.elapsed();
            if waited >= limit {
                return Err(Error::TimedOut { verb: "rdma_get_cm_event", waited, why: None });
            }
        }
    }
}

/// Readable while an event is there.
impl AsFd for EventChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ucma.door().file()
    }
}

/// Key that names an id in events. Never 0: the kernel sends no events to an id with key 0.
pub(super) fn unique_key() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use nix::sys::eventfd::{EfdFlags, EventFd};
    use uverbs_core::doors::cm::CmCommand;

    use super::*;

    /// A connection manager whose events come when its file is written to.
    #[derive(Debug)]
    struct Door {
        file: EventFd,
        asked: AtomicU32,
    }

    impl CmDoor for Door {
        fn command(&self, _: CmCommand<'_>) -> Result<(), Errno> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            self.file.read().map(drop).map_err(|_| Errno::EAGAIN)
        }

        fn file(&self) -> BorrowedFd<'_> {
            self.file.as_fd()
        }
    }

    #[test]
    fn who_waits_asks_once() {
        let file = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_SEMAPHORE).unwrap();
        let door = Arc::new(Door { file, asked: AtomicU32::new(0) });
        let channel = EventChannel::from_door(Arc::clone(&door) as Arc<dyn CmDoor>);
        let asked = || door.asked.swap(0, Ordering::Relaxed);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(50));
                door.file.write(1).unwrap();
            });
            channel.next(Duration::from_secs(20)).unwrap();
        });
        assert_eq!(asked(), 1);
        // An event that is pending is returned without a wait.
        door.file.write(1).unwrap();
        channel.next(Duration::ZERO).unwrap();
        assert_eq!(asked(), 1);
        let error = channel.next(Duration::from_millis(10)).unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    }
}
