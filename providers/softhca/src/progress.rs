//! Work of devices in a client thread's empty polls, while the devices' threads nap.
//!
//! A thread may post to one device and poll a queue of another: an empty poll does the work of both
//! if the thread polled the first one shortly before.
//!
//! An acknowledgement is delayed for the reply of a thread that polls, and the thread may end
//! instead. It sends its devices' delayed acknowledgements, also when it ends the process by
//! `exit`, which destroys the calling thread's thread-local values first (glibc). `_exit`,
//! `quick_exit`, `execve`, a signal, and musl's `exit` destroy none: the device's thread sends the
//! acknowledgement within two naps (400 us). If the process ends earlier, the acknowledgement is
//! lost, and the peer reports an error for a SEND that was delivered.

use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::{panic, thread};

use uverbs_core::memory::process::Process;

use crate::handle::Handle;
use crate::run::{self, Looked, Shared};

/// Other devices that an empty poll works for.
const OTHERS: usize = 3;
/// Empty polls of one device after which the others are left to their threads.
const ALONE: u32 = 1000;

thread_local! {
    static POLLED: RefCell<Polled> =
        const { RefCell::new(Polled { devices: Vec::new(), alone: 0 }) };
}

/// Devices whose queues this thread polled.
struct Polled {
    /// Devices of the thread; the one whose queue was polled last is the last.
    devices: Vec<(Process, Weak<Shared>)>,
    /// Empty polls of the last one since another was polled.
    alone: u32,
}

impl Polled {
    fn note(&mut self, device: &Handle) {
        if self.devices.last().is_some_and(|(_, last)| device.is(last)) {
            self.alone = self.alone.saturating_add(1);
            return;
        }
        self.alone = 0;
        match self.devices.iter().position(|(_, known)| device.is(known)) {
            Some(at) => self.devices[at..].rotate_left(1),
            None => {
                self.devices.retain(|(_, known)| known.strong_count() != 0);
                self.devices.push((Process::current(), device.downgrade()));
            }
        }
    }

    /// The last few devices, the one polled last first. A forked child has copies of its parent's.
    fn recent(&self) -> impl Iterator<Item = Arc<Shared>> {
        let devices = self.devices.iter().rev();
        let own = devices.filter(|(process, _)| process.is_current());
        own.filter_map(|(_, device)| device.upgrade()).take(1 + OTHERS)
    }

    /// Does the work of the devices that were polled shortly before the last one; true if there
    /// was any.
    fn work_for_others(&self) -> bool {
        self.alone < ALONE && self.recent().skip(1).any(|other| other.progress() == Looked::Worked)
    }
}

/// Does the work of a device on a thread that found nothing in its queue, and of the thread's other
/// devices. Yields the processor if there was no work.
pub(crate) fn work(device: &Handle) {
    let looked = device.progress();
    // Fails at the thread's end alone, and in a signal handler.
    let worked = POLLED.try_with(|polled| {
        let Ok(mut polled) = polled.try_borrow_mut() else { return false };
        polled.note(device);
        looked == Looked::Nothing && polled.work_for_others()
    });
    if looked == Looked::Nothing && worked != Ok(true) {
        thread::yield_now();
    }
}

/// Ends the naps of a device and of those that this thread polled, since it will sleep.
pub(crate) fn end_naps(device: &Shared) {
    device.end_nap();
    let _ = POLLED.try_with(|polled| {
        if let Ok(polled) = polled.try_borrow() {
            polled.recent().for_each(|other| other.end_nap());
        }
    });
}

impl Drop for Polled {
    fn drop(&mut self) {
        // A signal handler may end the process while this thread holds a device's lock.
        if run::works() {
            return;
        }
        for (process, device) in self.devices.drain(..) {
            // A forked child has copies of its parent's devices.
            if process.is_current()
                && let Some(device) = device.upgrade()
            {
                // A panic is a defect, and its message is printed.
                let _ = panic::catch_unwind(panic::AssertUnwindSafe(|| device.send_delayed_acks()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::SoftHca;

    /// Slices that this thread runs on each device in one more empty poll of the last, after
    /// `alone` of them.
    fn slices(devices: &[&Handle], alone: u32) -> Vec<u64> {
        devices.iter().for_each(|device| work(device));
        POLLED.with_borrow_mut(|polled| polled.alone = alone);
        let before: Vec<u64> = devices.iter().map(|device| device.client_slices()).collect();
        // Longer than a device is left alone after it had no work.
        thread::sleep(Duration::from_millis(1));
        if let Some(last) = devices.last() {
            work(last);
        }
        devices.iter().zip(before).map(|(device, before)| device.client_slices() - before).collect()
    }

    #[test]
    fn an_empty_poll_works_for_the_devices_that_the_thread_polled_before() {
        let devices: Vec<SoftHca> = (0..6).map(|_| SoftHca::builder().build().unwrap()).collect();
        let devices: Vec<&Handle> = devices.iter().map(|device| &device.inner.shared).collect();
        for (alone, wanted) in [(0, [0, 0, 1, 1, 1, 1]), (ALONE, [0, 0, 0, 0, 0, 1])] {
            // A device's own thread may be at work; then the look fails, and is repeated.
            let found = (0..1000).any(|_| slices(&devices, alone) == wanted);
            assert!(found, "{wanted:?} after {alone} empty polls");
        }
    }
}
