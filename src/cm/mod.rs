//! The connection manager: queue pairs that are connected by IP address, as sockets are.
//!
//! A [`Listener`] waits at an address, a [`Connector`] goes to one. Both end in a [`Connection`],
//! which owns the queue pair and the id of the connection. Device and port follow from the
//! addresses, so the queue pair is made after they are known:
//!
//! ```no_run
//! use std::time::Duration;
//! use uverbs::cm::{Connector, Param};
//!
//! let route = Connector::new("10.0.0.1:7471".parse()?).resolve()?;
//! let context = route.device()?.open()?;
//! let pd = context.alloc_pd()?;
//! let mut cq = context.create_cq(256)?;
//! let mut qp = context.queue_pair(&pd, &cq).build()?;
//! route.init(&mut qp)?; // from here on receives can be posted
//! let slab = pd.slab(64, 1)?;
//! qp.post_recv(1, slab.take().expect("it is new"))?;
//! let mut connection = route.connect(qp, &Param::default())?;
//! connection.queue_pair().post_send_inline(2, b"hello")?;
//! # let _ = &mut cq;
//! connection.disconnect(Duration::from_secs(5))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Without RDMA hardware, on the software HCA of [`device_or_softhca`](crate::device_or_softhca),
//! a channel of the device's connection manager replaces the kernel's:
//!
//! ```
//! use std::time::Duration;
//! use uverbs::cm::{Connector, EventChannel, Listener, Param};
//!
//! # let device = uverbs::device("softhca0")?;
//! # /*
//! let device = uverbs::device_or_softhca()?;
//! # */
//! let channel = || EventChannel::of(&device);
//! let listener = Listener::builder("0.0.0.0:0".parse()?).listen_on(channel()?)?;
//! let at = listener.local_addr()?.expect("it is an IP address");
//! let client = std::thread::scope(|scope| {
//!     scope.spawn(|| listener.next(Duration::from_secs(20))?.reject(b"full today"));
//!     let route = Connector::new(at).resolve_on(channel()?)?;
//!     let context = route.device()?.open()?;
//!     let (pd, cq) = (context.alloc_pd()?, context.create_cq(256)?);
//!     let qp = context.queue_pair(&pd, &cq).build()?;
//!     route.connect(qp, &Param::default()).map(drop).map_err(uverbs::Error::from)
//! });
//! // "127.0.0.1:...: rejected by the peer's program (reason 28): full today"
//! println!("{}", client.unwrap_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Another process finds the listener at [`Device::addresses`](crate::Device::addresses), which
//! differ from process to process: the first has 127.0.0.1.
//!
//! [`EventChannel`] and [`Id`] are the lower layer: librdmacm's calls one by one, with an [`Event`]
//! for each step. They suit programs with an event loop, and programs ported from C. [`Endpoint`]
//! is the upper layer, for programs with blocking calls, like the functions of `rdma_verbs.h`.
//!
//! | C | here |
//! |---|---|
//! | `rdma_create_event_channel` | [`EventChannel::open`] |
//! | `rdma_get_cm_event` | [`EventChannel::next`] |
//! | `rdma_ack_cm_event` | not needed: an event owns its data |
//! | `rdma_create_id` | [`EventChannel::create_id`] |
//! | `rdma_bind_addr`, `rdma_listen` | methods of [`Id`] with these names |
//! | `rdma_resolve_addr`, `rdma_resolve_route` | methods of [`Id`] with these names |
//! | `rdma_connect`, `rdma_accept` | methods of [`Id`] with these names |
//! | `rdma_reject`, `rdma_disconnect` | methods of [`Id`] with these names |
//! | `rdma_init_qp_attr` | [`Id::init`], [`Id::ready`] |
//! | `rdma_join_multicast` | [`Id::join_multicast`] |
//! | `rdma_leave_multicast` | drop the [`JoinedGroup`] |
//! | `rdma_set_option` | `set_...` of [`Id`], or the builders' |
//! | `id->route` | [`Id::paths`], [`Id::gids`], [`Id::local_addr`], [`Id::peer_addr`] |
//! | `rdma_resolve_addrinfo` | [`Id::resolve_service`] |
//! | `rdma_write_cm_event` | [`Id::write_event`] |
//! | `rdma_getaddrinfo` | [`Lookup`] |
//! | `rdma_create_ep`, `rdma_get_request`, `rdma_get_send_comp`, ... | [`Endpoint`] |
//!
//! Connections need the kernel module `rdma_ucm` (any kernel that uverbs runs on has it) and an
//! interface with an IP address over the RDMA device: Ethernet with RoCE, rxe or iWARP (siw), or
//! IPoIB.

mod addr;
mod channel;
mod connection;
mod connector;
mod endpoint;
mod event;
mod groups;
mod ib_addr;
mod ib_id;
mod id;
mod listener;
mod lookup;
mod multicast;
mod param;
mod path_record;
mod port_space;
mod service;
mod states;

pub use uverbs_core::connection::{Attempt, ConnectionError, ConnectionErrorKind, NameError};

pub use channel::EventChannel;
pub use connection::Connection;
pub use connector::{Connector, Route};
pub use endpoint::{Endpoint, EndpointListener, NewEndpoint};
pub use event::{ConnectionDetails, DatagramDetails, Event, EventKind};
pub use ib_addr::IbAddr;
pub use id::Id;
pub use listener::{ConnectionRequest, Listener, ListenerBuilder};
pub use lookup::{AddressInfo, Lookup};
pub use multicast::{JoinedGroup, Membership};
pub use param::{Ece, Param};
pub use path_record::PathRecord;
pub use port_space::PortSpace;
pub use service::{ServiceKey, ServiceRecord};
