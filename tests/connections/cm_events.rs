//! Connection manager features of Linux 6.17: events that a program writes itself, and services of
//! InfiniBand's subnet administration. Older kernels reject them.

use std::fmt::Debug;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use common::{LIMIT, device_with_address};
use uverbs::cm::{EventChannel, EventKind, PortSpace, ServiceKey};
use uverbs::unstable::doors::cm::{CmCommand, CmDoor};
use uverbs::{Errno, Error};

/// A connection manager before Linux 6.17: commands from this number on are unknown
/// (`ucma.c:ucma_write`), and so is the query of a service (`ucma_query`).
#[derive(Debug)]
struct OldDoor(Arc<dyn CmDoor>);

impl CmDoor for OldDoor {
    fn command(&self, command: CmCommand<'_>) -> Result<(), Errno> {
        const QUERY: u32 = 19;
        let old_query = command.number == QUERY && command.request.get(12) == Some(&3);
        match command.number {
            23.. => Err(Errno::EINVAL),
            _ if old_query => Err(Errno::ENOSYS),
            _ => self.0.command(command),
        }
    }

    fn file(&self) -> BorrowedFd<'_> {
        self.0.file()
    }
}

/// True if the error names the kernel that the call needs.
fn says_which_kernel<T: Debug>(result: Result<T, Error>) -> bool {
    let error = result.unwrap_err();
    matches!(&error, Error::Unsupported { .. }) && error.to_string().contains("6.17")
}

#[test]
fn what_an_older_kernel_lacks_is_told_with_the_kernel_that_has_it() {
    let Some((device, ip)) = device_with_address() else { return };
    let door = device.source().open_cm().unwrap();
    let id = EventChannel::from_door(Arc::new(OldDoor(door))).create_id(PortSpace::Tcp).unwrap();
    id.bind((ip, 0).into()).unwrap();
    assert!(says_which_kernel(id.write_event(0, 1)));
    assert!(says_which_kernel(id.resolve_service(ServiceKey::Id(1))));
    assert!(says_which_kernel(id.service_records()));
}

#[test]
fn an_event_of_the_programs_own_comes_in_order() {
    let Some((device, ip)) = device_with_address() else { return };
    let channel = EventChannel::of(&device).unwrap();
    let (first, other) = (channel.create_id(PortSpace::Tcp), channel.create_id(PortSpace::Udp));
    let (first, other) = (first.unwrap(), other.unwrap());
    if let Err(error) = first.write_event(-5, u64::MAX) {
        // A kernel without it says which one has it.
        assert!(says_which_kernel(Err::<(), _>(error)));
        return;
    }
    other.write_event(7, 3).unwrap();
    for (id, status, argument) in [(&first, -5, u64::MAX), (&other, 7, 3)] {
        let event = channel.next(LIMIT).unwrap();
        assert_eq!(event.kind(), EventKind::User);
        assert_eq!((event.key(), event.status(), event.argument()), (id.key(), status, argument));
    }
    assert!(channel.try_next().unwrap().is_none());

    // Ethernet has no subnet administration, and an id without a device supports no services.
    let error = first.resolve_service(ServiceKey::Name("disks")).unwrap_err();
    assert_eq!(error.to_errno(), Errno::EINVAL, "{error}");
    first.bind((ip, 0).into()).unwrap();
    let error = first.resolve_service(ServiceKey::Name("disks")).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    let error = first.service_records().unwrap_err();
    assert_eq!(error.to_errno(), Errno::ENODATA, "{error}");
}
