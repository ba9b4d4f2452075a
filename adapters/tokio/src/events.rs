//! Asynchronous events of a device.
//!
//! # Safety
//!
//! One call, which hands the event file to tokio.
#![allow(unsafe_code, reason = "hands a file to tokio by its number")]

use std::os::fd::{AsFd, AsRawFd, RawFd};

use tokio::io::unix::AsyncFd;
use uverbs::event::AsyncEvent;
use uverbs::provider::Provider;
use uverbs::{Any, Context, Error};

use crate::watch::{system, watch};

/// The event file of an open device, which it keeps open.
#[derive(Debug)]
struct File<P: Provider>(Context<P>);

impl<P: Provider> AsRawFd for File<P> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.async_events().as_fd().as_raw_fd()
    }
}

/// The asynchronous events of an open device, watched by tokio. Make one per context: each event is
/// read once, by the first reader.
#[derive(Debug)]
pub struct Events<P: Provider = Any> {
    file: AsyncFd<File<P>>,
}

impl<P: Provider> Events<P> {
    /// Watches the context's events on the current runtime.
    ///
    /// # Errors
    ///
    /// [`Error::System`] where tokio can't watch the file: `EEXIST` if it is watched already.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime, and in a runtime without I/O.
    pub fn new(context: &Context<P>) -> Result<Self, Error> {
        // SAFETY: a context has one such file, and keeps it open.
        let file = unsafe { watch(File(context.clone()), "watching asynchronous events") }?;
        Ok(Self { file })
    }

    /// The next event.
    ///
    /// # Errors
    ///
    /// As [`AsyncEvents::try_next`](uverbs::event::AsyncEvents::try_next). The device's removal is
    /// an event, [`DeviceFatal`](uverbs::event::AsyncEventKind::DeviceFatal), the last one.
    pub async fn next(&self) -> Result<AsyncEvent, Error> {
        loop {
            let mut ready = self.file.readable().await.map_err(|error| system("epoll", &error))?;
            if let Some(event) = ready.get_inner().0.async_events().try_next()? {
                return Ok(event);
            }
            ready.clear_ready();
        }
    }
}
