//! Ids at InfiniBand addresses.

use std::time::Duration;

use uverbs_core::attr::Gid;
use uverbs_core::error::Error;

use super::addr::Address;
use super::{IbAddr, Id};

impl Id {
    /// Binds the id to an InfiniBand address. The system chooses the port if the service mask
    /// leaves the port bits out.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `ENODEV` where no InfiniBand port has the GID (RoCE ports don't count);
    /// `EADDRINUSE`.
    #[doc(alias = "rdma_bind_addr")]
    pub fn bind_ib(&self, addr: &IbAddr) -> Result<(), Error> {
        self.bind_to(Address::Ib(*addr))
    }

    /// Starts to resolve `to` to a device and port, from source address `from` if given.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `ENODEV` where no port leads there.
    #[doc(alias = "rdma_resolve_addr")]
    pub fn resolve_ib_addr(
        &self,
        from: Option<&IbAddr>,
        to: &IbAddr,
        limit: Duration,
    ) -> Result<(), Error> {
        self.resolve(from.copied().map(Address::Ib), Address::Ib(*to), limit)
    }

    /// The local address, if it is an InfiniBand address.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `ENXIO` of a removed device.
    pub fn local_ib_addr(&self) -> Result<Option<IbAddr>, Error> {
        let answer = self.query()?;
        Ok(IbAddr::from_kernel(answer.src_addr.get(..answer.src_size.into()).unwrap_or(&[])))
    }

    /// GIDs of the local port and of the peer's port, for each kind of address; zeros before the id
    /// has them.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `ENXIO` of a removed device.
    #[doc(alias = "rdma_query_gid")]
    pub fn gids(&self) -> Result<(Gid, Gid), Error> {
        let answer = self.channel().ucma().query_gid(self.number())?;
        let gid = |room: &[u8; 128], len: u16| {
            let addr = room.get(..len.into()).and_then(IbAddr::from_kernel);
            addr.map_or(Gid([0; 16]), |addr| addr.gid)
        };
        let own = gid(&answer.src_addr, answer.src_size);
        Ok((own, gid(&answer.dst_addr, answer.dst_size)))
    }

    /// The peer's address, if it is an InfiniBand address.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `ENXIO` of a removed device.
    pub fn peer_ib_addr(&self) -> Result<Option<IbAddr>, Error> {
        let answer = self.query()?;
        Ok(IbAddr::from_kernel(answer.dst_addr.get(..answer.dst_size.into()).unwrap_or(&[])))
    }
}
