//! The device: state that all open files share, and the memory that it pins.

use std::collections::{BTreeSet, HashMap};
use std::sync::Weak;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use uverbs_kernel_abi::driver_id::{RDMA_DRIVER_HFI1, RDMA_DRIVER_MLX5};

use crate::backend::Backend;
use crate::backend::config::Config;
use crate::backend::context::QpContext;
use crate::backend::error::errno;
use crate::backend::number::{Cqn, Queue, Srqn};
use crate::cm::Manager;
use crate::guard;
use crate::kernel::rdmavt::Rings;
use crate::kernel::state::device_memory::Allocations;
use crate::kernel::state::flows::Flows;
use crate::kernel::state::xrc::Xrc;
use crate::kernel::user::{page_size, probe};
use crate::uar::{UarPage, UarSet};

/// Creator of a QP, CQ or SRQ: file and handle.
pub(crate) type Owner = (u64, u32);

/// The device: state that all open files share.
#[derive(Debug)]
pub struct Device<H: ?Sized = dyn Backend> {
    /// Identity, port and limits.
    pub config: Config,
    /// The connection manager.
    pub cm: Manager,
    /// Doorbell pages.
    pub uars: UarSet,
    /// BlueFlame pages among them.
    pub(crate) blue_flame: Vec<Weak<UarPage>>,
    pub(crate) pds: BTreeSet<u32>,
    pub(crate) ahs: u32,
    pub(crate) device_memory: Allocations,
    /// Bytes pinned, limited by `Config::memlock`.
    pub(crate) pinned: u64,
    pub(crate) port_up: bool,
    /// Times that the link went down.
    pub(crate) link_downs: u64,
    /// Time of day, in nanoseconds since 1970, at which the device's clock was 0.
    pub(crate) began: u64,
    /// The device was removed: commands get EIO.
    pub(crate) gone: bool,
    /// DEVICE_FATAL was told.
    pub(crate) fatal: bool,
    pub(crate) cq_owners: HashMap<Cqn, Owner>,
    /// Owners of a queue. An XRC target has one for each file that opened it.
    pub(crate) qp_owners: HashMap<Queue, Vec<Owner>>,
    pub(crate) srq_owners: HashMap<Srqn, Owner>,
    pub(crate) xrc: Xrc,
    pub(crate) flows: Flows,
    /// Rings of a device of rdmavt; `None` of a ConnectX.
    pub(crate) rings: Option<Box<Rings>>,
    /// The device behind the front. Last, so that the front sees any device as a `dyn Backend`.
    pub hca: H,
}

impl<H> Device<H> {
    /// Makes the front of a device.
    pub fn new(config: Config, cm: Manager, hca: H) -> Self {
        Self {
            config,
            cm,
            uars: UarSet::default(),
            blue_flame: Vec::new(),
            pds: BTreeSet::new(),
            ahs: 0,
            device_memory: Allocations::default(),
            pinned: 0,
            port_up: true,
            link_downs: 0,
            began: time_of_day(),
            gone: false,
            fatal: false,
            cq_owners: HashMap::new(),
            qp_owners: HashMap::new(),
            srq_owners: HashMap::new(),
            xrc: Xrc::default(),
            flows: Flows::default(),
            rings: None,
            hca,
        }
    }
}

impl<H: ?Sized> Device<H> {
    /// Goes by Omni-Path's driver, with rings of rdmavt, instead of mlx5_ib. For a new device.
    pub fn as_rdmavt(&mut self) {
        self.rings = Some(Box::default());
    }

    /// Sets the time of day at which the device's clock was 0, in nanoseconds since 1970. For a new
    /// device.
    pub fn set_began(&mut self, nanoseconds: u64) {
        self.began = nanoseconds;
    }

    /// True once the device is removed.
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    /// True while the link is up.
    pub fn is_up(&self) -> bool {
        self.port_up
    }

    /// Number of times that the link went down.
    pub fn link_downs(&self) -> u64 {
        self.link_downs
    }

    /// Bytes of client memory that are pinned.
    pub fn pinned(&self) -> u64 {
        self.pinned
    }

    /// RDMA driver id of the kernel driver that it goes by.
    pub(crate) fn driver(&self) -> u32 {
        if self.rings.is_some() { RDMA_DRIVER_HFI1 } else { RDMA_DRIVER_MLX5 }
    }

    /// The memlock limit, if pinning `wanted` more bytes exceeds it.
    pub(crate) fn over_memlock(&self, wanted: u64) -> Option<u64> {
        let limit = self.config.memlock;
        (self.pinned.saturating_add(wanted) > limit).then_some(limit)
    }
}

impl Device {
    /// Gives the HCA the receives in rings of rdmavt. True if there was one.
    pub(crate) fn pump(&mut self) -> bool {
        self.rings.as_mut().is_some_and(|rings| rings.pump(&self.hca))
    }

    /// Pins client memory (`ib_umem_get`): probes it, then counts it. Returns the bytes counted.
    ///
    /// # Errors
    ///
    /// The errors of [`probe`]; `ENOMEM` over the memlock limit.
    pub(crate) fn pin(&mut self, addr: u64, len: u64, writable: bool) -> Result<u64, Errno> {
        // The limit is checked first, as in the kernel; an absurd length is not worth faulting in.
        let count = len.div_ceil(page_size());
        let pages = count.saturating_mul(page_size());
        if count > u64::from(u32::MAX) {
            return Err(Errno::EINVAL);
        }
        if self.over_memlock(pages).is_some() {
            // The kernel checks for overflow in `ib_umem_get` before the limit.
            return Err(match addr.checked_add(len) {
                Some(_) => Errno::ENOMEM,
                None => Errno::EINVAL,
            });
        }
        // Device registers can't be pinned (`pin_user_pages` refuses VM_IO). Here a device's store
        // into a write-protected doorbell page would block the device itself.
        if guard::has_doorbells(addr, len) {
            return Err(Errno::EFAULT);
        }
        let bytes = probe(addr, len, writable)?;
        if self.over_memlock(bytes).is_some() {
            return Err(Errno::ENOMEM);
        }
        self.pinned += bytes;
        Ok(bytes)
    }

    /// Checks memory that is paged on demand; none is pinned (`ib_umem_odp_get`).
    ///
    /// # Errors
    ///
    /// `EINVAL` for an empty range, and for all of memory with an address other than 0; `EOVERFLOW`
    /// if the range wraps; `EFAULT` for a device's registers.
    pub(crate) fn demand(&self, addr: u64, len: u64, iova: u64) -> Result<(), Errno> {
        // An implicit region (`mlx5_ib_alloc_implicit_mr`): each access is checked when it happens.
        if (addr, len, iova) == (0, u64::MAX, 0) {
            return Ok(());
        }
        if len == 0 || (addr, len) == (0, u64::MAX) {
            return Err(Errno::EINVAL);
        }
        let end = addr.checked_add(len).and_then(|end| end.checked_next_multiple_of(page_size()));
        if end.is_none() {
            return Err(Errno::EOVERFLOW);
        }
        if guard::has_doorbells(addr, len) {
            return Err(Errno::EFAULT);
        }
        Ok(())
    }

    /// Pins the memory of a queue: its buffer and the doorbell record. Returns the bytes counted.
    ///
    /// # Errors
    ///
    /// The errors of [`Device::pin`] and of [`Device::check_doorbell_record`]; then no memory stays
    /// pinned.
    pub(crate) fn pin_queue(&mut self, addr: u64, len: u64, record: u64) -> Result<u64, Errno> {
        let pinned = self.pin(addr, len, true)?;
        self.check_doorbell_record(record).inspect_err(|_| self.unpin(pinned))?;
        Ok(pinned)
    }

    /// Pins the rings of a queue and creates it. Returns the queue and the bytes pinned.
    ///
    /// # Errors
    ///
    /// The errors of [`Device::pin_queue`] and of the firmware's CREATE_QP; then no memory stays
    /// pinned.
    pub(crate) fn create_qp(
        &mut self,
        addr: u64,
        len: u64,
        context: QpContext,
    ) -> Result<(Queue, u64), Errno> {
        let pinned = self.pin_queue(addr, len, context.doorbell_record)?;
        let made = self.hca.create_qp(context).inspect_err(|_| self.unpin(pinned));
        Ok((made.map_err(errno)?, pinned))
    }

    /// Releases bytes that [`Device::pin`] counted.
    pub(crate) fn unpin(&mut self, bytes: u64) {
        self.pinned = self.pinned.saturating_sub(bytes);
    }

    /// Checks a doorbell record: 8 aligned bytes (`mlx5_ib_db_map_user` pins the page).
    ///
    /// # Errors
    ///
    /// `EINVAL` if misaligned (as firmware answers), `EFAULT` if unmapped.
    fn check_doorbell_record(&self, addr: u64) -> Result<(), Errno> {
        if !addr.is_multiple_of(8) {
            return Err(Errno::EINVAL);
        }
        probe(addr, 8, false).map(drop)
    }
}

fn time_of_day() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
