//! Finds calls to the kernel's RDMA devices: calls on descriptors of `/dev/infiniband/*` and of
//! RDMA netlink. Names are as in the preloaded library's log (`common/log.rs`).

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use uverbs_kernel_abi::ioctl::{RDMA_VERBS_IOCTL, ib_uverbs_ioctl_hdr};
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_WRITE_CMD, UVERBS_METHOD_INVOKE_WRITE, UVERBS_OBJECT_DEVICE,
};

const FOLDER: &[u8] = b"/dev/infiniband/";
/// `NETLINK_RDMA` (`linux/netlink.h`).
const NETLINK_RDMA: u64 = 20;
/// Maximum bytes of a command (`ib_uverbs_ioctl` accepts a page).
const MOST_BYTES: usize = 4096;

/// Calls that ask a descriptor for something; `fcntl` and `fstat` do not.
const TAKE_A_DESCRIPTOR: [libc::c_long; 12] = [
    libc::SYS_bind,
    libc::SYS_close,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_ioctl,
    libc::SYS_read,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_write,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Device,
    Netlink,
}

/// Descriptors of a process.
#[derive(Debug, Default)]
pub struct Files {
    open: BTreeMap<i64, Kind>,
    /// Kind of the descriptor that the current call opens.
    opening: Option<Kind>,
}

impl Files {
    /// Text of a call on a device; `None` for other calls. `name` is the system call's.
    pub fn call(
        &mut self,
        number: libc::c_long,
        args: [u64; 6],
        name: &str,
        memory: &File,
    ) -> Option<String> {
        // A descriptor is the low 32 bits of its register.
        let descriptor = |arg: u64| i64::from(arg as i32);
        self.opening = None;
        let on = match number {
            libc::SYS_openat if is_device(memory, args[1]) => {
                self.opening = Some(Kind::Device);
                return Some("open".to_owned());
            }
            libc::SYS_socket if args[0] == libc::AF_NETLINK as u64 && args[2] == NETLINK_RDMA => {
                self.opening = Some(Kind::Netlink);
                return Some("socket of RDMA netlink".to_owned());
            }
            libc::SYS_mmap => descriptor(args[4]),
            // For calls without arguments the registers have arbitrary values.
            _ if TAKE_A_DESCRIPTOR.contains(&number) => descriptor(args[0]),
            _ => return None,
        };
        let kind = match number {
            libc::SYS_close => self.open.remove(&on)?,
            _ => *self.open.get(&on)?,
        };
        Some(match (kind, number) {
            (Kind::Netlink, _) => format!("{name} of RDMA netlink"),
            (Kind::Device, libc::SYS_ioctl) if args[1] as u32 == RDMA_VERBS_IOCTL => {
                format!("ioctl {}", command(memory, args[2]))
            }
            (Kind::Device, _) => name.to_owned(),
        })
    }

    /// Result of the last call.
    pub fn result(&mut self, value: i64) {
        if let Some(kind) = self.opening.take()
            && value >= 0
        {
            self.open.insert(value, kind);
        }
    }
}

fn is_device(memory: &File, path: u64) -> bool {
    let mut bytes = [0; FOLDER.len() + 1];
    // A path shorter than this may end at the last readable byte.
    memory.read_at(&mut bytes, path).is_ok_and(|count| count == bytes.len())
        && bytes.starts_with(FOLDER)
        && bytes[FOLDER.len()] != 0
}

/// Object and method in hex, with a write command's number in parentheses.
fn command(memory: &File, address: u64) -> String {
    let mut bytes = vec![0; size_of::<ib_uverbs_ioctl_hdr>()];
    memory.read_exact_at(&mut bytes, address).unwrap();
    let length = usize::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
    assert!((bytes.len()..=MOST_BYTES).contains(&length), "a command of {length} bytes");
    bytes.resize(length, 0);
    memory.read_exact_at(&mut bytes, address).unwrap();
    let words: Vec<u64> = bytes.as_chunks().0.iter().copied().map(u64::from_ne_bytes).collect();
    let (header, mut attrs) = uverbs_core::doors::words::parse(&words).expect("a command");
    let name = format!("{:x}.{:x}", header.object_id, header.method_id);
    if (header.object_id, header.method_id) == (UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE)
        && let Some(attr) = attrs.find(|attr| attr.attr_id == UVERBS_ATTR_WRITE_CMD)
    {
        return format!("{name}({:#x})", attr.data);
    }
    name
}
