//! Async completions, events and streams for [`uverbs`], over tokio's reactor.
//!
//! A [`Channel`] is a completion channel that tokio watches. Completion queues that report to it
//! become [`Completions`], whose [`next`](Completions::next) a task awaits: it polls, and sleeps
//! when there is nothing. [`Events`] are the asynchronous events of a device. [`RdmaStream`] and
//! [`RdmaListener`] are [streams of bytes](uverbs_streams) with tokio's traits.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), uverbs::Error> {
//! # let context = uverbs::device("softhca0")?.open()?;
//! # let pd = context.alloc_pd()?;
//! use uverbs_tokio::Channel;
//!
//! let channel = Channel::new(&context)?;
//! let cq = context.completion_queue(256).channel(channel.inner()).build()?;
//! # let mut qp = context.queue_pair(&pd, &cq).build()?;
//! # qp.prepare(&Default::default())?;
//! # qp.connect_to_self()?;
//! let mut completions = channel.completions(cq)?;
//! # qp.post_recv(1, pd.slab(64, 1)?.take().expect("it is new"))?;
//! qp.post_send_inline(2, b"to myself")?;
//! for _ in 0..2 {
//!     let done = completions.next().await?;
//!     println!("{}: {:?}", done.id, done.result?);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! *Cancellation.* Every future here can be dropped at any time, by `select!` or a timeout, and
//! nothing is lost: a completion or an event is taken in the same poll in which the future is
//! ready. What a future had asked for stays asked for, and the next one begins by polling.
//!
//! *Limits.* These waits have no timeout and end only with an event or the device's removal. Wrap
//! them in `tokio::time::timeout`.

mod completions;
mod events;
mod stream;
mod watch;

pub use completions::{Channel, Completions};
pub use events::Events;
pub use stream::{RdmaListener, RdmaStream};
