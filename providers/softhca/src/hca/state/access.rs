//! Copies bytes through memory keys. Each range is checked, and indirect keys are followed.

use crate::hca::dma::RegionAccess;
use crate::hca::dma::{Dma, DmaFault};
use crate::hca::payload::Payload;
use crate::hca::state::keys::{KeyFault, KeyTable, Segment, Who};
use crate::wire::Span;
use uverbs_front::backend::context::Access;
use uverbs_front::backend::indirect::Indirect;
use uverbs_front::backend::number::Key;
use uverbs_front::backend::region::Region;

/// Longest chain of keys that is followed: windows on regions, lists of windows.
pub(crate) const DEPTH: u32 = 4;

/// Callback for each contiguous range: region, offset in it, offset in the whole access, length.
type Visitor<'a> = dyn FnMut(&Region, u64, u64, u64) -> Result<(), KeyFault> + 'a;

impl KeyTable {
    /// Checks an access without touching memory.
    pub(crate) fn check(&self, who: Who, segment: Segment, need: Access) -> Result<(), KeyFault> {
        self.find(who, segment, need).map(|_| ())
    }

    /// Calls `each` for the memory ranges of a segment, in order.
    #[inline]
    fn visit(
        &self,
        who: Who,
        segment: Segment,
        need: Access,
        depth: u32,
        mut each: impl FnMut(&Region, u64, u64, u64) -> Result<(), KeyFault>,
    ) -> Result<(), KeyFault> {
        let (mkey, offset) = self.find(who, segment, need)?;
        match &mkey.indirect {
            None => each(&mkey.region, offset, 0, segment.len),
            Some(parts) => self.visit_parts(who, (segment, offset), parts, need, depth, &mut each),
        }
    }

    /// Calls `each` for the memory ranges of a segment of an indirect key.
    fn visit_parts(
        &self,
        who: Who,
        (segment, offset): (Segment, u64),
        indirect: &Indirect,
        need: Access,
        depth: u32,
        each: &mut Visitor<'_>,
    ) -> Result<(), KeyFault> {
        // Remote rights were checked for the whole key; its parts only have to be writable.
        let writes = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
        let need = if need.intersects(writes) { Access::LOCAL_WRITE } else { Access::empty() };
        let depth = depth.checked_sub(1).ok_or(KeyFault::Range)?;
        let mut done = 0;
        // Each round advances by a byte at least.
        while done < segment.len {
            let (key, addr, run) = indirect.locate(offset + done).ok_or(KeyFault::Range)?;
            if key == Key::NULL {
                return Err(KeyFault::Absent);
            }
            let len = run.min(segment.len - done);
            self.visit(
                who,
                Segment { key, addr, len },
                need,
                depth,
                &mut |region: &Region, at, inner, run| each(region, at, done + inner, run),
            )?;
            done += len;
        }
        Ok(())
    }

    pub(crate) fn read(
        &self,
        dma: &dyn Dma,
        who: Who,
        (key, addr): (Key, u64),
        need: Access,
        buf: &mut [u8],
    ) -> Result<(), KeyFault> {
        if buf.is_empty() {
            return Ok(());
        }
        let segment = Segment { key, addr, len: buf.len() as u64 };
        self.visit(who, segment, need, DEPTH, |region, offset, done, len| {
            // In range: all parts together are the segment, which has the buffer's length.
            let part = &mut buf[done as usize..(done + len) as usize];
            region.read(dma, offset, part).map_err(|fault| cause(region, offset, len, fault, false))
        })
    }

    /// Appends the addresses of a segment's bytes in this process.
    pub(crate) fn spans(
        &self,
        dma: &dyn Dma,
        who: Who,
        segment: Segment,
        need: Access,
        spans: &mut Vec<Span>,
    ) -> Option<()> {
        let place = |region: &Region, offset: u64, _, len: u64| match region {
            Region::Flat { addr, .. } | Region::OnDemand { addr, .. } => {
                let span = addr.checked_add(offset).and_then(|addr| dma.in_process(addr, len));
                spans.push(span.ok_or(KeyFault::Range)?);
                Ok(())
            }
            // A span for each page would be too many.
            Region::Pages { .. } | Region::Void => Err(KeyFault::Range),
        };
        self.visit(who, segment, need, DEPTH, place).ok()
    }

    pub(crate) fn write<'a>(
        &self,
        dma: &dyn Dma,
        who: Who,
        (key, addr): (Key, u64),
        need: Access,
        data: impl Into<Payload<'a>>,
    ) -> Result<(), KeyFault> {
        let data = data.into();
        if data.len() == 0 {
            return Ok(());
        }
        let segment = Segment { key, addr, len: data.len() as u64 };
        self.visit(who, segment, need, DEPTH, |region, offset, done, len| {
            let part = data.part(done as usize, (done + len) as usize);
            region.write(dma, offset, part).map_err(|fault| cause(region, offset, len, fault, true))
        })
    }

    /// Reads `buf.len()` bytes starting `offset` bytes into a gather list.
    pub(crate) fn gather(
        &self,
        dma: &dyn Dma,
        who: Who,
        list: &[Segment],
        offset: u64,
        buf: &mut [u8],
    ) -> Result<(), KeyFault> {
        let mut done = 0;
        walk(list, offset, buf.len(), |key, addr, len| {
            let end = done + len;
            self.read(dma, who, (key, addr), Access::empty(), &mut buf[done..end])?;
            done = end;
            Ok(())
        })
    }

    /// Writes `data` starting `offset` bytes into a scatter list.
    pub(crate) fn scatter<'a>(
        &self,
        dma: &dyn Dma,
        who: Who,
        list: &[Segment],
        offset: u64,
        data: impl Into<Payload<'a>>,
    ) -> Result<(), KeyFault> {
        let (data, mut done) = (data.into(), 0);
        walk(list, offset, data.len(), |key, addr, len| {
            let end = done + len;
            self.write(dma, who, (key, addr), Access::LOCAL_WRITE, data.part(done, end))?;
            done = end;
            Ok(())
        })
    }

    /// Atomic read-modify-write of the 8 bytes at `addr`, as the responder of an atomic or of an
    /// ATOMIC WRITE. The two need different rights (`need`).
    ///
    /// The word is in host order: ConnectX reports atomics of host endianness
    /// (`atomic_req_8B_endianness_mode`), so CPU and device see the same number.
    pub(crate) fn atomic(
        &self,
        dma: &dyn Dma,
        who: Who,
        (key, addr): (Key, u64),
        need: Access,
        update: &mut dyn FnMut(u64) -> u64,
    ) -> Result<u64, KeyFault> {
        let segment = Segment { key, addr, len: 8 };
        let mut original = None;
        self.visit(who, segment, need, DEPTH, |region, offset, _, len| {
            // The word must be contiguous, or the access would not be atomic.
            let bus =
                region.addr_of(offset, if len == 8 { 8 } else { return Err(KeyFault::Range) });
            region.fault_in(dma, offset, 8, true).map_err(KeyFault::Dma)?;
            let bus = bus.map_err(|fault| cause(region, offset, len, fault, true))?;
            let old = dma.fetch_update_u64(bus, update);
            original = Some(old.map_err(KeyFault::Dma)?);
            Ok(())
        })?;
        original.ok_or(KeyFault::Range)
    }
}

/// Reason why memory refused an access: a missing page, or a host error.
#[cold]
fn cause(region: &Region, offset: u64, len: u64, fault: DmaFault, write: bool) -> KeyFault {
    if region.lacks(offset, len, write) { KeyFault::Absent } else { KeyFault::Dma(fault) }
}

/// Calls `each(key, addr, len)` for the segments of `list` that cover `len` bytes from `offset`. A
/// list that is too short is a range fault.
fn walk(
    list: &[Segment],
    mut offset: u64,
    len: usize,
    mut each: impl FnMut(Key, u64, usize) -> Result<(), KeyFault>,
) -> Result<(), KeyFault> {
    let mut left = len as u64;
    for segment in list {
        if left == 0 {
            break;
        }
        if offset >= segment.len {
            offset -= segment.len;
            continue;
        }
        let run = left.min(segment.len - offset);
        let addr = segment.addr.checked_add(offset).ok_or(KeyFault::Range)?;
        each(segment.key, addr, run as usize)?;
        offset = 0;
        left -= run;
    }
    if left == 0 { Ok(()) } else { Err(KeyFault::Range) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hca::testing::Arena;
    use uverbs_front::backend::context::MkeyContext;
    use uverbs_front::backend::number::{Pdn, Qpn};

    #[test]
    fn lists_are_walked_from_any_offset() {
        let arena = Arena::new(0x1000);
        let mut table = KeyTable::default();
        let key = table
            .create(
                MkeyContext {
                    pd: Pdn(1),
                    len: 0x100,
                    access: Access::LOCAL_WRITE,
                    region: Region::Flat { addr: arena.base(), len: 0x100 },
                    ..MkeyContext::default()
                },
                None,
                8,
            )
            .unwrap();
        let list = [
            Segment { key, addr: 0x80, len: 3 },
            Segment { key, addr: 0x10, len: 5 },
            Segment { key, addr: 0x40, len: 8 },
        ];
        let data: Vec<u8> = (1..=16).collect();
        table.scatter(&arena, Who { pd: Pdn(1), qpn: Qpn(0x40) }, &list, 0, &data[..2]).unwrap();
        table.scatter(&arena, Who { pd: Pdn(1), qpn: Qpn(0x40) }, &list, 2, &data[2..]).unwrap();
        assert_eq!(arena.bytes(arena.base() + 0x80, 3), data[..3]);
        assert_eq!(arena.bytes(arena.base() + 0x10, 5), data[3..8]);
        assert_eq!(arena.bytes(arena.base() + 0x40, 8), data[8..]);
        let mut back = [0; 6];
        table.gather(&arena, Who { pd: Pdn(1), qpn: Qpn(0x40) }, &list, 7, &mut back).unwrap();
        assert_eq!(back, data[7..13]);
        assert_eq!(
            table.gather(&arena, Who { pd: Pdn(1), qpn: Qpn(0x40) }, &list, 11, &mut back),
            Err(KeyFault::Range)
        );
    }
}
