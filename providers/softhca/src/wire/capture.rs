//! Captures a wire's packets in a pcapng file for Wireshark and tshark (draft-ietf-opsawg-pcapng).
//!
//! Each packet is written as RoCEv2: Ethernet, IP, UDP, and an ICRC over them. If the wire has no
//! such headers, they are made from the addresses: a GID that is not a mapped IPv4 address is used
//! as an IPv6 address; MAC addresses and UDP source port are made up. Plain Ethernet frames are
//! written unchanged. Each device is an interface. Each packet is marked as sent or received, so a
//! packet between two devices of a file is there twice.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use uverbs_core::environment::Variable;
use uverbs_core::private_file;

use super::udp::{PORT, reseal};
use super::{Address, Frame, Wire, WireFull};
use uverbs_core::memory::per_process::PerProcess;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const LINKTYPE_ETHERNET: u32 = 1;
/// Options: end; name and time resolution of an interface; flags of a packet.
const END: u16 = 0;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;
/// Time resolution: nanoseconds.
const NANOSECONDS: u8 = 9;
/// EtherType of a VLAN tag.
const TAGGED: u16 = 0x8100;
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// Capture file ([`SoftHcaBuilder::capture`](crate::SoftHcaBuilder::capture)). Clones write to the
/// same file.
///
/// ```
/// use uverbs_softhca::{SoftHca, wire::Capture};
///
/// let path = std::env::temp_dir().join(format!("softhca-{}.pcapng", std::process::id()));
/// let device = SoftHca::builder().capture(&Capture::create(&path)?).build()?;
/// # drop(device);
/// # std::fs::remove_file(path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Capture {
    output: Arc<Mutex<Output>>,
}

#[derive(Debug)]
struct Output {
    /// `None` after a failed write: a file that ends within a block is unreadable.
    file: Option<BufWriter<File>>,
    interfaces: u32,
}

impl Capture {
    /// Creates a file that only its user may read.
    ///
    /// # Errors
    ///
    /// The system's error; `AlreadyExists` if there is a file of that name.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut file = BufWriter::new(private_file::create(path)?);
        // Version 1.0, a section of any length.
        let words = [BYTE_ORDER, 1, u32::MAX, u32::MAX];
        file.write_all(&block(SECTION, &words, &[], &[]))?;
        file.flush()?;
        Ok(Self { output: Arc::new(Mutex::new(Output { file: Some(file), interfaces: 0 })) })
    }

    /// Creates the file that the environment names. If another process has created it, the process
    /// number is appended to the name.
    pub(crate) fn of_environment() -> io::Result<Option<Self>> {
        static CAPTURE: PerProcess<Option<Capture>> = PerProcess::new();
        let Some(path) = Variable::Capture.path() else { return Ok(None) };
        let mut capture = CAPTURE.lock();
        if capture.is_none() {
            let mut own = path.clone().into_os_string();
            own.push(format!(".{}", std::process::id()));
            let made = match Self::create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    Self::create(Path::new(&own))
                }
                made => made,
            };
            let words = |error: io::Error| {
                let name = Variable::Capture.name();
                io::Error::new(error.kind(), format!("{name}={}: {error}", path.display()))
            };
            *capture = Some(made.map_err(words)?);
        }
        Ok(capture.clone())
    }

    /// Puts a capture in front of a device's wire.
    pub(crate) fn tap(&self, name: &str, inner: Box<dyn Wire>) -> Box<dyn Wire> {
        let mut output = self.lock();
        let interface = output.interfaces;
        output.interfaces += 1;
        let options = [(IF_NAME, name.as_bytes()), (IF_TSRESOL, &[NANOSECONDS])];
        output.write(&block(INTERFACE, &[LINKTYPE_ETHERNET, 0], &[], &options));
        output.flush();
        drop(output);
        Box::new(Captured { inner, capture: self.clone(), interface })
    }

    fn lock(&self) -> MutexGuard<'_, Output> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Output {
    fn write(&mut self, bytes: &[u8]) {
        if self.file.as_mut().is_some_and(|file| file.write_all(bytes).is_err()) {
            self.file = None;
        }
    }

    fn flush(&mut self) {
        if self.file.as_mut().is_some_and(|file| file.flush().is_err()) {
            self.file = None;
        }
    }
}

/// Formats a block: type and length, words, bytes, options, and the length again.
fn block(kind: u32, words: &[u32], bytes: &[u8], options: &[(u16, &[u8])]) -> Vec<u8> {
    let mut block = [kind, 0].map(u32::to_ne_bytes).concat();
    block.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    let padded = |block: &mut Vec<u8>, bytes: &[u8]| {
        block.extend_from_slice(bytes);
        block.resize(block.len().next_multiple_of(4), 0);
    };
    padded(&mut block, bytes);
    for (option, value) in options {
        block.extend([*option, value.len() as u16].map(u16::to_ne_bytes).concat());
        padded(&mut block, value);
    }
    if !options.is_empty() {
        block.extend([END, 0].map(u16::to_ne_bytes).concat());
    }
    let len = (block.len() as u32 + 4).to_ne_bytes();
    block[4..8].copy_from_slice(&len);
    block.extend(len);
    block
}

/// Formats a packet as on Ethernet.
pub(crate) fn ethernet(frame: &Frame) -> Vec<u8> {
    let [src, dst] = [&frame.src, &frame.dst].map(ip);
    // Locally administered, or multicast.
    let mac = |ip: IpAddr, first: u8| match ip {
        IpAddr::V4(ip) => [&[first, 0][..], &ip.octets()].concat(),
        IpAddr::V6(ip) => [&[first, 0][..], &ip.octets()[12..]].concat(),
    };
    let mut bytes = [mac(dst, 2 + u8::from(frame.dst.is_group())), mac(src, 2)].concat();
    let udp = frame.bytes.len() as u16 + 8;
    let route = &frame.route;
    if route.tag != 0 {
        bytes.extend([TAGGED, route.tag].map(u16::to_be_bytes).concat());
    }
    match (src, dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            bytes.extend([8, 0]);
            let mut header = [0; 20];
            header[..2].copy_from_slice(&[0x45, route.traffic_class]);
            header[2..4].copy_from_slice(&(udp + 20).to_be_bytes());
            header[4..6].copy_from_slice(&route.id.to_be_bytes());
            // Don't fragment; hop limit; UDP.
            header[6] = 0x40;
            header[8..10].copy_from_slice(&[route.hop_limit, 17]);
            header[12..16].copy_from_slice(&src.octets());
            header[16..].copy_from_slice(&dst.octets());
            let sum = checksum(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            bytes.extend(header);
        }
        (src, dst) => {
            bytes.extend([0x86, 0xdd]);
            let first = 6 << 28 | u32::from(route.traffic_class) << 20 | route.flow_label;
            bytes.extend(first.to_be_bytes());
            bytes.extend(udp.to_be_bytes());
            bytes.extend([17, route.hop_limit]);
            bytes.extend([src, dst].map(six).concat());
        }
    }
    bytes.extend([PORT, PORT, udp, 0].map(u16::to_be_bytes).concat());
    let at = bytes.len();
    bytes.extend_from_slice(&frame.bytes);
    reseal((src, dst), route.id, &mut bytes[at..]);
    bytes
}

/// IP address of an end; for a LID a link-local address.
fn ip(address: &Address) -> IpAddr {
    match (address.gid, address.lid) {
        ([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], lid) => {
            Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, lid).into()
        }
        (gid, _) => Ipv6Addr::from(gid).to_canonical(),
    }
}

fn six(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

/// Checksum of an IPv4 header (RFC 791).
fn checksum(header: &[u8; 20]) -> u16 {
    let words = header.chunks_exact(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1]));
    let sum = words.sum::<u32>();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// A wire whose packets are captured.
#[derive(Debug)]
struct Captured {
    inner: Box<dyn Wire>,
    capture: Capture,
    interface: u32,
}

impl Captured {
    fn note(&self, direction: u32, bytes: &[u8]) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let len = bytes.len() as u32;
        let words = [self.interface, (now >> 32) as u32, now as u32, len, len];
        let flags = direction.to_ne_bytes();
        self.capture.lock().write(&block(PACKET, &words, bytes, &[(EPB_FLAGS, &flags)]));
    }
}

impl Wire for Captured {
    fn transmit(&mut self, frame: Frame) -> Result<(), WireFull> {
        let bytes = ethernet(&frame);
        self.inner.transmit(frame)?;
        self.note(OUTBOUND, &bytes);
        Ok(())
    }
    fn receive(&mut self) -> Option<Frame> {
        let frame = self.inner.receive()?;
        self.note(INBOUND, &ethernet(&frame));
        Some(frame)
    }
    fn is_paused(&self) -> bool {
        self.inner.is_paused()
    }
    fn spare(&mut self) -> Vec<u8> {
        self.inner.spare()
    }
    fn recycle(&mut self, frame: Frame) {
        self.inner.recycle(frame);
    }
    fn flood(&mut self, frame: &[u8]) {
        self.note(OUTBOUND, frame);
        self.inner.flood(frame);
    }
    fn hear(&mut self) -> Option<Vec<u8>> {
        let frame = self.inner.hear()?;
        self.note(INBOUND, &frame);
        Some(frame)
    }
    fn next_event(&self) -> Option<Duration> {
        self.inner.next_event()
    }
    fn advance(&mut self, now: Duration) {
        self.inner.advance(now);
    }
    /// Flushes the file at the end of a step, so that it is complete even if the process dies.
    fn flush(&mut self) {
        self.inner.flush();
        self.capture.lock().flush();
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }
    fn arm(&mut self) {
        self.inner.arm();
    }
    fn set_addresses(&mut self, addresses: &[Address]) {
        self.inner.set_addresses(addresses);
    }
    fn set_waker(&mut self, waker: Waker) -> bool {
        self.inner.set_waker(waker)
    }
    fn is_patient(&self, from: Address) -> bool {
        self.inner.is_patient(from)
    }
    fn mark(&self, to: Address) -> Option<u64> {
        self.inner.mark(to)
    }
    fn is_past(&self, to: Address, mark: u64) -> bool {
        self.inner.is_past(to, mark)
    }
    fn next_left(&mut self) -> Option<Address> {
        self.inner.next_left()
    }
    fn needs_icrc(&self) -> bool {
        self.inner.needs_icrc()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Fabric, Opcode, PacketBuilder, Psn, Route};

    fn frame(src: [u8; 16], dst: [u8; 16]) -> Frame {
        let mut bytes = Vec::new();
        let builder = PacketBuilder::new(Opcode::RC_SEND_ONLY, 0x123, Psn::new(7)).icrc(false);
        builder.emit(b"payload!", &mut bytes).unwrap();
        let [src, dst] = [src, dst].map(|gid| Address { gid, lid: 0 });
        Frame { src, dst, route: Route::new(0x6a, 5, 33), bytes, loan: None }
    }

    fn mapped(last: u8) -> [u8; 16] {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last]
    }

    #[test]
    fn headers_of_ipv4() {
        let bytes = ethernet(&frame(mapped(1), mapped(2)));
        assert_eq!(bytes[..14], [2, 0, 10, 0, 0, 2, 2, 0, 10, 0, 0, 1, 8, 0]);
        let ip: [u8; 20] = bytes[14..34].try_into().unwrap();
        assert_eq!(checksum(&ip), 0, "the sum over its own sum");
        assert_eq!((ip[1], ip[8], usize::from(ip[3])), (0x6a, 33, bytes.len() - 14));
        assert_eq!(bytes[34..42], [0x12, 0xb7, 0x12, 0xb7, 0, 32, 0, 0]);
        assert_ne!(bytes[bytes.len() - 4..], [0; 4], "an ICRC");
    }

    #[test]
    fn headers_of_ipv6() {
        let bytes = ethernet(&frame([0xfe; 16], [0xfd; 16]));
        assert_eq!(bytes[12..22], [0x86, 0xdd, 0x66, 0xa0, 0, 5, 0, 32, 17, 33]);
        assert_eq!((&bytes[22..38], &bytes[38..54]), (&[0xfe; 16][..], &[0xfd; 16][..]));
    }

    #[test]
    fn a_tag_is_before_the_ethertype() {
        let mut tagged = frame(mapped(1), mapped(2));
        let plain = ethernet(&tagged);
        tagged.route.tag = 3 << 13 | 5;
        let bytes = ethernet(&tagged);
        assert_eq!(bytes[..12], plain[..12]);
        assert_eq!(bytes[12..16], [0x81, 0, 0x60, 5]);
        assert_eq!(bytes[16..], plain[12..]);
    }

    #[test]
    fn a_file_is_a_chain_of_blocks() {
        let folder = std::env::temp_dir().join(format!("uverbs-capture-{}", std::process::id()));
        let capture = Capture::create(&folder).unwrap();
        assert!(Capture::create(&folder).is_err(), "what is there stays");
        let mode = std::os::unix::fs::MetadataExt::mode(&folder.metadata().unwrap());
        assert_eq!(mode & 0o777, 0o600);
        let fabric = Fabric::new();
        let [one, other] = [mapped(1), mapped(2)].map(|gid| Address { gid, lid: 0 });
        let mut ours = capture.tap("ours", Box::new(fabric.attach(&[one])));
        let mut theirs = capture.tap("theirs", Box::new(fabric.attach(&[other])));
        ours.transmit(frame(one.gid, other.gid)).unwrap();
        assert!(theirs.receive().is_some() && theirs.receive().is_none());
        theirs.flush();
        let bytes = std::fs::read(&folder).unwrap();
        std::fs::remove_file(&folder).unwrap();
        let mut kinds = Vec::new();
        let mut rest = &bytes[..];
        let word =
            |bytes: &[u8], at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        while !rest.is_empty() {
            let len = word(rest, 4) as usize;
            assert_eq!(word(rest, len - 4) as usize, len);
            kinds.push((word(rest, 0), word(rest, 8)));
            rest = &rest[len..];
        }
        let interface = (INTERFACE, LINKTYPE_ETHERNET);
        let packets = [(PACKET, 0), (PACKET, 1)];
        assert_eq!(kinds, [&[(SECTION, BYTE_ORDER), interface, interface][..], &packets].concat());
    }
}
