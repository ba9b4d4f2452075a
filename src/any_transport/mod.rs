//! Queue pairs whose transport is chosen at run time, for programs that take it as an option.
//!
//! The same code brings up, connects and posts over each transport. A
//! [`QueuePair`](crate::QueuePair), whose transport is its type, has more operations, and refuses
//! the others when it compiles.
//!
//! ```
//! use std::time::Duration;
//!
//! use uverbs::Local;
//! use uverbs::any_transport::{AnyQueuePair, AnyReceives, TransportName};
//!
//! # let context = uverbs::device("softhca0")?.open()?;
//! # let pd = context.alloc_pd()?;
//! # for option in ["RC", "UC", "UD", "XRC", "DC"] {
//! let transport: TransportName = option.parse()?;
//! let mut cq = context.create_cq(512)?;
//! let mut receives = match transport.needs_shared_receives() {
//!     true => AnyReceives::shared(&context, &pd, &cq, transport, 16)?,
//!     false => AnyReceives::own(),
//! };
//! let builder = || context.queue_pair(&pd, &cq).max_recv_wr(16);
//! let mut client = AnyQueuePair::build(builder(), transport, &receives)?;
//! let mut server = AnyQueuePair::build(builder(), transport, &receives)?;
//!
//! // The sides exchange their endpoints as text.
//! let [here, there] = [client.bring_up(&Local::default())?, server.bring_up(&Local::default())?];
//! client.connect(&there.to_string().parse()?)?;
//! server.connect(&here.to_string().parse()?)?;
//!
//! receives.post(server.recv_queue(), 1, pd.slab(64, 1)?.take().expect("it is new"))?;
//! let mut batch = client.batch();
//! batch.send_inline(uverbs::Wr::new(2).unsignaled(), b"hello")?;
//! batch.ring();
//! let done = cq.wait(Duration::from_secs(20))?;
//! let frame = done.frame.expect("a receive has one");
//! assert_eq!(&frame[transport.recv_offset()..], b"hello");
//! # }
//! # Ok::<(), uverbs::Error>(())
//! ```

mod batch;
mod endpoint;
mod name;
mod queue_pair;
mod receives;

pub use batch::AnyBatch;
pub use endpoint::AnyEndpoint;
pub use name::TransportName;
pub use queue_pair::AnyQueuePair;
pub use receives::AnyReceives;
