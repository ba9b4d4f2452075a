//! Device memory, regions over it, and regions over dma-bufs.

use std::os::fd::AsRawFd;

use nix::errno::Errno;
use uverbs_kernel_abi::mlx5::*;
use uverbs_kernel_abi::mr::*;
use uverbs_kernel_abi::objects::*;

use super::case;
use crate::case::{Case, World};
use crate::cmd::{Cmd, find, known};
use crate::rig::Rig;
use crate::want::{EBADF, EBUSY, EINVAL, ENOENT, EOPNOTSUPP, Want};

const ALLOC: &str = "hw/mlx5/dm.c:mlx5_ib_alloc_dm";
const MEMIC: &str = "hw/mlx5/dm.c:mlx5_cmd_alloc_memic";
const REG: &str = "core/uverbs_std_types_mr.c:UVERBS_METHOD_DM_MR_REG";
const FREE: &str = "core/uverbs_std_types_dm.c:uverbs_free_dm";
const MMAP: &str = "core/ib_core_uverbs.c:rdma_user_mmap_entry_get_pgoff";
const REREG: &str = "core/uverbs_cmd.c:ib_uverbs_rereg_mr";
const OPERATION: &str = "hw/mlx5/dm.c:MLX5_IB_METHOD_DM_MAP_OP_ADDR";
const DMABUF: &str = "core/uverbs_std_types_mr.c:UVERBS_METHOD_REG_DMABUF_MR";
/// rdma-core `tests/test_mlx5_dm_ops.py`, `MEMIC_ATOMIC_INCREMENT`.
const INCREMENT: u8 = 0;
/// soft-RoCE has no such memory.
const ONLY: &str = "device memory is mlx5's";

const OPEN: u32 = IB_UVERBS_ACCESS_LOCAL_WRITE
    | IB_UVERBS_ACCESS_REMOTE_WRITE
    | IB_UVERBS_ACCESS_REMOTE_READ
    | IB_UVERBS_ACCESS_ZERO_BASED;

/// DM.ALLOC of 4096 bytes.
pub(crate) fn alloc(rig: &Rig) -> Cmd {
    alloc_of(rig, 4096, 0)
}

fn alloc_of(rig: &Rig, len: u64, log_align: u32) -> Cmd {
    rig.cmd(UVERBS_OBJECT_DM, UVERBS_METHOD_DM_ALLOC)
        .handle(UVERBS_ATTR_ALLOC_DM_HANDLE, 0u32)
        .input(&rig.memory, UVERBS_ATTR_ALLOC_DM_LENGTH, &len)
        .input(&rig.memory, UVERBS_ATTR_ALLOC_DM_ALIGNMENT, &log_align)
        .output(&rig.memory, MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET, 8)
        .output(&rig.memory, MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX, 2)
}

/// 4096 bytes of it: handle, and where it is mapped.
fn new(rig: &Rig) -> Result<(u32, u64), Errno> {
    let cmd = alloc(rig);
    let attrs = rig.send(&cmd)?;
    let handle = find(&attrs, UVERBS_ATTR_ALLOC_DM_HANDLE).map_or(0, |attr| attr.data as u32);
    let index: u16 = rig.answer(&cmd, MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX);
    Ok((handle, mmap_offset(MLX5_IB_MMAP_DEVICE_MEM, index.into(), 4096)))
}

/// MR.DM_MR_REG of 64 bytes.
pub(crate) fn register(rig: &Rig) -> Cmd {
    let (dm, _) = new(rig).expect("device memory");
    register_of(rig, dm, (0, 64), OPEN)
}

fn register_of(rig: &Rig, dm: u32, (offset, len): (u64, u64), access: u32) -> Cmd {
    rig.cmd(UVERBS_OBJECT_MR, UVERBS_METHOD_DM_MR_REG)
        .handle(UVERBS_ATTR_REG_DM_MR_HANDLE, 0u32)
        .input(&rig.memory, UVERBS_ATTR_REG_DM_MR_OFFSET, &offset)
        .input(&rig.memory, UVERBS_ATTR_REG_DM_MR_LENGTH, &len)
        .handle(UVERBS_ATTR_REG_DM_MR_PD_HANDLE, rig.pd())
        .input(&rig.memory, UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, &access)
        .handle(UVERBS_ATTR_REG_DM_MR_DM_HANDLE, dm)
        .output(&rig.memory, UVERBS_ATTR_REG_DM_MR_RESP_LKEY, 4)
        .output(&rig.memory, UVERBS_ATTR_REG_DM_MR_RESP_RKEY, 4)
}

/// DM.QUERY of mlx5's own.
pub(crate) fn query(rig: &Rig) -> Cmd {
    let (dm, _) = new(rig).expect("device memory");
    rig.cmd(UVERBS_OBJECT_DM, MLX5_IB_METHOD_DM_QUERY)
        .handle(MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE, dm)
        .output(&rig.memory, MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET, 8)
        .output(&rig.memory, MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX, 2)
        .output(&rig.memory, MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH, 8)
}

/// DM.MAP_OP_ADDR of an operation.
fn map_operation(rig: &Rig, dm: u32, op: u8) -> Cmd {
    rig.cmd(UVERBS_OBJECT_DM, MLX5_IB_METHOD_DM_MAP_OP_ADDR)
        .handle(MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_HANDLE, dm)
        .input(&rig.memory, MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_OP, &op)
        .output(&rig.memory, MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_START_OFFSET, 8)
        .output(&rig.memory, MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_PAGE_INDEX, 2)
}

/// Offset for mmap of an increment's addresses.
fn addresses(rig: &Rig, dm: u32) -> Result<u64, Errno> {
    let cmd = map_operation(rig, dm, INCREMENT);
    rig.send(&cmd)?;
    let index: u16 = rig.answer(&cmd, MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_PAGE_INDEX);
    Ok(mmap_offset(MLX5_IB_MMAP_DEVICE_MEM, index.into(), 4096))
}

/// DM.FREE.
pub(crate) fn free(rig: &Rig) -> Cmd {
    rig.destroy(UVERBS_OBJECT_DM, new(rig).expect("device memory").0)
}

pub(super) fn cases() -> Vec<Case> {
    let mut all = allocations();
    all.extend(operations());
    all.extend(regions());
    all.extend(ends());
    let all = all.into_iter().map(|case| case.only(World::Mlx5, ONLY));
    all.chain(dmabufs()).collect()
}

fn allocations() -> Vec<Case> {
    let with = |name, source, want, len: u64, log_align: u32| {
        case("device memory", name, source, want, move |rig: &Rig| {
            rig.run(&alloc_of(rig, len, log_align))
        })
    };
    let kind = |kind: u32, want| {
        case("device memory", format!("type {kind}"), ALLOC, want, move |rig: &Rig| {
            rig.run(&alloc(rig).constant(MLX5_IB_ATTR_ALLOC_DM_REQ_TYPE, kind.into()))
        })
    };
    vec![
        with("good", ALLOC, Want::Ok, 4096, 0),
        with("no bytes", MEMIC, EINVAL, 0, 0),
        with("one byte", MEMIC, Want::Ok, 1, 0),
        with("a length that wraps", MEMIC, EINVAL, u64::MAX, 0),
        with("more than there is", MEMIC, Want::Err(Errno::ENOMEM), 1 << 20, 0),
        with("aligned as far as it goes", MEMIC, Want::Ok, 64, 12),
        with("aligned further", MEMIC, EINVAL, 64, 13),
        with("aligned by no number", MEMIC, EINVAL, 64, u32::MAX),
        kind(MLX5_IB_UAPI_DM_TYPE_MEMIC, Want::Ok),
        kind(4, EOPNOTSUPP),
        case("device memory", "its mapping", MMAP, Want::Is("4096"), |rig| {
            let (_, offset) = new(rig)?;
            rig.door().mmap(4096, offset).map_err(known).map(|map| map.len().to_string())
        }),
        case("device memory", "a mapping of two pages", MMAP, EINVAL, |rig| {
            let (_, offset) = new(rig)?;
            rig.door().mmap(8192, offset).map_err(known).map(|map| map.len().to_string())
        }),
        case("device memory", "a mapping when it is freed", MMAP, EINVAL, |rig| {
            let (dm, offset) = new(rig)?;
            rig.send(&rig.destroy(UVERBS_OBJECT_DM, dm))?;
            rig.door().mmap(4096, offset).map_err(known).map(|map| map.len().to_string())
        }),
        case("device memory", "what is asked of it", ALLOC, Want::Is("length 4096"), |rig| {
            let cmd = query(rig);
            rig.send(&cmd)?;
            let len: u64 = rig.answer(&cmd, MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH);
            Ok(format!("length {len}"))
        }),
    ]
}

/// Operations on device memory. softhca refuses them in process and over vfio-user, where it can't
/// see a load from a mapped page.
fn operations() -> Vec<Case> {
    let there = |want| Want::InProcess { here: &EOPNOTSUPP, there: want };
    vec![
        case("device memory", "an operation that none has", OPERATION, EOPNOTSUPP, |rig| {
            let (dm, _) = new(rig)?;
            rig.run(&map_operation(rig, dm, 31))
        }),
        case("device memory", "an operation of no bit", OPERATION, EOPNOTSUPP, |rig| {
            let (dm, _) = new(rig)?;
            rig.run(&map_operation(rig, dm, 200))
        }),
        case("device memory", "an operation on a domain", OPERATION, EINVAL, |rig| {
            rig.run(&map_operation(rig, rig.pd(), 0))
        }),
        case("device memory", "an operation", OPERATION, there(&Want::Ok), |rig| {
            let (dm, _) = new(rig)?;
            rig.run(&map_operation(rig, dm, INCREMENT))
        }),
        case("device memory", "an operation twice", OPERATION, there(&Want::Is("same")), |rig| {
            let (dm, _) = new(rig)?;
            let [first, again] = [0; 2].map(|_| addresses(rig, dm));
            Ok(if first? == again? { "same" } else { "another" }.to_owned())
        }),
        case("device memory", "an operation's mapping", MMAP, there(&Want::Is("4096")), |rig| {
            let offset = addresses(rig, new(rig)?.0)?;
            rig.door().mmap(4096, offset).map_err(known).map(|map| map.len().to_string())
        }),
        case("device memory", "two pages of an operation", MMAP, there(&EINVAL), |rig| {
            let offset = addresses(rig, new(rig)?.0)?;
            rig.door().mmap(8192, offset).map_err(known).map(|map| map.len().to_string())
        }),
        case("device memory", "an operation on freed memory", MMAP, there(&EINVAL), |rig| {
            let (dm, _) = new(rig)?;
            let offset = addresses(rig, dm)?;
            rig.send(&rig.destroy(UVERBS_OBJECT_DM, dm))?;
            rig.door().mmap(4096, offset).map_err(known).map(|map| map.len().to_string())
        }),
        case("device memory", "freed with a mapped operation", FREE, there(&Want::Ok), |rig| {
            let (dm, _) = new(rig)?;
            let map = rig.door().mmap(4096, addresses(rig, dm)?).map_err(known)?;
            let freed = rig.run(&rig.destroy(UVERBS_OBJECT_DM, dm));
            drop(map);
            freed
        }),
    ]
}

fn regions() -> Vec<Case> {
    let range = |name, want, offset: u64, len: u64| {
        case("device memory", name, REG, want, move |rig: &Rig| {
            let (dm, _) = new(rig)?;
            rig.run(&register_of(rig, dm, (offset, len), OPEN))
        })
    };
    let access = |flags: u32, want| {
        let name = format!("a region with access flags {flags:#x}");
        case("device memory", name, REG, want, move |rig: &Rig| {
            let (dm, _) = new(rig)?;
            rig.run(&register_of(rig, dm, (0, 64), flags))
        })
    };
    let zero_based = IB_UVERBS_ACCESS_ZERO_BASED;
    vec![
        range("a region over all", Want::Ok, 0, 4096),
        range("a region over the end", Want::Ok, 4032, 64),
        range("a region past the end", EINVAL, 4096, 64),
        range("a region over a byte too much", EINVAL, 1, 4096),
        range("a region that wraps", EINVAL, u64::MAX, 64),
        access(zero_based, Want::Ok),
        access(OPEN & !zero_based, EINVAL),
        access(zero_based | IB_UVERBS_ACCESS_REMOTE_WRITE, EINVAL),
        access(OPEN | IB_UVERBS_ACCESS_MW_BIND, EINVAL),
        access(OPEN | 1 << 15, EINVAL),
    ]
}

fn ends() -> Vec<Case> {
    vec![
        case("device memory", "freed with a region over it", FREE, EBUSY, |rig| {
            let (dm, _) = new(rig)?;
            rig.send(&register_of(rig, dm, (0, 64), OPEN))?;
            rig.run(&rig.destroy(UVERBS_OBJECT_DM, dm))
        }),
        case("device memory", "freed behind its region", FREE, Want::Ok, |rig| {
            let (dm, _) = new(rig)?;
            let attrs = rig.send(&register_of(rig, dm, (0, 64), OPEN))?;
            let mr = find(&attrs, UVERBS_ATTR_REG_DM_MR_HANDLE).map_or(0, |attr| attr.data);
            rig.send(&rig.destroy(UVERBS_OBJECT_MR, mr))?;
            rig.run(&rig.destroy(UVERBS_OBJECT_DM, dm))
        }),
        case("device memory", "freed twice", FREE, ENOENT, |rig| {
            let (dm, _) = new(rig)?;
            rig.send(&rig.destroy(UVERBS_OBJECT_DM, dm))?;
            rig.run(&rig.destroy(UVERBS_OBJECT_DM, dm))
        }),
        case("device memory", "its region changed", REREG, EINVAL, |rig| {
            let (dm, _) = new(rig)?;
            let attrs = rig.send(&register_of(rig, dm, (0, 64), OPEN))?;
            let mr = find(&attrs, UVERBS_ATTR_REG_DM_MR_HANDLE).map_or(0, |attr| attr.data);
            let request = ib_uverbs_rereg_mr {
                mr_handle: mr as u32,
                flags: IB_MR_REREG_ACCESS,
                access_flags: IB_UVERBS_ACCESS_LOCAL_WRITE,
                ..Default::default()
            };
            rig.run(&rig.rereg_mr(&request))
        }),
    ]
}

/// Bad ones alone: a machine needn't have a dma-buf.
fn dmabufs() -> Vec<Case> {
    let with = |name, want, change: fn(&mut Request)| {
        case("dma-bufs", name, DMABUF, want, move |rig: &Rig| {
            let (pipe, _writer) = nix::unistd::pipe()?;
            let mut request = Request { offset: 0, len: 4096, iova: 0, fd: 0, access: 1 };
            request.fd = pipe.as_raw_fd();
            change(&mut request);
            rig.run(&dmabuf(rig, &request))
        })
        .only(World::Mlx5, "the driver takes none")
    };
    vec![
        with("a pipe", EINVAL, |_| ()),
        with("no file", EBADF, |request| request.fd = -1),
        with("another place in the page", EINVAL, |request| request.iova = 1),
        with("another page", EINVAL, |request| request.iova = 4096),
        with("no file, and another place in the page", EINVAL, |request| {
            (request.fd, request.iova) = (-1, 1);
        }),
        with("no file, and remote write alone", EINVAL, |request| {
            (request.fd, request.access) = (-1, IB_UVERBS_ACCESS_REMOTE_WRITE);
        }),
        with("no file, and on demand", EINVAL, |request| {
            (request.fd, request.access) = (-1, IB_UVERBS_ACCESS_ON_DEMAND);
        }),
        with("no file, and a range that wraps", EINVAL, |request| {
            (request.offset, request.fd) = (u64::MAX - 4095, -1);
            request.len = 8192;
        }),
    ]
}

struct Request {
    offset: u64,
    len: u64,
    iova: u64,
    fd: i32,
    access: u32,
}

fn dmabuf(rig: &Rig, request: &Request) -> Cmd {
    rig.cmd(UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR)
        .handle(UVERBS_ATTR_REG_DMABUF_MR_HANDLE, 0u32)
        .handle(UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, rig.pd())
        .input(&rig.memory, UVERBS_ATTR_REG_DMABUF_MR_OFFSET, &request.offset)
        .input(&rig.memory, UVERBS_ATTR_REG_DMABUF_MR_LENGTH, &request.len)
        .input(&rig.memory, UVERBS_ATTR_REG_DMABUF_MR_IOVA, &request.iova)
        .input(&rig.memory, UVERBS_ATTR_REG_DMABUF_MR_FD, &request.fd)
        .input(&rig.memory, UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, &request.access)
        .output(&rig.memory, UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, 4)
        .output(&rig.memory, UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, 4)
}
