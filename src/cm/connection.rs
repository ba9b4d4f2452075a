//! Connections that stand.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use uverbs_core::connection::ConnectionErrorKind;
use uverbs_core::error::Error;

use super::{EventKind, Id};
use crate::provider::Provider;
use crate::{Any, QueuePair, Refused};

/// A queue pair that is connected, with the id of its connection.
///
/// Dropping it ends the connection, and destroys the queue pair.
#[derive(Debug)]
pub struct Connection<P: Provider = Any> {
    // The queue pair goes first, as `rdma_destroy_qp` does before `rdma_destroy_id`.
    qp: QueuePair<P>,
    id: Id,
    private_data: Vec<u8>,
    established: bool,
    /// This side has said that the connection ends.
    parting: bool,
    closed: bool,
}

impl<P: Provider> Connection<P> {
    pub(super) fn new(qp: QueuePair<P>, id: Id, private_data: Vec<u8>) -> Self {
        Self { established: true, ..Self::accepted(qp, id, private_data) }
    }

    /// An accepted connection that awaits the confirmation of the peer.
    pub(super) fn accepted(qp: QueuePair<P>, id: Id, private_data: Vec<u8>) -> Self {
        Self { qp, id, private_data, established: false, parting: false, closed: false }
    }

    /// True if the peer has confirmed the connection, as far as [`is_closed`](Self::is_closed) has
    /// seen. Only a connection accepted by [`begin_accept`](super::ConnectionRequest::begin_accept)
    /// can be unconfirmed.
    #[must_use]
    pub fn is_established(&self) -> bool {
        self.established
    }

    /// The queue pair.
    pub fn queue_pair(&mut self) -> &mut QueuePair<P> {
        &mut self.qp
    }

    /// The id.
    #[must_use]
    pub fn id(&self) -> &Id {
        &self.id
    }

    /// Private data of the peer's request or answer, padded with zeros to the message's size
    /// (iWARP: unpadded).
    #[must_use]
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// The peer's address.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `ENXIO` of a removed device.
    pub fn peer_addr(&self) -> Result<Option<SocketAddr>, Error> {
        self.id.peer_addr()
    }

    /// This side's address.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `ENXIO` of a removed device.
    pub fn local_addr(&self) -> Result<Option<SocketAddr>, Error> {
        self.id.local_addr()
    }

    /// True if the connection has ended: the peer disconnected, or its host doesn't answer. Waits
    /// at most `limit` for the end; [`Duration::ZERO`] doesn't wait.
    ///
    /// After the end, outstanding work requests are flushed once the queue pair is in ERR
    /// ([`disconnect`](Self::disconnect) brings it there).
    ///
    /// # Errors
    ///
    /// [`ConnectionErrorKind::DeviceRemoved`]; [`Error::Kernel`]: `ENXIO` of a removed device.
    pub fn is_closed(&mut self, limit: Duration) -> Result<bool, Error> {
        let start = Instant::now();
        while !self.closed {
            let left = limit.saturating_sub(start.elapsed());
            let event = if left.is_zero() {
                self.id.channel().try_next()?
            } else {
                match self.id.channel().next(left) {
                    Ok(event) => Some(event),
                    Err(Error::TimedOut { .. }) => None,
                    Err(error) => return Err(error),
                }
            };
            let Some(event) = event else { return Ok(false) };
            if event.key() != self.id.key() {
                // An event of another id on a shared channel.
                continue;
            }
            match event.kind() {
                EventKind::Disconnected => {
                    self.closed = true;
                    // The peer waits for this answer (DREP), more than a minute otherwise. Where
                    // this side has asked for the end, the id is destroyed next, and the kernel
                    // then answers a peer that asked at the same time (`cm.c`, `cm_destroy_id`).
                    if !self.parting {
                        let _ = self.id.disconnect();
                    }
                }
                EventKind::TimewaitExit
                | EventKind::Rejected
                | EventKind::Unreachable
                | EventKind::ConnectError => self.closed = true,
                EventKind::DeviceRemoval => {
                    return Err(ConnectionErrorKind::DeviceRemoved.into());
                }
                EventKind::Established => self.established = true,
                // An address that moved, or a late word on what stands already.
                _ => {}
            }
        }
        Ok(true)
    }

    /// Ends the connection, and waits at most `limit` until the peer knows. Returns the queue pair
    /// in ERR: its outstanding work requests are flushed.
    ///
    /// # Errors
    ///
    /// With the queue pair: [`Error::TimedOut`] when the peer doesn't answer; [`Error::Kernel`]:
    /// `EINVAL` if the connection is already over and [`is_closed`](Self::is_closed) was not asked.
    /// After it returned true this succeeds at once. The connection has ended in any case.
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(mut self, limit: Duration) -> Result<QueuePair<P>, Refused<QueuePair<P>>> {
        match self.try_disconnect(limit) {
            Ok(()) => Ok(self.qp),
            Err(error) => Err(Refused::new(error, self.qp)),
        }
    }

    fn try_disconnect(&mut self, limit: Duration) -> Result<(), Error> {
        self.qp.fail()?;
        if !self.closed {
            self.id.disconnect()?;
            self.parting = true;
            if !self.is_closed(limit)? {
                let peer = self.peer_addr().ok().flatten();
                let peer = peer.map_or("the peer".to_owned(), |addr| addr.to_string());
                let why = Some(format!("{peer} didn't answer that the connection ends"));
                return Err(Error::TimedOut { verb: "rdma_disconnect", waited: limit, why });
            }
        }
        Ok(())
    }

    /// Splits the connection into queue pair and id. Dropping the id ends the connection.
    #[must_use]
    pub fn into_parts(self) -> (QueuePair<P>, Id) {
        (self.qp, self.id)
    }
}

/// Readable while an event of this connection is there: [`is_closed`](Connection::is_closed) looks.
impl<P: Provider> AsFd for Connection<P> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.id.channel().as_fd()
    }
}
