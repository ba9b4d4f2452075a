//! Brings queue pairs up, given both sides' endpoints.

use uverbs_core::attr::{AhAttr, Ece, QpState, UdInitAttr, UdRtrAttr};
use uverbs_core::error::Error;
use uverbs_core::queues::completion::Sender;

use crate::provider::Provider;
use crate::qp::prepared::{Prepared, path, route, settle};
use crate::transport::{Datagram, Peered, Transport, Ud};
use crate::{DatagramEndpoint, Destination, Endpoint, Local, LocalPort, QueuePair};

impl<P: Provider, T: Transport> QueuePair<P, T> {
    /// State stored by bringing the queue pair up; an error before that.
    pub(crate) fn brought_up(&self) -> Result<&Prepared, Error> {
        self.recv.home.prepared.as_ref().ok_or(Error::State {
            verb: "create_ah",
            state: self.state(),
            needs: QpState::ReadyToSend,
        })
    }
}

impl<P: Provider, T: Peered> QueuePair<P, T> {
    /// Brings the queue pair to INIT and returns the endpoint for the peer. Receives can be posted
    /// from here on.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for a GID index or a port that doesn't exist, an MTU over the port's;
    /// [`Error::Unsupported`] on an Ethernet port without GIDs; [`Error::Kernel`]: `EINVAL` for a
    /// P_Key index that the port lacks.
    pub fn prepare(&mut self, local: &Local) -> Result<Endpoint, Error> {
        self.whole()?;
        let port = self.recv.home.context.local_port(local)?;
        self.prepare_on(&port)
    }

    /// [`prepare`](Self::prepare) with a port that was looked at before: for many queue pairs on
    /// one port. The kernel is asked nothing; a port that has changed since shows in `connect`, or
    /// in a peer that can't be reached.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a port of another open device; [`Error::Limit`] for an MTU over the
    /// port's; [`Error::Kernel`]: `EINVAL` for a P_Key index that the port lacks.
    pub fn prepare_on(&mut self, port: &LocalPort) -> Result<Endpoint, Error> {
        self.whole()?;
        self.owns(port)?;
        let psn = port.local.psn.unwrap_or_else(|| self.recv.home.context.random_psn());
        let (prepared, init) = settle(port, self.qpn(), psn, self.ece())?;
        self.init(&init)?;
        let endpoint = prepared.endpoint;
        self.recv.home.prepared = Some(prepared);
        Ok(endpoint)
    }

    /// Connects to the peer: INIT to RTR to RTS.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// # let pd = context.alloc_pd()?;
    /// # let mut cq = context.create_cq(256)?;
    /// # let mut qp = context.queue_pair(&pd, &cq).build()?;
    /// # let mut peer = context.queue_pair(&pd, &cq).build()?;
    /// # let peers_text = peer.prepare(&uverbs::Local::default())?.to_string();
    /// let here = qp.prepare(&uverbs::Local::default())?;
    /// println!("{here}");
    /// // Both sides tell each other, as text, over whatever they have.
    /// let there: uverbs::Endpoint = peers_text.parse()?;
    /// qp.connect(&there)?;
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    ///
    /// The smaller of both sides' MTUs and READ depths is used, so the peer must be given this
    /// side's endpoint unchanged. If it fails on the way from RTR to RTS, the way back is a
    /// [`reset`](Self::reset).
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] unless [`prepare`](Self::prepare)d; [`Error::MissingAttribute`] when the
    /// peer gives no GID and this port is Ethernet, which can't do without; [`Error::Invalid`] for
    /// a GID that can't be reached from this side's, or for this queue pair's own endpoint
    /// ([`connect_to_self`](Self::connect_to_self)); [`Error::Kernel`]: `ENETUNREACH`,
    /// `EHOSTUNREACH` or `ETIMEDOUT` if RoCE finds no route or neighbor for the peer's GID, so
    /// check both sides' network; `EINVAL` for a value that the driver rejects.
    pub fn connect(&mut self, peer: &Endpoint) -> Result<(), Error> {
        let own = self.recv.home.prepared.as_ref().map(|prepared| &prepared.endpoint);
        if own.is_some_and(|own| (own.lid, own.qpn, own.gid) == (peer.lid, peer.qpn, peer.gid)) {
            return Err(Error::Invalid {
                verb: "connect",
                what: "peer",
                value: peer.to_string(),
                why: "it is this queue pair itself, which `connect_to_self` connects (hermetic \
                      software HCAs of two processes are alike: take `softhca` there)",
            });
        }
        self.connect_any(Some(peer))
    }

    /// Connects the queue pair to itself: its SENDs fill its own receives. For tests and
    /// measurements on one device.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect). Its own endpoint is no error here.
    pub fn connect_to_self(&mut self) -> Result<(), Error> {
        self.connect_any(None)
    }

    /// Connects to the peer; `None`: to itself.
    fn connect_any(&mut self, peer: Option<&Endpoint>) -> Result<(), Error> {
        let Some(prepared) = self.recv.home.prepared.take() else {
            return Err(Error::Invalid {
                verb: "connect",
                what: "queue pair",
                value: format!("in {}, and not prepared", self.state()),
                why: "call `prepare` first: it sets this side's half of the connection",
            });
        };
        let result = self.connect_prepared(&prepared, peer);
        self.recv.home.prepared = Some(prepared);
        result
    }

    fn connect_prepared(
        &mut self,
        prepared: &Prepared,
        peer: Option<&Endpoint>,
    ) -> Result<(), Error> {
        let Prepared { local, endpoint, .. } = prepared;
        if let Some(Ece { vendor, options }) = peer.map(|peer| peer.ece)
            && options != 0
            && vendor == endpoint.ece.vendor
        {
            // The device answers with those that both have (rdma-core `ibv_set_ece`(3)).
            self.set_ece(Ece { vendor, options })?;
        }
        let peer = peer.unwrap_or(endpoint);
        let common = prepared.way_to(peer)?;
        self.ready_to_receive(&T::rtr(common, local, endpoint.rd_atomic))?;
        let asks = local.rd_atomic.min(peer.rd_atomic);
        self.ready_to_send(&T::rts(endpoint.psn, local, asks))
    }
}

/// A queue pair for datagrams, of UD or SRD.
impl<P: Provider, T: Datagram> QueuePair<P, T> {
    /// Brings the queue pair to RTS, since it has no peer to wait for, and returns the endpoint
    /// that senders need.
    ///
    /// # Errors
    ///
    /// As for a connected queue pair's [`prepare`](QueuePair::prepare).
    pub fn bring_up(&mut self, local: &Local) -> Result<DatagramEndpoint, Error> {
        self.whole()?;
        let port = self.recv.home.context.local_port(local)?;
        self.bring_up_on(&port)
    }

    /// [`bring_up`](Self::bring_up) with a port that was looked at before.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a port of another open device; [`Error::Kernel`]: `EINVAL` for a
    /// P_Key index that the port lacks.
    pub fn bring_up_on(&mut self, at: &LocalPort) -> Result<DatagramEndpoint, Error> {
        self.whole()?;
        self.owns(at)?;
        let Local { port: number, pkey_index, qkey, psn, .. } = at.local;
        let psn = psn.unwrap_or_else(|| self.recv.home.context.random_psn());
        Error::limit("modify_qp", "first PSN", psn, 0xff_ffff)?;
        self.init(&UdInitAttr { port: number, pkey_index, qkey })?;
        self.ready_to_receive(&UdRtrAttr)?;
        self.ready_to_send(&T::rts(psn, &at.local))?;
        let qpn = self.qpn();
        let prepared = Prepared::new(at, qpn, psn);
        let Endpoint { lid, gid, .. } = prepared.endpoint;
        self.recv.home.prepared = Some(prepared);
        Ok(DatagramEndpoint { lid, qpn, qkey, gid })
    }

    /// Makes a destination for datagrams to `peer`, from the port that this was [brought
    /// up](Self::bring_up) on. Takes one system call on Ethernet: keep the destination for many
    /// datagrams.
    ///
    /// # Errors
    ///
    /// [`Error::State`] unless brought up; [`Error::MissingAttribute`] and [`Error::Invalid`] as
    /// for [`connect`](QueuePair::connect); as [`Context::create_ah`](crate::Context::create_ah).
    pub fn destination(&self, peer: &DatagramEndpoint) -> Result<Destination<P>, Error> {
        let Prepared { local, gid, link, .. } = self.brought_up()?;
        let route = route(*link, gid.as_ref(), peer.gid)?;
        let attr = AhAttr { port: local.port, path: path(local, peer.lid, route) };
        let ah = self.recv.home.context.create_ah_of(self.core().pd(), &attr)?;
        Ok(ah.to(peer.qpn, peer.qkey))
    }
}

impl<P: Provider> QueuePair<P, Ud> {
    /// Makes a destination for an answer to a received datagram, from the completion's
    /// [`sender`](crate::WorkCompletion::sender) and the first [`GRH_LEN`](crate::GRH_LEN) bytes of
    /// its buffer. `qkey` is the sender's Q_Key, which a datagram doesn't carry.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// # let pd = context.alloc_pd()?;
    /// # let mut cq = context.create_cq(256)?;
    /// # let mut qp = context.queue_pair(&pd, &cq).ud().build()?;
    /// # let at = qp.bring_up(&Default::default())?;
    /// # let to = qp.destination(&at)?;
    /// use uverbs::{Completed, GRH_LEN};
    ///
    /// # let wait = std::time::Duration::from_secs(20);
    /// # let slab = pd.slab(64, 2)?;
    /// # qp.post_recv(1, slab.take().expect("it is new"))?;
    /// # let mut batch = qp.batch();
    /// # batch.send_inline_to(2, b"who are you?", &to)?;
    /// # batch.ring();
    /// let mut asked = cq.wait(wait)?;
    /// # while asked.result? != Completed::Recv { asked = cq.wait(wait)?; }
    /// let frame = asked.frame.expect("a receive has one");
    /// let back = qp.reply_to(asked.sender, &frame[..GRH_LEN], at.qkey)?;
    /// assert_eq!(back.qpn(), qp.qpn());
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::State`] unless brought up; as
    /// [`Context::sender_address`](crate::Context::sender_address) and
    /// [`Context::create_ah`](crate::Context::create_ah).
    #[doc(alias = "ibv_create_ah_from_wc")]
    pub fn reply_to(&self, from: Sender, grh: &[u8], qkey: u32) -> Result<Destination<P>, Error> {
        let port = self.brought_up()?.local.port;
        let context = &self.recv.home.context;
        let attr = context.sender_address(port, from, grh)?;
        Ok(context.create_ah_of(self.core().pd(), &attr)?.to(from.qpn(), qkey))
    }
}
