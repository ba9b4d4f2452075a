//! A PCI function that a vfio-user server has, such as `uverbs softhca serve`. The socket needs no
//! privileges.
//!
//! Each access of a register is a message. Doorbell pages are a file that the server offers for
//! mapping. The memory of the function is a sealed memfd that the server maps; other memory of the
//! process the server reads and writes by messages, which a thread answers (QEMU
//! `docs/interop/vfio-user.rst`).

mod bells;
mod channel;
mod mapped;
mod message;
mod reader;
mod rights;
mod served;

use std::collections::VecDeque;
use std::ops::{Range, RangeInclusive};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uverbs_core::Errno;
use uverbs_front::watch::Watch;
use zerocopy::{FromBytes, IntoBytes};

use self::channel::Channel;
use self::mapped::{MAX_AREAS, Mapped};
use self::message::{
    Area, CAPABILITIES, DEVICE_IS_PCI, DEVICE_RESETS, DMA_READ_ONLY, DMA_READ_WRITE, DeviceInfo,
    DmaMap, DmaUnmap, EVENTFD_TRIGGER, Header, IrqInfo, IrqSet, Region, RegionInfo, SparseMmap,
    Version, command, flag,
};
use self::reader::{Line, Reply};
use super::{BAR0, CONFIG, Purpose, Transport, check};
use crate::error::Error;
use crate::memory::Memory;

/// Time limit of a message and its reply.
const LIMIT: Duration = Duration::from_secs(10);
/// The first message.
const VERSION: &str = "VERSION";
/// Indexes of VFIO (linux/vfio.h, `VFIO_PCI_BAR0_REGION_INDEX` and others).
const BAR0_INDEX: u32 = 0;
const CONFIG_INDEX: u32 = 7;
const MSIX_INDEX: u32 = 2;
/// Addresses of the function: the server has no IOMMU.
const IOVA: RangeInclusive<u64> = 0..=(1 << 48) - 1;

/// Client of a vfio-user server.
#[derive(Debug)]
pub struct VfioUser {
    name: String,
    channel: Mutex<Channel>,
    line: Arc<Line>,
    /// Doorbells of the driver that wait: offset and word.
    unsent: Mutex<VecDeque<(u64, u64)>>,
    /// Doorbell pages, if the server offers them.
    mapped: Option<Mapped>,
    bar_len: u64,
    config_len: u64,
    resets: bool,
}

impl VfioUser {
    /// Connects to the server at `path`, which serves one client at a time.
    ///
    /// # Errors
    ///
    /// The socket's error; [`Error::Busy`] if the server has another client; the server's, if it is
    /// not a PCI function with MSI-X.
    pub fn connect(path: &Path) -> Result<Self, Error> {
        Self::connect_within(path, LIMIT)
    }

    fn connect_within(path: &Path, limit: Duration) -> Result<Self, Error> {
        let name = format!("vfio-user:{}", path.display());
        Self::greet(name, Channel::connect(path, limit)?).map_err(|error| match error {
            // A server that serves another client leaves this one in its backlog.
            Error::System { what: VERSION, errno: Errno::ETIMEDOUT } => {
                Error::Busy { path: path.to_owned() }
            }
            other => other,
        })
    }

    /// Uses a connected socket. `limit` is the time limit of each message.
    ///
    /// # Errors
    ///
    /// As [`VfioUser::connect`].
    pub fn on(socket: UnixStream, limit: Duration) -> Result<Self, Error> {
        Self::greet("vfio-user".to_owned(), Channel::new(socket, limit)?)
    }

    fn greet(name: String, mut channel: Channel) -> Result<Self, Error> {
        let version = Version { major: 0, minor: 0 };
        let (answer, _) = channel.request(
            (command::VERSION, VERSION),
            &[version.as_bytes(), CAPABILITIES].concat(),
            &[],
        )?;
        if parse::<Version>(&answer)?.0.major != 0 {
            return Err(Error::Unsupported { what: "a vfio-user server not of version 0".into() });
        }
        let argsz = size_of::<DeviceInfo>() as u32;
        let info = DeviceInfo { argsz, ..DeviceInfo::default() };
        let request = (command::DEVICE_GET_INFO, "DEVICE_GET_INFO");
        let info = parse::<DeviceInfo>(&channel.request(request, info.as_bytes(), &[])?.0)?.0;
        if info.flags & DEVICE_IS_PCI == 0 {
            return Err(Error::Unsupported { what: "a vfio-user device that is not PCI".into() });
        }
        let (bar, file) = region(&mut channel, BAR0_INDEX)?;
        let bar_len = parse::<RegionInfo>(&bar)?.0.size;
        let mapped = Mapped::of(&bar, file)?;
        let config_len = parse::<RegionInfo>(&region(&mut channel, CONFIG_INDEX)?.0)?.0.size;
        let argsz = size_of::<IrqInfo>() as u32;
        let irq = IrqInfo { argsz, index: MSIX_INDEX, ..IrqInfo::default() };
        let request = (command::DEVICE_GET_IRQ_INFO, "DEVICE_GET_IRQ_INFO");
        let irq = parse::<IrqInfo>(&channel.request(request, irq.as_bytes(), &[])?.0)?.0;
        if irq.count == 0 {
            return Err(Error::Unsupported { what: "a PCI function without MSI-X".into() });
        }
        let resets = info.flags & DEVICE_RESETS != 0;
        let line = Arc::clone(&channel.line);
        // Without userfaultfd the server looks at the pages now and then.
        if mapped.is_some()
            && let Ok(watch) = Watch::new().map(Arc::new)
        {
            bells::start(Arc::clone(&line), Arc::clone(&watch))?;
            let _ = line.watch.set(watch);
        }
        let channel = Mutex::new(channel);
        let unsent = Mutex::default();
        Ok(Self { name, channel, line, unsent, mapped, bar_len, config_len, resets })
    }

    fn unsent(&self) -> MutexGuard<'_, VecDeque<(u64, u64)>> {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends doorbells in their order, until one would have to wait. False if some are left.
    fn try_unsent(&self, unsent: &mut VecDeque<(u64, u64)>) -> Result<bool, Error> {
        while let Some((offset, value)) = unsent.front() {
            let body = written(BAR0_INDEX, *offset, &value.to_be_bytes());
            let header = Header::new(0, command::REGION_WRITE, flag::NO_REPLY, &body);
            let sent = self.line.try_send(&header, &body);
            if !sent.map_err(|failure| self.line.end("REGION_WRITE", failure))? {
                break;
            }
            unsent.pop_front();
        }
        Ok(unsent.is_empty())
    }

    fn request(
        &self,
        request: (u16, &'static str),
        body: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<Vec<u8>, Error> {
        let mut channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        // Doorbells reach the device before a later command does.
        let unsent = std::mem::take(&mut *self.unsent());
        for (offset, value) in unsent {
            let body = written(BAR0_INDEX, offset, &value.to_be_bytes());
            channel.post((command::REGION_WRITE, "REGION_WRITE"), &body)?;
        }
        channel.request(request, body, fds).map(|(body, _)| body)
    }

    fn read(&self, index: u32, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        let asked = Region { offset, index, count: bytes.len() as u32 };
        let answer = self.request((command::REGION_READ, "REGION_READ"), asked.as_bytes(), &[])?;
        let (region, data) = parse::<Region>(&answer)?;
        if region.count as usize != bytes.len() || data.len() != bytes.len() {
            return Err(Error::Protocol { what: "a read of another length" });
        }
        bytes.copy_from_slice(data);
        Ok(())
    }

    fn write(&self, index: u32, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let body = written(index, offset, bytes);
        let answer = self.request((command::REGION_WRITE, "REGION_WRITE"), &body, &[])?;
        match parse::<Region>(&answer)?.0.count as usize == bytes.len() {
            true => Ok(()),
            false => Err(Error::Protocol { what: "a write of another length" }),
        }
    }
}

impl Transport for VfioUser {
    fn is_software(&self) -> bool {
        true
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn bar_len(&self) -> u64 {
        self.bar_len
    }

    fn iova_ranges(&self) -> &[RangeInclusive<u64>] {
        &[IOVA]
    }

    fn config_read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        check(CONFIG, offset, bytes.len() as u64, self.config_len)?;
        self.read(CONFIG_INDEX, offset, bytes)
    }

    fn config_write(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        check(CONFIG, offset, bytes.len() as u64, self.config_len)?;
        self.write(CONFIG_INDEX, offset, bytes)
    }

    fn bar_read(&self, offset: u64) -> Result<u32, Error> {
        check(BAR0, offset, 4, self.bar_len)?;
        let mut bytes = [0; 4];
        self.read(BAR0_INDEX, offset, &mut bytes)?;
        Ok(u32::from_be_bytes(bytes))
    }

    fn bar_write(&self, offset: u64, value: u32) -> Result<(), Error> {
        check(BAR0, offset, 4, self.bar_len)?;
        // The message passes through the kernel, which orders it after earlier stores to memory.
        self.write(BAR0_INDEX, offset, &value.to_be_bytes())
    }

    fn ring(&self, offset: u64, value: u64) -> Result<(), Error> {
        check(BAR0, offset, 8, self.bar_len)?;
        let body = written(BAR0_INDEX, offset, &value.to_be_bytes());
        let mut channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        channel.post((command::REGION_WRITE, "REGION_WRITE"), &body)
    }

    fn ring_soon(&self, offset: u64, value: u64) -> Result<(), Error> {
        check(BAR0, offset, 8, self.bar_len)?;
        let mut unsent = self.unsent();
        unsent.retain(|(at, word)| (*at, *word as u32) != (offset, value as u32));
        unsent.push_back((offset, value));
        self.try_unsent(&mut unsent).map(drop)
    }

    fn flush(&self) -> Result<bool, Error> {
        self.try_unsent(&mut self.unsent())
    }

    fn bar_file(&self, at: u64, len: u64) -> Result<(Arc<OwnedFd>, u64), Error> {
        let missing = || Error::Unsupported { what: "a server without mapped doorbells".into() };
        self.mapped.as_ref().ok_or_else(missing)?.part(at, len)
    }

    fn watch(&self) -> Option<Arc<Watch>> {
        self.line.watch.get().map(Arc::clone)
    }

    fn map(&self, iova: u64, memory: &Memory) -> Result<(), Error> {
        let argsz = size_of::<DmaMap>() as u32;
        let size = memory.len() as u64;
        let map = DmaMap { argsz, flags: DMA_READ_WRITE, offset: 0, address: iova, size };
        let request = (command::DMA_MAP, "DMA_MAP");
        self.request(request, map.as_bytes(), &[memory.file().as_fd()]).map(drop)
    }

    unsafe fn map_process(
        &self,
        iova: u64,
        pages: Range<u64>,
        used: Range<u64>,
        purpose: Purpose,
    ) -> Result<(), Error> {
        if !used.is_empty() {
            served::probe(used.start)?;
        }
        let argsz = size_of::<DmaMap>() as u32;
        let flags = if purpose.is_writable() { DMA_READ_WRITE } else { DMA_READ_ONLY };
        let size = pages.end - pages.start;
        let map = DmaMap { argsz, flags, offset: 0, address: iova, size };
        let line = &self.line;
        line.served.add(iova + (used.start - pages.start), used, purpose);
        let mapped = self.request((command::DMA_MAP, "DMA_MAP"), map.as_bytes(), &[]);
        mapped.map(drop).inspect_err(|_| line.served.remove(iova, size))
    }

    fn unmap(&self, iova: u64, len: u64) -> Result<(), Error> {
        let argsz = size_of::<DmaUnmap>() as u32;
        let unmap = DmaUnmap { argsz, flags: 0, address: iova, size: len };
        let done = self.request((command::DMA_UNMAP, "DMA_UNMAP"), unmap.as_bytes(), &[]);
        self.line.served.remove(iova, len);
        done.map(drop)
    }

    fn interrupt(&self, event: BorrowedFd<'_>) -> Result<(), Error> {
        let argsz = size_of::<IrqSet>() as u32;
        let set = IrqSet { argsz, flags: EVENTFD_TRIGGER, index: MSIX_INDEX, start: 0, count: 1 };
        let request = (command::DEVICE_SET_IRQS, "DEVICE_SET_IRQS");
        self.request(request, set.as_bytes(), &[event]).map(drop)
    }

    fn is_gone(&self) -> bool {
        self.line.is_left()
    }

    fn reset(&self) -> Result<(), Error> {
        if !self.resets {
            return Err(Error::Unsupported { what: format!("{}: reset", self.name) });
        }
        self.request((command::DEVICE_RESET, "DEVICE_RESET"), &[], &[]).map(drop)
    }
}

/// Asks for a region's description, with its areas and their file.
fn region(channel: &mut Channel, index: u32) -> Result<Reply, Error> {
    let areas = size_of::<SparseMmap>() + MAX_AREAS * size_of::<Area>();
    let argsz = (size_of::<RegionInfo>() + areas) as u32;
    let asked = RegionInfo { argsz, index, ..RegionInfo::default() };
    let request = (command::DEVICE_GET_REGION_INFO, "DEVICE_GET_REGION_INFO");
    channel.request(request, asked.as_bytes(), &[])
}

/// Body of a REGION_WRITE.
fn written(index: u32, offset: u64, bytes: &[u8]) -> Vec<u8> {
    [Region { offset, index, count: bytes.len() as u32 }.as_bytes(), bytes].concat()
}

/// Splits a body into its fixed part and the rest.
fn parse<T: FromBytes>(body: &[u8]) -> Result<(T, &[u8]), Error> {
    T::read_from_prefix(body).map_err(|_| Error::Protocol { what: "a reply that is too short" })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A server that serves another client accepts no further one.
    #[test]
    fn a_function_with_an_owner_is_busy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hca.sock");
        let _server = UnixListener::bind(&path).unwrap();
        let refused = VfioUser::connect_within(&path, Duration::from_millis(100)).map(drop);
        assert_eq!(refused, Err(Error::Busy { path }));
    }
}
