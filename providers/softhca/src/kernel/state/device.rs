//! The device: what all open files share, and the memory that it holds pinned.

use std::collections::{BTreeSet, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::errno::Errno;

use crate::board::profile::{GidType, Profile};
use crate::cm::{Host, Manager};
use crate::guard;
use crate::hca::number::{Cqn, Qpn, Srqn};
use crate::hca::{Hca, HcaError, QpContext};
use crate::kernel::state::flows::Flows;
use crate::kernel::state::xrc::Xrc;
use crate::kernel::user::{page_size, probe};
use crate::uar::UarSet;

/// Who made a QP, CQ or SRQ: file and handle.
pub(crate) type Owner = (u64, u32);

/// The device: what all open files share.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) profile: Profile,
    pub(crate) hca: Hca,
    pub(crate) cm: Manager,
    pub(crate) uars: UarSet,
    pub(crate) pds: BTreeSet<u32>,
    pub(crate) ahs: u32,
    /// Bytes of device memory given out, in whole pages.
    pub(crate) memic_taken: u64,
    /// Bytes pinned, against `Profile::memlock`.
    pub(crate) pinned: u64,
    pub(crate) port_up: bool,
    /// Nanoseconds of the time of day, since 1970, when the device's clock was 0.
    pub(crate) began: u64,
    /// Removed: every command gets EIO.
    pub(crate) gone: bool,
    pub(crate) cq_owners: HashMap<Cqn, Owner>,
    /// Of a target of XRC, all who opened it.
    pub(crate) qp_owners: HashMap<Qpn, Vec<Owner>>,
    pub(crate) srq_owners: HashMap<Srqn, Owner>,
    pub(crate) xrc: Xrc,
    pub(crate) flows: Flows,
}

/// What the connection manager knows of the device: it speaks RoCE version 2 alone.
fn host(profile: &Profile) -> Host {
    let gids = (0u8..).zip(&profile.gids).filter(|(_, gid)| gid.kind == GidType::RoceV2);
    let gids = gids.map(|(index, gid)| (index, gid.gid)).collect();
    Host { guid: profile.guid, gids, mtu: profile.active_mtu() as u8 }
}

impl Device {
    pub(crate) fn new(profile: Profile, hca: Hca) -> Self {
        let cm = Manager::new(host(&profile));
        Self {
            profile,
            hca,
            cm,
            uars: UarSet::default(),
            pds: BTreeSet::new(),
            ahs: 0,
            memic_taken: 0,
            pinned: 0,
            port_up: true,
            began: time_of_day(),
            gone: false,
            cq_owners: HashMap::new(),
            qp_owners: HashMap::new(),
            srq_owners: HashMap::new(),
            xrc: Xrc::default(),
            flows: Flows::default(),
        }
    }

    /// Pins client memory (`ib_umem_get`): probes it, then counts it. Gives the bytes counted.
    ///
    /// # Errors
    ///
    /// Those of [`probe`]; `ENOMEM` over the memlock limit.
    pub(crate) fn pin(&mut self, addr: u64, len: u64, writable: bool) -> Result<u64, Errno> {
        // The limit is looked at first, as in the kernel; a wild length is not worth faulting in.
        let count = len.div_ceil(page_size());
        let pages = count.saturating_mul(page_size());
        if count > u64::from(u32::MAX) {
            return Err(Errno::EINVAL);
        }
        if self.over_memlock(pages).is_some() {
            // What `ib_umem_get` checks before the limit stays before it.
            return Err(match addr.checked_add(len) {
                Some(_) => Errno::ENOMEM,
                None => Errno::EINVAL,
            });
        }
        // A device's registers can't be pinned (`pin_user_pages` refuses VM_IO). Here the device
        // itself would stop at its first store into a page that is protected.
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

    /// Checks memory that is paged on demand: nothing is pinned (`ib_umem_odp_get`).
    ///
    /// # Errors
    ///
    /// `EINVAL` for no bytes, and for all of memory under another address than its own;
    /// `EOVERFLOW` when the range wraps; `EFAULT` for a device's registers.
    pub(crate) fn demand(&self, addr: u64, len: u64, iova: u64) -> Result<(), Errno> {
        // An implicit region (`mlx5_ib_alloc_implicit_mr`): each access looks for itself.
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

    /// Pins what a queue needs: its buffer, and the doorbell record. Gives the bytes counted.
    ///
    /// # Errors
    ///
    /// Those of [`Device::pin`] and of [`Device::check_doorbell_record`]; nothing stays pinned
    /// then.
    pub(crate) fn pin_queue(&mut self, addr: u64, len: u64, record: u64) -> Result<u64, Errno> {
        let pinned = self.pin(addr, len, true)?;
        self.check_doorbell_record(record).inspect_err(|_| self.unpin(pinned))?;
        Ok(pinned)
    }

    /// Pins the rings of a queue pair and makes it. Gives the QPN and the bytes pinned.
    ///
    /// # Errors
    ///
    /// Those of [`Device::pin_queue`] and of the firmware's CREATE_QP; nothing stays pinned then.
    pub(crate) fn create_qp(
        &mut self,
        addr: u64,
        len: u64,
        context: QpContext,
    ) -> Result<(u32, u64), Errno> {
        let pinned = self.pin_queue(addr, len, context.doorbell_record)?;
        let made = self.hca.create_qp(context).inspect_err(|_| self.unpin(pinned));
        Ok((made.map_err(errno)?.0, pinned))
    }

    /// The memlock limit, if pinning `wanted` more bytes goes over it.
    pub(crate) fn over_memlock(&self, wanted: u64) -> Option<u64> {
        let limit = self.profile.memlock;
        (self.pinned.saturating_add(wanted) > limit).then_some(limit)
    }

    /// Gives back what [`Device::pin`] counted.
    pub(crate) fn unpin(&mut self, bytes: u64) {
        self.pinned = self.pinned.saturating_sub(bytes);
    }

    /// Checks a doorbell record: 8 aligned bytes (`mlx5_ib_db_map_user` pins the page).
    ///
    /// # Errors
    ///
    /// `EINVAL` when misaligned (firmware's answer), `EFAULT` when not mapped.
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

/// The errno of a firmware command that failed (`mlx5_cmd_check`, `cmd_status_to_err`): LIM_ERR is
/// `ENOMEM`, RES_BUSY `EBUSY`, the others `EINVAL`.
pub(crate) fn errno(error: HcaError) -> Errno {
    match error {
        HcaError::Limit { .. } => Errno::ENOMEM,
        HcaError::Busy { .. } => Errno::EBUSY,
        _ => Errno::EINVAL,
    }
}
