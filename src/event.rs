//! Asynchronous events of devices, ports and objects.

/// File of a device's asynchronous events, made by
/// [`Context::async_events`](crate::Context::async_events). It can be polled with
/// others:
///
/// ```
/// # let context = uverbs::device("softhca0")?.open()?;
/// use std::os::fd::AsFd;
///
/// let events = context.async_events();
/// let file = events.as_fd(); // for poll, epoll or a reactor
/// if let Some(event) = events.try_next()? {
///     println!("{:?}", event.kind);
/// }
/// # Ok::<(), uverbs::Error>(())
/// ```
///
#[doc(inline)]
pub use uverbs_core::objects::event::AsyncEvents;
#[doc(inline)]
pub use uverbs_core::objects::event::{AsyncElement, AsyncEvent, AsyncEventKind};
