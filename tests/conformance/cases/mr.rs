//! Memory regions.

use uverbs_kernel_abi::mr::*;
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_abi::wc::ib_uverbs_sge;
use uverbs_kernel_abi::write::IB_USER_VERBS_CMD_REREG_MR;

use super::case;
use crate::case::{Case, World};
use crate::rig::Rig;
use crate::want::{Driver, EFAULT, EINVAL, ENOENT, EOPNOTSUPP, Want};

const REG: &str = "core/uverbs_cmd.c:ib_uverbs_reg_mr";
const ACCESS: &str = "include/rdma/ib_verbs.h:ib_check_mr_access";
const UMEM: &str = "core/umem.c:ib_umem_get";
const REREG: &str = "core/uverbs_cmd.c:ib_uverbs_rereg_mr";

pub(super) fn cases() -> Vec<Case> {
    let mut all = registrations();
    all.extend(reregistrations());
    all.extend(advices());
    all.push(case(
        "regions",
        "query",
        "core/uverbs_std_types_mr.c:UVERBS_METHOD_QUERY_MR",
        Want::Is("length 8192, address true, keys true"),
        |rig| {
            let request = ib_uverbs_reg_mr { hca_va: 0x7000_0000_0000, ..rig.reg_mr_request() };
            let made = rig.new_mr(&request)?;
            let cmd = rig
                .cmd(UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR)
                .handle(UVERBS_ATTR_QUERY_MR_HANDLE, made.mr_handle)
                .output(&rig.memory, UVERBS_ATTR_QUERY_MR_RESP_LKEY, 4)
                .output(&rig.memory, UVERBS_ATTR_QUERY_MR_RESP_RKEY, 4)
                .output(&rig.memory, UVERBS_ATTR_QUERY_MR_RESP_LENGTH, 8)
                .output(&rig.memory, UVERBS_ATTR_QUERY_MR_RESP_IOVA, 8);
            rig.send(&cmd)?;
            let length: u64 = rig.answer(&cmd, UVERBS_ATTR_QUERY_MR_RESP_LENGTH);
            let iova: u64 = rig.answer(&cmd, UVERBS_ATTR_QUERY_MR_RESP_IOVA);
            let keys: [u32; 2] = [UVERBS_ATTR_QUERY_MR_RESP_LKEY, UVERBS_ATTR_QUERY_MR_RESP_RKEY]
                .map(|id| rig.answer(&cmd, id));
            Ok(format!(
                "length {length}, address {}, keys {}",
                iova == request.hca_va,
                keys == [made.lkey, made.rkey]
            ))
        },
    ));
    all
}

fn registrations() -> Vec<Case> {
    let with = |name, source, want, change: fn(&Rig, &mut ib_uverbs_reg_mr)| {
        case("regions", name, source, want, move |rig: &Rig| {
            let mut request = rig.reg_mr_request();
            change(rig, &mut request);
            rig.run(&rig.reg_mr(&request))
        })
    };
    let access = |flags: u32, want| {
        case("regions", format!("access flags {flags:#x}"), ACCESS, want, move |rig: &Rig| {
            let request = ib_uverbs_reg_mr { access_flags: flags, ..rig.reg_mr_request() };
            rig.run(&rig.reg_mr(&request))
        })
    };
    vec![
        with("good", REG, Want::Ok, |_, _| ()),
        with("another page for the device", REG, Want::Ok, |_, mr| mr.hca_va += 4096),
        with("another place in the page", REG, EINVAL, |_, mr| mr.hca_va += 1),
        with("not at a page", REG, Want::Ok, |_, mr| {
            mr.start += 24;
            mr.hca_va += 24;
            mr.length = 100;
        }),
        with("one byte", REG, Want::Ok, |_, mr| mr.length = 1),
        with("no bytes", UMEM, EINVAL, |_, mr| mr.length = 0),
        with("all bytes", UMEM, EINVAL, |_, mr| mr.length = u64::MAX),
        with("past the end of the address space", UMEM, EINVAL, |_, mr| {
            (mr.start, mr.hca_va, mr.length) = (u64::MAX - 4095, u64::MAX - 4095, 8192);
        }),
        with("to the end of the address space", UMEM, EINVAL, |_, mr| {
            (mr.start, mr.hca_va, mr.length) = (u64::MAX - 8191, u64::MAX - 8191, 8191);
        }),
        with("a terabyte", UMEM, EFAULT, |_, mr| mr.length = 1 << 40),
        with("more pages than a number holds", UMEM, EINVAL, |_, mr| mr.length = 1 << 45),
        with("unmapped", UMEM, EFAULT, |rig, mr| {
            (mr.start, mr.hca_va) = (rig.memory.hole(), rig.memory.hole());
        }),
        with("kernel address", UMEM, EFAULT, |_, mr| {
            (mr.start, mr.hca_va) = (0xffff_8000_0000_0000, 0xffff_8000_0000_0000);
        }),
        with("ends unmapped", UMEM, EFAULT, |rig, mr| {
            let (base, len) = rig.memory.range();
            (mr.start, mr.hca_va) = (base + len - 4096, base + len - 4096);
            mr.length = 4 * 4096;
        }),
        with("read-only memory, to read", UMEM, Want::Ok, |rig, mr| {
            (mr.start, mr.hca_va) = (rig.memory.read_only(), rig.memory.read_only());
            (mr.length, mr.access_flags) = (4096, IB_UVERBS_ACCESS_REMOTE_READ);
        }),
        with("read-only memory, to write", UMEM, EFAULT, |rig, mr| {
            (mr.start, mr.hca_va) = (rig.memory.read_only(), rig.memory.read_only());
            (mr.length, mr.access_flags) = (4096, IB_UVERBS_ACCESS_LOCAL_WRITE);
        }),
        with("read-only memory, to bind windows", UMEM, EFAULT, |rig, mr| {
            (mr.start, mr.hca_va) = (rig.memory.read_only(), rig.memory.read_only());
            (mr.length, mr.access_flags) = (4096, IB_UVERBS_ACCESS_MW_BIND);
        }),
        access(0, Want::Ok),
        access(IB_UVERBS_ACCESS_REMOTE_READ, Want::Ok),
        access(IB_UVERBS_ACCESS_REMOTE_WRITE, EINVAL),
        access(IB_UVERBS_ACCESS_REMOTE_ATOMIC, EINVAL),
        access(IB_UVERBS_ACCESS_MW_BIND | 1, Want::Ok),
        // rxe refuses what it doesn't know since it has RXE_ACCESS_SUPPORTED_MR: at 6.12, not at
        // 6.1.
        access(IB_UVERBS_ACCESS_ZERO_BASED | 1, driver(&Want::Ok, &RXE_REFUSES)),
        access(IB_UVERBS_ACCESS_HUGETLB | 1, driver(&Want::Ok, &RXE_REFUSES)),
        // rxe has on-demand paging at 7.2: before, EINVAL at 6.1, EOPNOTSUPP at 6.12.
        access(IB_UVERBS_ACCESS_ON_DEMAND | 1, driver(&Want::Ok, &RXE_PAGING)),
        // The flags of FLUSH are of Linux 6.2; rxe has the global one, and the other for persistent
        // memory.
        access(1 << 8 | 1, driver(&NO_FLUSH, &Want::Since((6, 2), &EINVAL, &Want::Ok))),
        access(1 << 9 | 1, driver(&NO_FLUSH, &EINVAL)),
        access(1 << 10 | 1, EINVAL),
        access(1 << 19 | 1, EINVAL),
        access(IB_UVERBS_ACCESS_RELAXED_ORDERING | 1, Want::Ok),
        access(1 << 29 | 1, Want::Ok),
        access(1 << 30 | 1, EINVAL),
        access(1 << 31 | 1, EINVAL),
        with("a PD that isn't there", REG, NO_OBJECT, |_, mr| mr.pd_handle = 999),
        with("PD 0xffffffff", REG, NO_OBJECT, |_, mr| mr.pd_handle = u32::MAX),
        with("a PD that is none", REG, EINVAL, |rig, mr| mr.pd_handle = rig.cq()),
        with("a destroyed PD", REG, NO_OBJECT, |rig, mr| {
            let pd = [rig.new_pd(), rig.new_pd()].map(|pd| pd.expect("a PD"));
            for pd in pd {
                rig.send(&rig.destroy(UVERBS_OBJECT_PD, pd)).expect("to destroy a PD");
            }
            mr.pd_handle = pd[1];
        }),
        with("no PD, and flags that no device has", REG, EINVAL, |_, mr| {
            (mr.pd_handle, mr.access_flags) = (999, 1 << 10);
        }),
        with("no PD, and flags that mlx5 lacks", REG, driver(&NO_FLUSH, &NO_OR_OLD), |_, mr| {
            (mr.pd_handle, mr.access_flags) = (999, 1 << 8 | 1);
        }),
        with("no PD, and another place in the page", REG, EINVAL, |_, mr| {
            (mr.pd_handle, mr.hca_va) = (999, mr.hca_va + 1);
        }),
        with("no PD, and unmapped", REG, NO_OBJECT, |rig, mr| {
            (mr.start, mr.hca_va, mr.pd_handle) = (rig.memory.hole(), rig.memory.hole(), 999);
        }),
    ]
}

/// `uobj_get_obj_read` told nothing but that it failed, until commit 81f8f7454ad9 ("RDMA/uverbs:
/// Propagate errors from rdma_lookup_get_uobject()") of Linux 6.15, which the stable series took
/// over in mid-2025.
pub(super) const NO_OBJECT: Want = Want::Since((6, 15), &Want::Either(&EINVAL, &ENOENT), &ENOENT);

// Which errno a device without a feature gives, by version; measured at 6.1, 6.12 and 7.2.
const NO_PAGING: Want = Want::Since((6, 2), &EINVAL, &EOPNOTSUPP);
const RXE_PAGING: Want = Want::Since((6, 15), &NO_PAGING, &Want::Ok);
const NO_FLUSH: Want = Want::Since((6, 2), &EINVAL, &EOPNOTSUPP);
const RXE_REFUSES: Want = Want::Since((6, 3), &Want::Ok, &EOPNOTSUPP);
const NO_OR_OLD: Want = Want::Since((6, 2), &EINVAL, &NO_OBJECT);

const fn driver(mlx5: &'static Want, rxe: &'static Want) -> Want {
    Want::Driver { mlx5, rxe }
}

const ADVISE: &str =
    "core/uverbs_std_types_mr.c:UVERBS_METHOD_ADVISE_MR; hw/mlx5/odp.c:mlx5_ib_advise_mr";

fn advices() -> Vec<Case> {
    let with = |name, want, change: fn(&Rig, &mut ib_uverbs_sge) -> (u64, u32)| {
        case("advice", name, ADVISE, want, move |rig: &Rig| {
            let mut request = rig.reg_mr_request();
            request.access_flags |= IB_UVERBS_ACCESS_ON_DEMAND;
            let made = rig.new_mr(&request)?;
            let mut sge = ib_uverbs_sge { addr: request.hca_va, length: 4096, lkey: made.lkey };
            let (advice, flags) = change(rig, &mut sge);
            let cmd = rig
                .cmd(UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR)
                .handle(UVERBS_ATTR_ADVISE_MR_PD_HANDLE, rig.pd())
                .constant(UVERBS_ATTR_ADVISE_MR_ADVICE, advice)
                .input(&rig.memory, UVERBS_ATTR_ADVISE_MR_FLAGS, &flags)
                .input(&rig.memory, UVERBS_ATTR_ADVISE_MR_SGE_LIST, &sge);
            rig.run(&cmd)
        })
        .only(World::Mlx5, "rxe has paging at 7.2 alone")
    };
    vec![
        with("to read", Want::Ok, |_, _| (0, 1)),
        with("to write", Want::Ok, |_, _| (1, 1)),
        with("without a fault", Want::Ok, |_, _| (2, 1)),
        with("without waiting", Want::Ok, |_, _| (0, 0)),
        with("unknown advice", EOPNOTSUPP, |_, _| (3, 1)),
        with("no key", ENOENT, |_, sge| {
            sge.lkey = 0xffff_ff00;
            (0, 1)
        }),
        with("a key of pinned memory", ENOENT, |rig, sge| {
            sge.lkey = rig.new_mr(&rig.reg_mr_request()).expect("a region").lkey;
            (0, 1)
        }),
        with("over the end", EFAULT, |_, sge| {
            sge.length = 8193;
            (0, 1)
        }),
    ]
}

fn reregistrations() -> Vec<Case> {
    let with = |name, want, flags: u32, change: fn(&Rig, &mut ib_uverbs_rereg_mr)| {
        case("reregistration", name, REREG, want, move |rig: &Rig| {
            let addr = rig.memory.alloc(8192, 4096);
            let mut request = ib_uverbs_rereg_mr {
                mr_handle: rig.mr(),
                flags,
                start: addr,
                length: 4096,
                hca_va: addr,
                pd_handle: rig.new_pd()?,
                access_flags: IB_UVERBS_ACCESS_LOCAL_WRITE,
                ..Default::default()
            };
            change(rig, &mut request);
            rig.run(&rig.write(IB_USER_VERBS_CMD_REREG_MR, &request, 8))
        })
        .from(Driver::Rxe, (6, 12), "rxe has reregistration at 6.12, and had none at 6.1")
    };
    let (trans, pd, access) = (IB_MR_REREG_TRANS, IB_MR_REREG_PD, IB_MR_REREG_ACCESS);
    vec![
        with("nothing", EINVAL, 0, |_, _| ()),
        with("unknown flag", EOPNOTSUPP, 8, |_, _| ()),
        with("unknown flag among others", EOPNOTSUPP, 15, |_, _| ()),
        with("PD", Want::Ok, pd, |_, _| ()),
        with("access", Want::Ok, access, |_, _| ()),
        with("PD and access", Want::Ok, pd | access, |_, _| ()),
        with("translation", driver(&Want::Ok, &EOPNOTSUPP), trans, |_, _| ()),
        with("all", driver(&Want::Ok, &EOPNOTSUPP), trans | pd | access, |_, _| ()),
        with("no region", ENOENT, pd, |_, mr| mr.mr_handle = 999),
        with("region 0xffffffff", ENOENT, pd, |_, mr| mr.mr_handle = u32::MAX),
        with("a PD as region", EINVAL, pd, |rig, mr| mr.mr_handle = rig.pd()),
        with("no PD", NO_OBJECT, pd, |_, mr| mr.pd_handle = 999),
        with("no PD, not asked for", Want::Ok, access, |_, mr| mr.pd_handle = 999),
        with("flags that no device has", EINVAL, access, |_, mr| mr.access_flags = 1 << 10),
        with("remote write alone", EINVAL, access, |_, mr| mr.access_flags = 2),
        with("bad flags, not asked for", Want::Ok, pd, |_, mr| mr.access_flags = 1 << 10),
        with("another place in the page", EINVAL, trans, |_, mr| mr.hca_va += 1),
        with("another place, not asked for", Want::Ok, pd, |_, mr| mr.hca_va += 1),
        with("no region, and another place", EINVAL, trans, |_, mr| {
            (mr.mr_handle, mr.hca_va) = (999, mr.hca_va + 1);
        }),
        with("unmapped", driver(&EFAULT, &EOPNOTSUPP), trans, |rig, mr| {
            (mr.start, mr.hca_va) = (rig.memory.hole(), rig.memory.hole());
        }),
        with("no bytes", driver(&EINVAL, &EOPNOTSUPP), trans, |_, mr| mr.length = 0),
    ]
}
