//! A minimal QEMU: a vfio-user client that shares its memory and forwards register accesses.

use std::fs::File;
use std::io::{IoSliceMut, Read, Write};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use std::os::unix::fs::FileExt;
use uverbs_softhca::pci::PciOptions;
use uverbs_softhca::vfio_user::Server;
use uverbs_softhca::wire::Fabric;

/// Limit of every wait.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);
/// First guest address, and bytes of the memory.
pub(crate) const BASE: u64 = 0x10_0000;
pub(crate) const MEMORY: u64 = 16 << 20;
/// Number of vectors with an eventfd.
const VECTORS: u32 = 4;
const CONFIG: u32 = 7;
const BAR0: u32 = 0;
/// Bytes of BAR 0's description without its areas, and of an area that can be mapped.
const REGION_INFO: usize = 48;
const AREA: usize = 16;
/// Body of VERSION, of a client that asks for pages (`uverbs-mlx5-vfio`).
const ASKS: &[u8] = b"\0\0\0\0{\"capabilities\":{\"uverbs_doorbells\":true}}\0";

/// A client with its memory. Dropping it disconnects, and waits for the server's thread.
pub(crate) struct Host {
    socket: Option<UnixStream>,
    memory: File,
    pub(crate) events: Vec<EventFd>,
    /// File of the doorbell pages that it maps, and their offsets there and in BAR 0.
    doorbells: Option<(File, Range<u64>)>,
    path: PathBuf,
    server: Option<JoinHandle<(Server, std::io::Result<()>)>>,
}

fn place() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("softhca-{}-{number}.sock", std::process::id()))
}

impl Host {
    /// A function on a private wire, served by a thread, with memory and interrupts connected.
    pub(crate) fn new() -> Self {
        Self::with(PciOptions::default())
    }

    /// A function with `options` on a private wire, served by a thread, with memory and interrupts
    /// connected.
    pub(crate) fn with(options: PciOptions) -> Self {
        Self::of(Server::on(&Fabric::default(), &options).unwrap())
    }

    /// Serves the given server's function by a thread, with memory and interrupts connected.
    pub(crate) fn of(server: Server) -> Self {
        Self::greeting(server, &[0; 4])
    }

    /// As [`Host::of`]: a client that maps pages of BAR 0, as the driver without a kernel does.
    pub(crate) fn that_maps(server: Server) -> Self {
        Self::greeting(server, ASKS)
    }

    fn greeting(server: Server, version: &[u8]) -> Self {
        let mut host = Self::serving(server);
        assert_eq!(host.request(1, version, &[]).unwrap()[..4], [0; 4]);
        host.map(BASE, MEMORY, 0);
        let fds = host.events.iter().map(AsRawFd::as_raw_fd).collect::<Vec<_>>();
        host.vectors(&fds).unwrap();
        host
    }

    /// DEVICE_SET_IRQS: sets the eventfds of the first MSI-X vectors.
    pub(crate) fn vectors(&mut self, fds: &[RawFd]) -> Result<(), u32> {
        self.request(8, &words(&[20, 0x24, 2, 0, fds.len() as u32]), fds).map(drop)
    }

    /// A connected client that has sent no message.
    pub(crate) fn connected() -> Self {
        Self::serving(Server::new(&PciOptions::default()).unwrap())
    }

    fn serving(mut server: Server) -> Self {
        let path = place();
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let done = server.serve_one(&listener);
            (server, done)
        });
        let socket = UnixStream::connect(&path).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket.set_write_timeout(Some(LIMIT)).unwrap();
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let memory = File::from(memfd_create("guest", flags).unwrap());
        memory.set_len(MEMORY).unwrap();
        // Sealed as QEMU's memory is.
        let seals = SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL;
        fcntl(&memory, FcntlArg::F_ADD_SEALS(seals)).unwrap();
        let event = || EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC).unwrap();
        let events = (0..VECTORS).map(|_| event()).collect();
        let (socket, server, doorbells) = (Some(socket), Some(server), None);
        Self { socket, memory, events, doorbells, path, server }
    }

    /// DMA_MAP.
    pub(crate) fn map(&mut self, iova: u64, len: u64, offset: u64) {
        let fd = self.memory.as_raw_fd();
        self.map_file(fd, (iova, len, offset)).unwrap();
    }

    /// DMA_MAP of a given file.
    pub(crate) fn map_file(
        &mut self,
        fd: RawFd,
        (iova, len, offset): (u64, u64, u64),
    ) -> Result<(), u32> {
        let mut map = words(&[32, 3]);
        for number in [offset, iova, len] {
            map.extend_from_slice(&number.to_ne_bytes());
        }
        self.request(2, &map, &[fd]).map(drop)
    }

    /// DMA_UNMAP.
    pub(crate) fn unmap(&mut self, iova: u64, len: u64) {
        let mut unmap = words(&[24, 0]);
        for number in [iova, len] {
            unmap.extend_from_slice(&number.to_ne_bytes());
        }
        self.request(3, &unmap, &[]).unwrap();
    }

    fn socket(&mut self) -> &mut UnixStream {
        self.socket.as_mut().expect("connected")
    }

    /// Sends raw bytes.
    pub(crate) fn send(&mut self, bytes: &[u8], fds: &[RawFd]) -> bool {
        let socket = self.socket();
        let parts = [std::io::IoSlice::new(bytes)];
        let control = ControlMessage::ScmRights(fds);
        let control = if fds.is_empty() { &[][..] } else { std::slice::from_ref(&control) };
        let sent = sendmsg::<()>(socket.as_raw_fd(), &parts, control, MsgFlags::MSG_NOSIGNAL, None);
        sent == Ok(bytes.len())
    }

    /// Sends a message and waits for the answer. Returns its body, or its error number.
    pub(crate) fn request(
        &mut self,
        command: u16,
        body: &[u8],
        fds: &[RawFd],
    ) -> Result<Vec<u8>, u32> {
        assert!(self.send(&message(command, 0, body), fds));
        self.reply().0
    }

    /// Receives a reply: body or error number, and a file with it. The server asks a client that
    /// maps pages to tell of stores, and goes on without an answer.
    fn reply(&mut self) -> (Result<Vec<u8>, u32>, Option<File>) {
        let mut header = [0; 16];
        let mut space = nix::cmsg_space!(RawFd);
        let (socket, mut parts) = (self.socket().as_raw_fd(), [IoSliceMut::new(&mut header)]);
        let got = recvmsg::<()>(socket, &mut parts, Some(&mut space), MsgFlags::MSG_WAITALL);
        let got = got.unwrap();
        assert_eq!(got.bytes, 16);
        let fd = got.cmsgs().unwrap().find_map(|with| match with {
            ControlMessageOwned::ScmRights(fds) => fds.first().copied(),
            _ => None,
        });
        // Opened once more, so that it has an owner.
        let file = fd.map(|fd| {
            let open = File::options().read(true).write(true).open(format!("/proc/self/fd/{fd}"));
            nix::unistd::close(fd).unwrap();
            open.unwrap()
        });
        let word = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().unwrap());
        let mut body = vec![0; word(4) as usize - 16];
        self.socket().read_exact(&mut body).unwrap();
        match word(8) & 0xf {
            0 => self.reply(),
            1 if word(8) & 1 << 5 == 0 => (Ok(body), file),
            1 => (Err(word(12)), file),
            kind => panic!("a message of type {kind}"),
        }
    }

    pub(crate) fn region_read(
        &mut self,
        region: u32,
        offset: u64,
        len: u32,
    ) -> Result<Vec<u8>, u32> {
        let body = region_header(region, offset, len);
        self.request(9, &body, &[]).map(|answer| answer[16..].to_vec())
    }

    pub(crate) fn region_write(
        &mut self,
        region: u32,
        offset: u64,
        data: &[u8],
    ) -> Result<(), u32> {
        let mut body = region_header(region, offset, data.len() as u32);
        body.extend_from_slice(data);
        self.request(10, &body, &[]).map(drop)
    }

    /// Reads a register of BAR 0.
    pub(crate) fn get(&mut self, offset: u64) -> u32 {
        let bytes = self.region_read(BAR0, offset, 4).unwrap();
        u32::from_be_bytes(bytes.try_into().unwrap())
    }

    pub(crate) fn set(&mut self, offset: u64, value: u32) {
        self.region_write(BAR0, offset, &value.to_be_bytes()).unwrap();
    }

    /// Maps the doorbell pages that the server offers. Returns their offsets.
    pub(crate) fn map_doorbells(&mut self) -> Range<u64> {
        let (file, [pages]) = self.offered();
        self.doorbells = Some((file, pages.clone()));
        pages
    }

    /// File and areas of BAR 0 that the server offers.
    pub(crate) fn offered<const N: usize>(&mut self) -> (File, [Range<u64>; N]) {
        let len = REGION_INFO + N * AREA;
        let asks = words(&[len as u32, 0, BAR0, 0, 0, 0, 0, 0]);
        assert!(self.send(&message(5, 0, &asks), &[]));
        let (body, file) = self.reply();
        let body = body.unwrap();
        let word = |at: usize| u64::from_ne_bytes(body[at..at + 8].try_into().unwrap());
        let areas = std::array::from_fn(|n| {
            let at = REGION_INFO + n * AREA;
            word(at)..word(at) + word(at + 8)
        });
        (file.expect("a file of the pages"), areas)
    }

    /// Rings a doorbell of 8 bytes: stores into a mapped page, or writes without waiting for an
    /// answer, as QEMU does.
    pub(crate) fn ring(&mut self, offset: u64, value: u64) {
        let mapped = self.doorbells.as_ref().filter(|(_, pages)| pages.contains(&offset));
        if let Some((file, _)) = mapped {
            return file.write_all_at(&value.to_be_bytes(), offset).unwrap();
        }
        let mut body = region_header(BAR0, offset, 8);
        body.extend_from_slice(&value.to_be_bytes());
        assert!(self.send(&message(10, 1 << 4, &body), &[]));
    }

    pub(crate) fn config(&mut self, offset: u64) -> u32 {
        let bytes = self.region_read(CONFIG, offset, 4).unwrap();
        u32::from_le_bytes(bytes.try_into().unwrap())
    }

    /// Writes configuration space.
    pub(crate) fn configure(&mut self, offset: u64, bytes: &[u8]) {
        self.region_write(CONFIG, offset, bytes).unwrap();
    }

    /// Reads guest memory.
    pub(crate) fn read(&self, addr: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read_exact_at(&mut bytes, addr - BASE).unwrap();
        bytes
    }

    pub(crate) fn write(&self, addr: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, addr - BASE).unwrap();
    }

    /// Takes the interrupts of a vector. Returns their number.
    pub(crate) fn interrupts(&self, vector: usize) -> u64 {
        self.events[vector].read().unwrap_or(0)
    }

    /// Waits until `done` returns a value.
    pub(crate) fn wait<T>(&self, what: &str, mut done: impl FnMut(&Self) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(value) = done(self) {
                return value;
            }
            assert!(start.elapsed() < LIMIT, "waited too long for {what}");
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Disconnects. Returns the server's result.
    pub(crate) fn leave(&mut self) -> std::io::Result<()> {
        if let Some(mut socket) = self.socket.take() {
            let _ = socket.flush();
        }
        let _ = std::fs::remove_file(&self.path);
        match self.server.take() {
            Some(server) => server.join().expect("the server does not panic").1,
            None => Ok(()),
        }
    }

    /// Disconnects, even if the server closed the connection first. Returns the server for the next
    /// client.
    pub(crate) fn left(mut self) -> Server {
        drop(self.socket.take());
        let server = self.server.take().expect("nobody has taken it");
        let start = Instant::now();
        while !server.is_finished() {
            assert!(start.elapsed() < LIMIT, "the server hangs");
            std::thread::sleep(Duration::from_millis(1));
        }
        server.join().expect("the server does not panic").0
    }

    /// Disconnects. Returns the server for the next client.
    pub(crate) fn power_off(mut self) -> Server {
        drop(self.socket.take());
        let server = self.server.take().expect("nobody has taken it");
        let (server, done) = server.join().expect("the server does not panic");
        done.expect("a client may leave");
        server
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // A server that hangs must not hang the failing test.
            self.server = None;
        }
        let _ = self.leave();
    }
}

pub(crate) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn region_header(region: u32, offset: u64, len: u32) -> Vec<u8> {
    let mut body = offset.to_ne_bytes().to_vec();
    body.extend(words(&[region, len]));
    body
}

/// A message with id 7, which its answer repeats.
pub(crate) fn message(command: u16, flags: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = 7u16.to_ne_bytes().to_vec();
    bytes.extend(command.to_ne_bytes());
    bytes.extend(words(&[16 + body.len() as u32, flags, 0]));
    bytes.extend(body);
    bytes
}

/// An empty file.
pub(crate) fn empty_file(name: &str) -> OwnedFd {
    memfd_create(name, MFdFlags::MFD_CLOEXEC).unwrap()
}
