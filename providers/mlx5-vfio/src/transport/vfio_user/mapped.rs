//! Part of BAR 0 that the server offers for mapping, as a file (QEMU `docs/interop/vfio-user.rst`,
//! "VFIO region info cap sparse mmap").
//!
//! The server may be hostile: the file is a memfd that can't shrink, so that no store into it
//! raises a signal.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::stat::fstat;
use nix::sys::statfs::{TMPFS_MAGIC, fstatfs};
use zerocopy::FromBytes;

use super::message::{
    Area, CAP_SPARSE_MMAP, CapHeader, REGION_HAS_CAPS, REGION_MAPS, RegionInfo, SparseMmap,
};
use crate::error::Error;
use crate::transport::{BAR0, check};

/// Maximum number of areas, and of capabilities.
pub(super) const MAX_AREAS: usize = 16;
const MAX_CAPS: usize = 16;

/// Areas of a region, with their file.
#[derive(Debug)]
pub(super) struct Mapped {
    file: Arc<OwnedFd>,
    /// Offset of the region in the file.
    offset: u64,
    areas: Vec<Range<u64>>,
}

impl Mapped {
    /// Reads a region's description. `None` if the server offers no file, or one that is not safe
    /// to map.
    pub(super) fn of(body: &[u8], file: Option<OwnedFd>) -> Result<Option<Self>, Error> {
        let wrong = Error::Protocol { what: "areas of a region that don't fit it" };
        let (info, _) = RegionInfo::read_from_prefix(body).map_err(|_| wrong.clone())?;
        let Some(file) = file.filter(|file| info.flags & REGION_MAPS != 0 && is_safe(file)) else {
            return Ok(None);
        };
        let areas = match info.flags & REGION_HAS_CAPS {
            0 => std::iter::once(0..info.size).collect(),
            _ => sparse(body, info.cap_offset).ok_or(wrong.clone())?,
        };
        let len = fstat(&file).map_err(Error::nix("fstat"))?.st_size.max(0).cast_unsigned();
        let fits = |area: &Range<u64>| {
            let end = info.offset.checked_add(area.end);
            area.end <= info.size && end.is_some_and(|end| end <= len)
        };
        match areas.iter().all(fits) {
            true => Ok(Some(Self { file: Arc::new(file), offset: info.offset, areas })),
            false => Err(wrong),
        }
    }

    /// File of a part of the region, and the part's offset in it.
    pub(super) fn part(&self, at: u64, len: u64) -> Result<(Arc<OwnedFd>, u64), Error> {
        let area = self.areas.iter().find(|area| area.contains(&at));
        let limit = area.map_or(0, |area| area.end);
        check(BAR0, at, len, limit)?;
        Ok((Arc::clone(&self.file), self.offset + at))
    }
}

/// True for a memfd of ordinary pages that can't shrink. Files on a file system have no such seal,
/// and huge pages may be missing when a store needs them.
fn is_safe(file: &OwnedFd) -> bool {
    let seals = fcntl(file, FcntlArg::F_GET_SEALS).map(SealFlag::from_bits_retain);
    seals.is_ok_and(|seals| seals.contains(SealFlag::F_SEAL_SHRINK))
        && fstatfs(file).is_ok_and(|told| told.filesystem_type() == TMPFS_MAGIC)
}

/// Areas of the sparse capability in a region's description.
fn sparse(body: &[u8], mut at: u32) -> Option<Vec<Range<u64>>> {
    for _ in 0..MAX_CAPS {
        let cap = body.get(usize::try_from(at).ok()?..)?;
        let (header, _) = CapHeader::read_from_prefix(cap).ok()?;
        if header.id != CAP_SPARSE_MMAP {
            at = header.next;
            continue;
        }
        let (sparse, mut rest) = SparseMmap::read_from_prefix(cap).ok()?;
        let mut areas = Vec::new();
        for _ in 0..sparse.count {
            let (area, after) = Area::read_from_prefix(rest).ok()?;
            areas.push(area.offset..area.offset.checked_add(area.size)?);
            rest = after;
        }
        return (areas.len() <= MAX_AREAS).then_some(areas);
    }
    None
}

#[cfg(test)]
mod tests {
    use nix::sys::memfd::{MFdFlags, memfd_create};
    use nix::unistd::ftruncate;
    use zerocopy::IntoBytes;

    use super::*;

    const LEN: u64 = 0x8000;

    fn file(len: u64, seals: SealFlag) -> Option<OwnedFd> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = memfd_create("bar", flags).unwrap();
        ftruncate(&file, len.cast_signed()).unwrap();
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).unwrap();
        Some(file)
    }

    /// Description of a region with areas, behind another capability.
    fn body(areas: &[(u64, u64)], count: usize) -> Vec<u8> {
        let flags = REGION_MAPS | REGION_HAS_CAPS;
        let info = RegionInfo { flags, cap_offset: 32, size: LEN, ..RegionInfo::default() };
        let other = CapHeader { id: 3, version: 1, next: 40 };
        let sparse = SparseMmap { id: CAP_SPARSE_MMAP, count: count as u32, ..Default::default() };
        let areas =
            areas.iter().flat_map(|&(offset, size)| Area { offset, size }.as_bytes().to_vec());
        let head = [info.as_bytes(), other.as_bytes(), sparse.as_bytes()].concat();
        head.into_iter().chain(areas).collect()
    }

    #[test]
    fn parts_lie_in_an_area() {
        let shrinks = SealFlag::F_SEAL_SHRINK;
        let told = body(&[(0x1000, 0x1000), (0x4000, 0x2000)], 2);
        let mapped = Mapped::of(&told, file(LEN, shrinks)).unwrap().unwrap();
        for (at, len, is_inside) in [
            (0x1000, 0x1000, true),
            (0x5000, 0x1000, true),
            (0x1000, 0x1001, false),
            (0x0, 0x1000, false),
            (0x6000, 0x1000, false),
            (u64::MAX, 0x1000, false),
        ] {
            let part = mapped.part(at, len).map(|(_, offset)| offset);
            assert_eq!(part.ok(), is_inside.then_some(at), "{at:#x}");
        }
        // Without a list the whole region is one area.
        let info = RegionInfo { flags: REGION_MAPS, size: LEN, ..RegionInfo::default() };
        let whole = Mapped::of(info.as_bytes(), file(LEN, shrinks)).unwrap().unwrap();
        assert!(whole.part(0, LEN).is_ok() && whole.part(0, LEN + 1).is_err());
    }

    #[test]
    fn a_file_that_may_shrink_is_not_mapped() {
        let told = body(&[(0, LEN)], 1);
        for file in [None, file(LEN, SealFlag::F_SEAL_GROW)] {
            assert!(Mapped::of(&told, file).unwrap().is_none());
        }
        let file = tempfile::tempfile().unwrap();
        file.set_len(LEN).unwrap();
        assert!(Mapped::of(&told, Some(file.into())).unwrap().is_none());
    }

    #[test]
    fn areas_that_do_not_fit_are_refused() {
        let refused =
            |body: &[u8], len| Mapped::of(body, file(len, SealFlag::F_SEAL_SHRINK)).is_err();
        let whole = body(&[(0, LEN)], 1);
        assert!(!refused(&whole, LEN));
        assert!(refused(&whole, LEN - 1), "beyond the file");
        for (areas, count) in [
            (&[(0, LEN + 1)][..], 1),
            (&[(u64::MAX, 2)], 1),
            (&[(0, 8)], 2),
            (&[(0, 8); MAX_AREAS + 1], MAX_AREAS + 1),
        ] {
            assert!(refused(&body(areas, count), LEN), "{areas:?}");
        }
        for len in 32..whole.len() {
            assert!(refused(&whole[..len], LEN), "{len}");
        }
        // A list of capabilities without end.
        let mut endless = whole;
        endless[36..40].copy_from_slice(&32u32.to_ne_bytes());
        assert!(refused(&endless, LEN));
    }
}
