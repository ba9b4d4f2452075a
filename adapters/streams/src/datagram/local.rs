//! Local address of a datagram socket: a device, a port of it, and a queue pair.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use uverbs::attr::{GlobalRoute, Path};
use uverbs::cm::{EventChannel, Id, PortSpace};
use uverbs::transport::Ud;
use uverbs::{
    AhAttr, Any, CompletionChannel, CompletionQueue, Destination, Error, Frame, GRH_LEN, Gid,
    GidEntry, GidType, LinkLayer, Notify, QueuePair, Slab, WorkCompletion,
};

use super::super::StreamError;
use super::super::endpoint::{Domain, Sizes};
use super::wire::{Head, ROOM, notice_len};

/// Q_Key of the port space (`rdma_cm.h`, `RDMA_UDP_QKEY`).
const QKEY: u32 = 0x0123_4567;
/// Datagrams of so many bytes with their header go inline, where the device has room for them.
const INLINE: usize = 128;
/// Completions that are looked at in one go.
const BURST: usize = 16;
/// Work requests of a queue, at least (`RS_QP_MIN_SIZE`).
const FEWEST: u32 = 16;

/// A received datagram that is unread.
#[derive(Debug)]
pub(super) struct Came {
    pub(super) from: SocketAddr,
    pub(super) bytes: Bytes,
}

/// Location of the datagram's bytes.
#[derive(Debug)]
pub(super) enum Bytes {
    /// Range of a frame, and index of the local address that received it.
    Frame { frame: Frame, at: std::ops::Range<usize>, local: usize },
    /// Bytes that came by UDP.
    Copied(Vec<u8>),
}

impl Bytes {
    pub(super) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Frame { frame, at, .. } => frame.get(at.clone()).unwrap_or_default(),
            Self::Copied(bytes) => bytes,
        }
    }
}

#[derive(Debug)]
pub(super) struct Local {
    qp: QueuePair<Any, Ud>,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    channel: CompletionChannel,
    sends: Slab,
    recvs: Slab,
    /// Work requests that the send queue has, and those that are free.
    slots: u32,
    free: u32,
    inline: usize,
    armed: bool,
    head: Head,
    /// The longest datagram: one packet, which a peer's receive has room for.
    most: usize,
    port: u8,
    ethernet: bool,
    domain: Arc<Domain>,
    id: Id,
    pub(super) ip: IpAddr,
}

impl Local {
    /// Opens the device with this address. `own` is the sender's address in datagrams.
    ///
    /// # Errors
    ///
    /// `EADDRNOTAVAIL` or `ENODEV` if no device has the address; errors of making queues.
    pub(super) fn open(cm: &EventChannel, own: SocketAddr, sizes: Sizes) -> io::Result<Self> {
        let id = cm.create_id(PortSpace::Udp)?;
        let mut any_port = own;
        any_port.set_port(0);
        id.bind(any_port)?;
        let (domain, port) = (Domain::of(&id)?, id.port()?);
        let Domain { context, pd, .. } = &*domain;
        let attr = context.query_port(port)?;
        let most = context.query_device()?.max_qp_wr.clamp(FEWEST, 0xfffe);
        // As many as there are bytes for (`ds_set_qp_size`).
        let within =
            |count: u16, bytes: u32| u32::from(count).min(bytes / ROOM as u32).clamp(FEWEST, most);
        let slots = within(sizes.sends, sizes.send_buffer);
        let recvs = within(sizes.recvs, sizes.recv_buffer);
        let channel = context.create_comp_channel()?;
        let send_cq = context.completion_queue(slots).channel(&channel).build()?;
        let recv_cq = context.completion_queue(recvs).channel(&channel).build()?;
        let mut qp = context
            .queue_pair(pd, &send_cq)
            .ud()
            .recv_cq(&recv_cq)
            .max_send_wr(slots)
            .max_recv_wr(recvs)
            .max_inline_data(sizes.inline.min(INLINE as u32))
            .build()?;
        id.bring_up_datagrams(&mut qp)?;
        let head = Head::new(own);
        let packet = attr.active_mtu.bytes().map_or(ROOM, |bytes| bytes as usize);
        let by_packet = packet.min(ROOM) - head.bytes().len();
        let mut local = Self {
            inline: (qp.cap().max_inline_data as usize).min(INLINE),
            send_cq,
            recv_cq,
            channel,
            sends: pd.slab(ROOM, slots as usize)?,
            recvs: pd.slab(GRH_LEN + ROOM, recvs as usize)?,
            slots,
            free: slots,
            armed: false,
            head,
            most: by_packet.min(ROOM - notice_len(own.ip())),
            port,
            ethernet: attr.link_layer == LinkLayer::Ethernet,
            ip: own.ip(),
            qp,
            domain,
            id,
        };
        local.expect()?;
        Ok(local)
    }

    pub(super) fn channel(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }

    pub(super) fn qpn(&self) -> u32 {
        self.qp.qpn()
    }

    /// The id of its address.
    pub(super) fn key(&self) -> u64 {
        self.id.key()
    }

    /// Refuses datagrams that one packet or a peer's receive has no room for.
    pub(super) fn check(&self, bytes: &[u8]) -> Result<(), Error> {
        let (value, limit) = (bytes.len() as u64, self.most as u64);
        if value > limit {
            return Err(Error::Limit { verb: "send_to", what: "datagram's length", value, limit });
        }
        Ok(())
    }

    /// True if a work request is free for a send.
    pub(super) fn may_send(&self) -> bool {
        self.free > 0
    }

    /// True if all sent datagrams have left.
    pub(super) fn is_idle(&self) -> bool {
        self.free == self.slots
    }

    /// Posts receives: as many as there are free frames.
    pub(super) fn expect(&mut self) -> io::Result<()> {
        let mut batch = self.qp.recv_batch();
        while let Some(frame) = self.recvs.take() {
            batch.post(0, frame)?;
        }
        batch.ring();
        Ok(())
    }

    /// Sends a datagram of a checked length. False if no work request is free.
    pub(super) fn send(&mut self, bytes: &[u8], to: &Destination) -> io::Result<bool> {
        if self.free == 0 {
            return Ok(false);
        }
        let head = self.head.bytes();
        let len = head.len() + bytes.len();
        let mut batch = self.qp.batch();
        if len <= self.inline {
            let mut copy = [0; INLINE];
            copy[..head.len()].copy_from_slice(head);
            copy[head.len()..len].copy_from_slice(bytes);
            batch.send_inline_to(0, &copy[..len], to).map_err(Error::from)?;
        } else {
            let Some(mut frame) = self.sends.take() else { return Ok(false) };
            frame[..head.len()].copy_from_slice(head);
            frame[head.len()..len].copy_from_slice(bytes);
            frame.set_len(len);
            batch.send_to(0, frame, to)?;
        }
        batch.ring();
        self.free -= 1;
        Ok(true)
    }

    /// Polls completions, and appends received datagrams to `to`. Returns the number of
    /// completions.
    ///
    /// # Errors
    ///
    /// The error of a failed work request.
    pub(super) fn progress(
        &mut self,
        local: usize,
        to: &mut VecDeque<Came>,
    ) -> Result<u64, StreamError> {
        let (mut seen, mut foreign) = (0, false);
        let mut done: [WorkCompletion; BURST] = Default::default();
        loop {
            let count = self.send_cq.poll_into(&mut done);
            for completion in &done[..count] {
                self.free += 1;
                completion.result.map_err(StreamError::Failed)?;
            }
            seen += count as u64;
            if count < BURST {
                break;
            }
        }
        loop {
            let count = self.recv_cq.poll_into(&mut done);
            for completion in &mut done[..count] {
                completion.result.map_err(StreamError::Failed)?;
                let Some(frame) = completion.frame.take() else { continue };
                let end = (completion.byte_len as usize).min(frame.len());
                match frame.get(GRH_LEN..end).and_then(Head::parse) {
                    Some((from, head)) => {
                        let at = GRH_LEN + head..end;
                        to.push_back(Came { from, bytes: Bytes::Frame { frame, at, local } });
                    }
                    // Dropped, it goes back to its slab.
                    None => foreign = true,
                }
            }
            seen += count as u64;
            if count < BURST {
                break;
            }
        }
        if foreign {
            self.expect().map_err(|_| StreamError::DeviceRemoved)?;
        }
        Ok(seen)
    }

    /// Arms the channel for the next completion. Returns true if it was not armed before.
    pub(super) fn arm(&mut self) -> io::Result<bool> {
        if self.armed {
            return Ok(false);
        }
        self.send_cq.arm(Notify::Any)?;
        self.recv_cq.arm(Notify::Any)?;
        self.armed = true;
        Ok(true)
    }

    /// Takes the events out of the completion channel; true if there were some.
    pub(super) fn drain_channel(&mut self) -> io::Result<bool> {
        let mut some = false;
        while self.channel.try_next()?.is_some() {
            some = true;
            self.armed = false;
        }
        Ok(some)
    }

    /// True if the device is gone.
    pub(super) fn is_gone(&self) -> bool {
        self.domain.context.is_gone()
    }

    /// A peer's queue pair, by the path that an id has resolved (`udp_svc_create_ah`).
    pub(super) fn destination(&self, id: &Id, qpn: u32) -> Result<Destination, Error> {
        let paths = id.paths()?;
        let path = paths.first().ok_or_else(|| Error::Invalid {
            verb: "rdma_resolve_route",
            what: "path",
            value: "none".to_owned(),
            why: "the connection manager resolved the route",
        })?;
        let grh = (self.ethernet || path.hop_limit > 1).then(|| self.sgid_index(path.sgid));
        let grh = match grh {
            None => None,
            Some(index) => Some(GlobalRoute {
                dgid: path.dgid,
                sgid_index: index?,
                hop_limit: path.hop_limit,
                traffic_class: path.traffic_class,
                flow_label: path.flow_label,
            }),
        };
        let path = Path {
            dlid: path.dlid,
            grh,
            service_level: path.service_level,
            src_path_bits: 0,
            static_rate: 0,
        };
        let attr = AhAttr { port: self.port, path };
        Ok(self.domain.context.create_ah(&self.domain.pd, &attr)?.to(qpn, QKEY))
    }

    /// Index of a local GID; on Ethernet the RoCE v2 entry is preferred.
    fn sgid_index(&self, gid: Gid) -> Result<u8, Error> {
        let table = self.domain.context.query_gid_table()?;
        let own = || {
            let of_port = |entry: &&GidEntry| entry.port == u32::from(self.port);
            table.iter().filter(of_port).filter(|entry| entry.gid == gid)
        };
        let second = own().find(|entry| entry.kind == GidType::RoceV2);
        let found = second.or_else(|| own().next()).ok_or_else(|| Error::Invalid {
            verb: "create_ah",
            what: "source GID",
            value: gid.to_string(),
            why: "the port has no such GID",
        })?;
        Ok(u8::try_from(found.index).unwrap_or(u8::MAX))
    }
}
