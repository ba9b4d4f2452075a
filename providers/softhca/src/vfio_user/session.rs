//! Session of a client, from connect to disconnect.

use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use zerocopy::IntoBytes;

use super::Server;
use super::bell::Bell;
use super::channel::{Channel, Message};
use super::doorbells::{self, Client, Doorbells};
use super::memory::{GuestMemory, Room};
use super::message::{
    CAP_SPARSE_MMAP, DeviceInfo, DmaMap, DmaUnmap, Header, IrqInfo, IrqSet, Look, MAP_WRITE,
    MAX_TRANSFER, Region, RegionInfo, SparseMmap, UNMAP_ALL, Version, command, flag, split,
};
use super::signals::Signals;
use crate::closer::Foreign;
use crate::pci::{BAR0_LEN, CONFIG_LEN, PciHca, VECTORS};

/// Longest sleep. Receives posted to a queue pair in the error state ring no doorbell, so the
/// device polls.
const IDLE: Duration = Duration::from_millis(5);
/// Maximum delay of the kernel at the end of a sleep.
const SLACK_NS: libc::c_ulong = 1_000;
/// Slices of the device's work between two looks at the socket.
const SLICES: usize = 64;

/// Indexes of VFIO (linux/vfio.h, `VFIO_PCI_*_INDEX`).
mod index {
    pub(super) const BAR0: u32 = 0;
    pub(super) const CONFIG: u32 = 7;
    pub(super) const REGIONS: u32 = 9;
    pub(super) const MSIX: u32 = 2;
    pub(super) const IRQS: u32 = 5;
}

/// `VFIO_DEVICE_FLAGS_RESET | VFIO_DEVICE_FLAGS_PCI`.
const DEVICE_FLAGS: u32 = 0b11;
/// `VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE`.
const READ_WRITE: u32 = 0b11;
/// `VFIO_REGION_INFO_FLAG_MMAP | VFIO_REGION_INFO_FLAG_CAPS`.
const MAPS: u32 = 0b1100;
/// `VFIO_IRQ_INFO_EVENTFD | VFIO_IRQ_INFO_NORESIZE`.
const IRQ_FLAGS: u32 = 1 | 1 << 3;
/// `VFIO_IRQ_SET_DATA_NONE`, `_DATA_EVENTFD`, `_ACTION_TRIGGER`.
const DATA_NONE: u32 = 1;
const DATA_EVENTFD: u32 = 1 << 2;
const ACTION_TRIGGER: u32 = 1 << 5;

/// A client and its settings.
pub(super) struct Session<'a> {
    hca: &'a mut PciHca,
    memory: &'a GuestMemory,
    channel: Arc<Channel>,
    vectors: Vec<Option<(Foreign, Room)>>,
    bell: &'a Bell,
    signals: &'a Signals,
    start: Instant,
    /// Pages that the client maps.
    doorbells: Option<Doorbells>,
    maps_to_guests: bool,
    /// A message other than VERSION came.
    is_open: bool,
}

impl<'a> Session<'a> {
    pub(super) fn new(server: &'a mut Server, socket: UnixStream) -> io::Result<Self> {
        let channel = Arc::new(Channel::new(socket, &server.closer)?);
        server.memory.serve(Arc::clone(&channel));
        let vectors = (0..VECTORS).map(|_| None).collect();
        let Server { hca, memory, bell, signals, start, maps_to_guests, .. } = server;
        let (start, doorbells, maps_to_guests) = (*start, None, *maps_to_guests);
        hca.map_uars(0..0);
        Ok(Self {
            hca,
            memory,
            channel,
            vectors,
            bell,
            signals,
            start,
            doorbells,
            maps_to_guests,
            is_open: false,
        })
    }

    /// Serves until the client leaves.
    pub(super) fn run(mut self) -> io::Result<()> {
        // If refused, naps are 50 microseconds longer.
        let _ = nix::sys::prctl::set_timerslack(SLACK_NS);
        loop {
            let busy = self.work();
            if self.wait(busy)? && !self.heard()? {
                return Ok(());
            }
        }
    }

    /// As [`Session::message`]. A client that is killed resets the connection if a reply is unread
    /// (`net/unix/af_unix.c`, `unix_release_sock`): it has left.
    fn heard(&mut self) -> io::Result<bool> {
        match self.message() {
            Err(error) if is_of_left(&error) => Ok(false),
            heard => heard,
        }
    }

    /// Does the device's work; true if there is more.
    pub(super) fn work(&mut self) -> bool {
        let mut busy = true;
        for slice in 0..SLICES {
            self.hca.advance(self.start.elapsed());
            busy = self.ring() | self.hca.step();
            if !busy {
                break;
            }
            if let Some(doorbells) = self.doorbells.as_mut().filter(|_| slice == 0) {
                doorbells.rest.saw_work(self.start.elapsed());
            }
        }
        for vector in self.hca.take_interrupts() {
            if let Some(Some((event, _))) = self.vectors.get(usize::from(vector)) {
                self.signals.raise(event);
            }
        }
        busy
    }

    /// Takes the doorbells that the client stored. A store reaches the device before a later
    /// message does. True if there was one.
    fn ring(&mut self) -> bool {
        let Some(doorbells) = &self.doorbells else { return false };
        let mut rung = Vec::new();
        for uar in self.hca.uars() {
            doorbells.take(uar, |offset, word| rung.push((uar, offset, word)));
        }
        rung.iter().for_each(|&(uar, offset, word)| self.hca.ring(uar, offset, word));
        !rung.is_empty()
    }

    /// Time until the next look, without a message.
    fn pause(&mut self, busy: bool) -> io::Result<Duration> {
        let now = self.start.elapsed();
        let due = self.hca.next_deadline().map_or(IDLE, |when| when.saturating_sub(now));
        if busy {
            return Ok(Duration::ZERO);
        }
        let Some(doorbells) = &mut self.doorbells else { return Ok(due.min(IDLE)) };
        let (nap, arms) = doorbells.rest.pause(now, IDLE);
        if arms
            && let Err(error) = self.channel.tell(command::ARM)
            && !is_of_left(&error)
        {
            return Err(error);
        }
        if nap.is_zero() {
            std::thread::yield_now();
            doorbells.rest.yielded(now, self.start.elapsed());
        }
        Ok(due.min(nap))
    }

    /// Waits for a message, a frame, or a deadline of the device; true if there is a message.
    fn wait(&mut self, busy: bool) -> io::Result<bool> {
        if self.channel.is_ready() {
            return Ok(true);
        }
        let timeout = TimeSpec::from_duration(self.pause(busy)?);
        let mut fds =
            [self.channel.as_fd(), self.bell.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        match ppoll(&mut fds, Some(timeout), None) {
            Ok(_) => {
                let [message, frame] = fds.map(|fd| fd.any().unwrap_or(true));
                if frame {
                    // Silenced before the frames are read, so that the next one rings again.
                    self.bell.silence();
                }
                Ok(message)
            }
            Err(Errno::EINTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Receives and answers a message; false if the client has left.
    pub(super) fn message(&mut self) -> io::Result<bool> {
        let Some(Message { header, body, mut fds }) = self.channel.receive()? else {
            return Ok(false);
        };
        self.hca.advance(self.start.elapsed());
        self.ring();
        if let Some(doorbells) = self.doorbells.as_mut().filter(|_| header.command != command::LOOK)
        {
            doorbells.rest.saw_work(self.start.elapsed());
        }
        let answer = self.answer(header.command, &body, &mut fds);
        if let Some(doorbells) = &mut self.doorbells {
            doorbells.follow(self.hca.uars());
        }
        if header.flags & flag::NO_REPLY != 0 {
            return Ok(true);
        }
        let (flags, error, body) = match answer {
            Ok(body) => (flag::REPLY, 0, body),
            Err(errno) => (flag::REPLY | flag::ERROR, errno as u32, Vec::new()),
        };
        let size = (size_of::<Header>() + body.len()) as u32;
        let mut reply = Header { size, flags, error, ..header }.as_bytes().to_vec();
        reply.extend_from_slice(&body);
        // With a description that names areas.
        let names_areas = header.command == command::DEVICE_GET_REGION_INFO
            && body.len() > size_of::<RegionInfo>();
        let file = self.doorbells.as_ref().filter(|_| names_areas).map(AsFd::as_fd);
        self.channel.send_with(&reply, file)?;
        Ok(true)
    }

    fn answer(
        &mut self,
        number: u16,
        body: &[u8],
        fds: &mut Vec<Foreign>,
    ) -> Result<Vec<u8>, Errno> {
        self.is_open |= number != command::VERSION;
        match number {
            command::VERSION => {
                // QEMU accepts its own version only: 0.0.
                let (version, capabilities) = parse::<Version>(body)?;
                // Device memory that has contents is not replaced.
                if version.major != 0 || self.is_open {
                    return Err(Errno::EINVAL);
                }
                self.offer_pages(capabilities)?;
                Ok(Version { major: 0, minor: 0 }.as_bytes().to_vec())
            }
            command::DMA_MAP => self.dma_map(body, fds),
            command::DMA_UNMAP => {
                let (unmap, _) = parse::<DmaUnmap>(body)?;
                if unmap.flags & UNMAP_ALL != 0 {
                    self.memory.clear();
                } else {
                    let unmapped = self.memory.unmap(unmap.address, unmap.size);
                    unmapped.map_err(|error| refusal(&error))?;
                }
                Ok(unmap.as_bytes().to_vec())
            }
            command::DEVICE_GET_INFO => Ok(DeviceInfo {
                argsz: size_of::<DeviceInfo>() as u32,
                flags: DEVICE_FLAGS,
                regions: index::REGIONS,
                irqs: index::IRQS,
            }
            .as_bytes()
            .to_vec()),
            command::DEVICE_GET_REGION_INFO => region_info(body, self.doorbells.as_ref()),
            command::DEVICE_GET_IRQ_INFO => irq_info(body),
            command::DEVICE_SET_IRQS => self.set_irqs(body, fds),
            command::REGION_READ => self.region_read(body),
            command::REGION_WRITE => self.region_write(body),
            command::DEVICE_RESET => {
                self.hca.reset();
                Ok(Vec::new())
            }
            command::LOOK => {
                let (look, _) = parse::<Look>(body)?;
                if let Some(doorbells) = &mut self.doorbells {
                    doorbells.rest.was_told(self.start.elapsed(), look.stored != 0, IDLE);
                }
                Ok(Vec::new())
            }
            _ => Err(Errno::ENOTSUP),
        }
    }

    /// Makes the pages that the client of a VERSION message maps. A second VERSION changes nothing.
    fn offer_pages(&mut self, capabilities: &[u8]) -> Result<(), Errno> {
        let client = match doorbells::are_asked_for(capabilities) {
            true => Client::Asks,
            false => Client::Guest,
        };
        if self.doorbells.is_some() || client == Client::Guest && !self.maps_to_guests {
            return Ok(());
        }
        let doorbells = Doorbells::new(client).map_err(|error| refusal(&error))?;
        match client {
            Client::Asks => {
                let shared = self.hca.share_memory(doorbells.as_fd());
                shared.map_err(|error| refusal(&error))?;
            }
            Client::Guest => self.hca.map_uars(doorbells.mapped()),
        }
        self.doorbells = Some(doorbells);
        Ok(())
    }

    fn dma_map(&mut self, body: &[u8], fds: &mut Vec<Foreign>) -> Result<Vec<u8>, Errno> {
        let (map, _) = parse::<DmaMap>(body)?;
        let writable = map.flags & MAP_WRITE != 0;
        // A range without a descriptor is reached by messages.
        let mapped = match fds.pop() {
            Some(file) => self.memory.map(map.address, map.size, &file, map.offset, writable),
            None => self.memory.map_served(map.address, map.size, writable),
        };
        mapped.map_err(|error| refusal(&error))?;
        Ok(Vec::new())
    }

    fn set_irqs(&mut self, body: &[u8], fds: &mut Vec<Foreign>) -> Result<Vec<u8>, Errno> {
        let (set, _) = parse::<IrqSet>(body)?;
        if set.index != index::MSIX {
            // Only MSI-X has vectors here.
            return match set.count {
                0 => Ok(Vec::new()),
                _ => Err(Errno::EINVAL),
            };
        }
        let end = set.start.checked_add(set.count).ok_or(Errno::EINVAL)?;
        if end > u32::from(VECTORS) || set.flags & ACTION_TRIGGER == 0 {
            return Err(Errno::EINVAL);
        }
        let range = set.start as usize..end as usize;
        if set.flags & DATA_EVENTFD != 0 {
            fds.iter().try_for_each(|fd| self.signals.check(fd))?;
            self.replace_events(range, fds)?;
        } else if set.flags & DATA_NONE != 0 {
            match set.count {
                0 => self.vectors.fill_with(|| None),
                _ => return Err(Errno::EINVAL),
            }
        } else {
            return Err(Errno::EINVAL);
        }
        Ok(Vec::new())
    }

    /// Replaces the eventfds of vectors. A vector without a new one is disabled; QEMU's first
    /// message has none.
    fn replace_events(&mut self, range: Range<usize>, fds: &mut Vec<Foreign>) -> Result<(), Errno> {
        fds.truncate(range.len());
        let vectors = &mut self.vectors[range];
        // The new ones have the room of the old ones first. A refusal changes nothing.
        let more = fds.len().saturating_sub(vectors.iter().flatten().count());
        let more = (0..more).map(|_| self.memory.room()).collect::<io::Result<Vec<_>>>();
        let more = more.map_err(|error| refusal(&error))?;
        let old = vectors.iter_mut().filter_map(|vector| vector.take().map(|(_, room)| room));
        let rooms = old.chain(more).collect::<Vec<_>>();
        for (vector, event) in vectors.iter_mut().zip(fds.drain(..).zip(rooms)) {
            *vector = Some(event);
        }
        Ok(())
    }

    fn region_read(&mut self, body: &[u8]) -> Result<Vec<u8>, Errno> {
        let (region, _) = parse::<Region>(body)?;
        check_range(&region)?;
        let mut answer = region.as_bytes().to_vec();
        let start = answer.len();
        answer.resize(start + region.count as usize, 0);
        match region.index {
            index::BAR0 => self.hca.bar_read(region.offset, &mut answer[start..]),
            _ => self.hca.config_read(region.offset, &mut answer[start..]),
        }
        Ok(answer)
    }

    fn region_write(&mut self, body: &[u8]) -> Result<Vec<u8>, Errno> {
        let (region, data) = parse::<Region>(body)?;
        check_range(&region)?;
        let data = data.get(..region.count as usize).ok_or(Errno::EINVAL)?;
        match region.index {
            index::BAR0 => self.hca.bar_write(region.offset, data),
            _ => self.hca.config_write(region.offset, data),
        }
        Ok(region.as_bytes().to_vec())
    }
}

/// Errno of a refused range: EEXIST over another, ENOSPC if there are too many, as VFIO answers
/// (`vfio_dma_do_map`).
fn refusal(error: &io::Error) -> Errno {
    match error.kind() {
        io::ErrorKind::AlreadyExists => Errno::EEXIST,
        io::ErrorKind::StorageFull => Errno::ENOSPC,
        io::ErrorKind::OutOfMemory => Errno::ENOMEM,
        _ => Errno::EINVAL,
    }
}

/// True for errors of the socket of a client that has left.
fn is_of_left(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

fn parse<T: zerocopy::FromBytes>(body: &[u8]) -> Result<(T, &[u8]), Errno> {
    split(body).ok_or(Errno::EINVAL)
}

/// Bytes of a region.
fn region_len(number: u32) -> u64 {
    match number {
        index::BAR0 => BAR0_LEN,
        index::CONFIG => CONFIG_LEN,
        _ => 0,
    }
}

fn check_range(region: &Region) -> Result<(), Errno> {
    let end = region.offset.checked_add(region.count.into());
    let inside = end.is_some_and(|end| end <= region_len(region.index));
    match inside && region.count <= MAX_TRANSFER {
        true => Ok(()),
        false => Err(Errno::EINVAL),
    }
}

/// Describes a region; `doorbells`: with areas that the client maps.
fn region_info(body: &[u8], doorbells: Option<&Doorbells>) -> Result<Vec<u8>, Errno> {
    let (asked, _) = parse::<RegionInfo>(body)?;
    if asked.index >= index::REGIONS {
        return Err(Errno::EINVAL);
    }
    let size = region_len(asked.index);
    let flags = if size == 0 { 0 } else { READ_WRITE };
    let argsz = size_of::<RegionInfo>() as u32;
    let info = RegionInfo { argsz, flags, index: asked.index, cap_offset: 0, size, offset: 0 };
    let Some(doorbells) = doorbells.filter(|_| asked.index == index::BAR0) else {
        return Ok(info.as_bytes().to_vec());
    };
    let areas = doorbells.areas();
    let count = areas.len() as u32;
    let list = SparseMmap { id: CAP_SPARSE_MMAP, version: 1, count, ..SparseMmap::default() };
    let whole = (size_of_val(&info) + size_of_val(&list) + size_of_val(&areas[..])) as u32;
    let info = RegionInfo { argsz: whole, flags: flags | MAPS, cap_offset: argsz, ..info };
    Ok(match asked.argsz >= whole {
        true => [info.as_bytes(), list.as_bytes(), areas.as_bytes()].concat(),
        // Without room for the capability: its length is in `argsz`. QEMU wants an offset even so
        // (`hw/vfio-user/device.c`, `vfio_user_device_io_get_region_info`).
        false => info.as_bytes().to_vec(),
    })
}

fn irq_info(body: &[u8]) -> Result<Vec<u8>, Errno> {
    let (asked, _) = parse::<IrqInfo>(body)?;
    if asked.index >= index::IRQS {
        return Err(Errno::EINVAL);
    }
    let (flags, count) = match asked.index {
        index::MSIX => (IRQ_FLAGS, u32::from(VECTORS)),
        _ => (0, 0),
    };
    let argsz = size_of::<IrqInfo>() as u32;
    Ok(IrqInfo { argsz, flags, index: asked.index, count }.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::OwnedFd;

    use nix::poll::{PollTimeout, poll};
    use nix::sys::eventfd::EventFd;

    use super::*;
    use crate::pci::PciOptions;
    use crate::vfio_user::memory::MAX_FILES;

    /// Functions share the descriptors of their process.
    #[test]
    fn eventfds_count_among_the_files_of_the_process() {
        let mut server = Server::new(&PciOptions::default()).unwrap();
        server.memory = Arc::new(GuestMemory::of_own_budget());
        let memory = Arc::clone(&server.memory);
        let closer = server.closer.clone();
        let (here, _there) = UnixStream::pair().unwrap();
        let mut session = Session::new(&mut server, here).unwrap();
        // The new eventfds of `count` vectors.
        let mut set = |start, count, events: usize| {
            let flags = DATA_EVENTFD | ACTION_TRIGGER;
            let set = IrqSet { argsz: 20, flags, index: index::MSIX, start, count };
            let events = (0..events).map(|_| closer.own(OwnedFd::from(EventFd::new().unwrap())));
            let done = session.set_irqs(set.as_bytes(), &mut events.collect()).map(drop);
            (done, session.vectors.iter().map(Option::is_some).take(4).collect::<Vec<_>>())
        };
        let refused = Err(Errno::ENOSPC);
        let rest: Vec<_> = (0..MAX_FILES - 3).map(|_| memory.room().unwrap()).collect();
        assert_eq!(set(0, 4, 4), (refused, vec![false; 4]));
        assert_eq!(set(0, 2, 2), (Ok(()), vec![true, true, false, false]));
        assert_eq!(set(2, 1, 1), (Ok(()), vec![true, true, true, false]));
        // At a full budget, others in place of as many, and no more.
        assert!(memory.room().is_err());
        let full = vec![true, true, true, false];
        assert_eq!(set(0, 3, 3), (Ok(()), full.clone()));
        assert_eq!(set(1, 3, 3), (refused, full.clone()));
        assert_eq!(set(3, 1, 1), (refused, full.clone()));
        // No vector is left for the second.
        assert_eq!(set(1, 1, 2), (Ok(()), full));
        assert!(memory.room().is_err());
        // Fewer, which go to other vectors.
        assert_eq!(set(1, 3, 1), (Ok(()), vec![true, true, false, false]));
        assert_eq!(set(3, 1, 1), (Ok(()), vec![true, true, false, true]));
        assert_eq!(set(2, 2, 1), (Ok(()), vec![true, true, true, false]));
        assert!(memory.room().is_err());
        drop(session);
        drop(rest);
        let all: Vec<_> = (0..MAX_FILES).map(|_| memory.room().unwrap()).collect();
        assert!(memory.room().is_err());
        drop(all);
    }

    #[test]
    fn a_client_that_is_killed_before_it_reads_has_left() {
        let mut server = Server::new(&PciOptions::default()).unwrap();
        let (here, mut there) = UnixStream::pair().unwrap();
        let header = Header { id: 1, command: command::VERSION, size: 20, flags: 0, error: 0 };
        there.write_all(&[header.as_bytes(), &[0; 4]].concat()).unwrap();
        let session = Session::new(&mut server, here).unwrap();
        let client = std::thread::spawn(move || {
            let mut fds = [PollFd::new(there.as_fd(), PollFlags::POLLIN)];
            assert_eq!(poll(&mut fds, PollTimeout::from(60_000u16)), Ok(1));
        });
        session.run().unwrap();
        client.join().unwrap();
    }
}
