//! Contexts, ports, GIDs, and the numbers of write commands.

use uverbs_kernel_abi::mlx5::*;
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_abi::write::*;

use super::{bare, case};
use crate::calls::calls;
use crate::case::{Case, World};
use crate::memory::FILL;
use crate::rig::Rig;
use crate::want::{
    EFAULT, EINVAL, ENODATA, ENODEV, ENOSPC, EOPNOTSUPP, EPROTONOSUPPORT, Outcome, Want,
};

const DEVICE: &str = "core/uverbs_std_types_device.c";

const DATA_DIRECT: &str = "hw/mlx5/std_types.c:MLX5_IB_METHOD_GET_DATA_DIRECT_SYSFS_PATH";
const NO_DATA_DIRECT: Want = Want::Since((6, 12), &EPROTONOSUPPORT, &ENODEV);

pub(super) fn cases() -> Vec<Case> {
    let mut all = contexts();
    all.extend(ports());
    all.extend(gids());
    all.extend(write_commands());
    all.extend(without_context());
    all
}

fn contexts() -> Vec<Case> {
    let request = |name, want, change: fn(&mut mlx5_ib_alloc_ucontext_req_v2)| {
        let source = "hw/mlx5/main.c:mlx5_ib_alloc_ucontext";
        let run = move |rig: &Rig| {
            let cmd = rig.get_context();
            rig.memory.edit(cmd.find(UVERBS_ATTR_UHW_IN).expect("driver data").data, change);
            rig.run(&cmd)
        };
        bare("contexts", name, source, want, run).only(World::Mlx5, "the driver's data")
    };
    vec![
        case("contexts", "a second one", "core/uverbs_cmd.c:ib_init_ucontext", EINVAL, |rig| {
            rig.run(&rig.get_context())
        }),
        bare(
            "contexts",
            "again after a refusal",
            "core/uverbs_cmd.c:ib_init_ucontext",
            Want::Ok,
            |rig| {
                let id = UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT;
                let bad = rig.get_context().edit(id, |attr| attr.data = 0);
                rig.run(&bad).expect_err("a refusal");
                rig.run(&rig.get_context())
            },
        ),
        bare("contexts", "core support", DEVICE, Want::Is("1"), |rig| {
            let cmd = rig.get_context();
            rig.send(&cmd)?;
            Ok(rig.answer::<u64>(&cmd, UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT).to_string())
        }),
        case("contexts", "query", DEVICE, EPROTONOSUPPORT, |rig| {
            let cmd = rig.cmd(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT);
            rig.run(&cmd.output(&rig.memory, MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, 72))
        })
        .only(World::Rxe, "the attribute is mlx5's"),
        case("contexts", "no data direct device", DATA_DIRECT, NO_DATA_DIRECT, |rig| {
            let cmd = rig.cmd(UVERBS_OBJECT_DEVICE, MLX5_IB_METHOD_GET_DATA_DIRECT_SYSFS_PATH);
            rig.run(&cmd.output(&rig.memory, MLX5_IB_ATTR_GET_DATA_DIRECT_SYSFS_PATH, 64))
        })
        .only(World::Mlx5, "a method of mlx5's own"),
        case("contexts", "query what the core knows", DEVICE, EOPNOTSUPP, |rig| {
            let cmd = rig.cmd(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_CONTEXT);
            rig.run(&cmd.output(&rig.memory, UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT, 8))
        })
        .only(World::Rxe, "mlx5_ib has query_ucontext"),
        case(
            "contexts",
            "DEVX: an unreadable command before a bad attribute",
            "core/uverbs_ioctl.c:uverbs_process_attr (alloc_and_copy)",
            EFAULT,
            |rig| {
                let hole = rig.memory.hole();
                let cmd = by_name("DEVX.OTHER")(rig);
                rig.run(
                    &cmd.edit(MLX5_IB_ATTR_DEVX_OTHER_CMD_IN, |attr| attr.data = hole)
                        .edit(MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT, |attr| attr.attr_data = [1, 0]),
                )
            },
        )
        .only(World::Mlx5, "a method of mlx5's own"),
        request("unknown flag", EOPNOTSUPP, |request| request.flags |= 1 << 31),
        request("unknown wish", EOPNOTSUPP, |request| request.comp_mask = 1),
        request("reserved 0", EOPNOTSUPP, |request| request.reserved0 = 1),
        request("reserved 1", EOPNOTSUPP, |request| request.reserved1 = 1),
        request("reserved 2", EOPNOTSUPP, |request| request.reserved2 = 1),
        request("all registers of low latency", EINVAL, |request| {
            request.num_low_latency_bfregs = request.total_num_bfregs;
        }),
    ]
}

fn ports() -> Vec<Case> {
    let port = |number: u64, want| {
        case("ports", format!("port {number:#x}"), DEVICE, want, move |rig| {
            let cmd = rig
                .cmd(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT)
                .constant(UVERBS_ATTR_QUERY_PORT_PORT_NUM, number)
                .output(&rig.memory, UVERBS_ATTR_QUERY_PORT_RESP, 48);
            rig.run(&cmd)
        })
    };
    vec![
        port(0, EINVAL),
        port(1, Want::Ok),
        port(2, EINVAL),
        port(255, EINVAL),
        port(256, EINVAL),
        port(257, EINVAL),
        port(1 << 63 | 1, EINVAL),
        case("ports", "room for more is cleared", DEVICE, Want::Is("[0, 0]"), |rig| {
            let cmd = rig
                .cmd(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT)
                .constant(UVERBS_ATTR_QUERY_PORT_PORT_NUM, 1)
                .output(&rig.memory, UVERBS_ATTR_QUERY_PORT_RESP, 50);
            rig.send(&cmd)?;
            let addr = cmd.find(UVERBS_ATTR_QUERY_PORT_RESP).expect("room").data;
            Ok(format!("{:?}", rig.memory.read(addr + 48, 2)))
        }),
        case(
            "ports",
            "state and link layer",
            DEVICE,
            Want::Link { ethernet: &Want::Is("4 2"), infiniband: &Want::Is("4 1") },
            |rig| {
                let cmd = rig
                    .cmd(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT)
                    .constant(UVERBS_ATTR_QUERY_PORT_PORT_NUM, 1)
                    .output(&rig.memory, UVERBS_ATTR_QUERY_PORT_RESP, 48);
                rig.send(&cmd)?;
                let port: uverbs_kernel_abi::port::ib_uverbs_query_port_resp =
                    rig.answer(&cmd, UVERBS_ATTR_QUERY_PORT_RESP);
                Ok(format!("{} {}", port.state, port.link_layer))
            },
        ),
    ]
}

fn gid_entry(rig: &Rig, port: u64, index: u64) -> crate::cmd::Cmd {
    rig.cmd(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY)
        .constant(UVERBS_ATTR_QUERY_GID_ENTRY_PORT, port)
        .constant(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, index)
        .input(&rig.memory, UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, &0u32)
        .output(&rig.memory, UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, 32)
}

fn gids() -> Vec<Case> {
    let source = "core/cache.c:rdma_get_gid_attr";
    let entry = |name, port: u64, index: u64, want| {
        case("gids", name, source, want, move |rig| rig.run(&gid_entry(rig, port, index)))
    };
    let near_end = |name, beyond: u64, want| {
        case("gids", name, source, want, move |rig| {
            let index = u64::from(rig.gid_table_len()) - 1 + beyond;
            rig.run(&gid_entry(rig, 1, index))
        })
    };
    let table = |name, size: u64, room: usize, want| {
        let source = "core/uverbs_std_types_device.c:UVERBS_METHOD_QUERY_GID_TABLE";
        case("gids", name, source, want, move |rig: &Rig| -> Outcome {
            let cmd = rig
                .cmd(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE)
                .constant(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, size)
                .input(&rig.memory, UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, &0u32)
                .output(&rig.memory, UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, room)
                .output(&rig.memory, UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, 8);
            rig.send(&cmd)?;
            // Bytes behind the known part of an entry are zero; bytes behind the last entry are
            // untouched.
            let addr = cmd.find(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES).expect("room").data;
            let count: u64 = rig.answer(&cmd, UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES);
            let first = rig.memory.read(addr, size as usize);
            let all = rig.memory.read(addr, room);
            let rest = &all[count as usize * size as usize..];
            let padded = first.get(32..).is_some_and(|pad| pad.iter().all(|byte| *byte == 0));
            let untouched = rest.iter().all(|byte| *byte == FILL);
            Ok(format!("entries padded {padded}, rest untouched {untouched}"))
        })
    };
    vec![
        entry("the first", 1, 0, Want::Ok),
        near_end("an empty one", 0, ENODATA),
        near_end("the first beyond the table", 1, EINVAL),
        entry("index over 32 bits", 1, 1 << 32, EINVAL),
        entry("port 0", 0, 0, EINVAL),
        entry("port 2", 2, 0, EINVAL),
        entry("port over 32 bits", 1 << 32 | 1, 0, EINVAL),
        table(
            "entries of today",
            32,
            16 * 32,
            Want::Is("entries padded true, rest untouched true"),
        ),
        table(
            "entries of tomorrow",
            40,
            16 * 40,
            Want::Is("entries padded true, rest untouched true"),
        ),
        table(
            "entries of yesterday",
            24,
            16 * 24,
            Want::Is("entries padded false, rest untouched true"),
        ),
        table("entries of nothing", 0, 16 * 32, EINVAL),
        table(
            "entries of an odd size",
            33,
            16 * 33,
            Want::Is("entries padded true, rest untouched true"),
        ),
        table("entries longer than the room", 64, 32, EINVAL),
        table("room that is no multiple", 32, 16 * 32 + 8, EINVAL),
        table("room for one", 32, 32, Want::Link { ethernet: &EINVAL, infiniband: &ONE_ENTRY }),
        table("no room", 32, 0, EINVAL),
    ]
}

fn write_commands() -> Vec<Case> {
    let number = |name, command: u64, want| {
        case("write commands", name, "core/uverbs_uapi.c:uapi_get_method", want, move |rig| {
            let cmd = rig.write(0, &[0u64; 8], 64);
            rig.run(&cmd.edit(UVERBS_ATTR_WRITE_CMD, |attr| attr.data = command))
        })
    };
    let sizes = |name, command, request: usize, room: usize, want| {
        let source = "core/uverbs_std_types_device.c:UVERBS_METHOD_INVOKE_WRITE";
        case("write commands", name, source, want, move |rig: &Rig| {
            let cmd = rig.write(command, &0u32, room);
            let bytes = vec![0; request];
            rig.run(&cmd.without(UVERBS_ATTR_CORE_IN).bytes(
                &rig.memory,
                UVERBS_ATTR_CORE_IN,
                &bytes,
            ))
        })
    };
    let extended = u64::from(IB_USER_VERBS_CMD_FLAG_EXTENDED);
    let query_ex = IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_QUERY_DEVICE;
    let query = IB_USER_VERBS_CMD_QUERY_DEVICE;
    vec![
        number("number 200", 200, EOPNOTSUPP),
        number("number 255", 255, EOPNOTSUPP),
        number("extended 200", extended | 200, EOPNOTSUPP),
        number("extended, without an extended form", extended | 3, EOPNOTSUPP),
        number("REG_SMR, which never was", 10, EOPNOTSUPP),
        number("QUERY_MR, which never was", 12, EOPNOTSUPP),
        number("a bit between", 0x101, EINVAL),
        number("bit 30", 1 << 30 | 1, EINVAL),
        number("over 32 bits", 1 << 32 | 1, EINVAL),
        sizes("request of 4 bytes", query, 4, 176, ENOSPC),
        sizes("request of 7 bytes", query, 7, 176, ENOSPC),
        sizes("request of 2 bytes", query, 2, 176, EINVAL),
        sizes("longer request of zeros", query, 4096, 176, Want::Ok),
        sizes("room a byte short", query, 8, 175, ENOSPC),
        sizes("room of 8 bytes", query, 8, 8, ENOSPC),
        sizes("more room", query, 8, 4096, Want::Ok),
        sizes("extended: request of 4 bytes", query_ex, 4, 304, Want::Ok),
        sizes("extended: room of 8 bytes", query_ex, 8, 8, Want::Ok),
        sizes("extended: room of 1 byte", query_ex, 8, 1, Want::Ok),
        case(
            "write commands",
            "a request of tomorrow",
            "core/uverbs_cmd.c:uverbs_request",
            EOPNOTSUPP,
            |rig| rig.run(&rig.write(IB_USER_VERBS_CMD_QUERY_DEVICE, &[0u64, 1], 176)),
        ),
        case(
            "write commands",
            "extended: unknown wish",
            "core/uverbs_cmd.c:ib_uverbs_ex_query_device",
            EINVAL,
            move |rig| rig.run(&rig.write(query_ex, &1u64, 304)),
        ),
        case(
            "write commands",
            "extended: reserved",
            "core/uverbs_cmd.c:ib_uverbs_ex_query_device",
            EINVAL,
            move |rig| rig.run(&rig.write(query_ex, &(1u64 << 32), 304)),
        ),
        case(
            "write commands",
            "extended: a request of tomorrow",
            "core/uverbs_cmd.c:uverbs_request",
            EOPNOTSUPP,
            move |rig| rig.run(&rig.write(query_ex, &[0u64, 1], 304)),
        ),
        case(
            "write commands",
            "extended: the length of the answer",
            "core/uverbs_cmd.c:uverbs_response_length",
            Want::Is("304 304 304"),
            move |rig| {
                let mut lengths = Vec::new();
                for room in [304, 312, 1000] {
                    let cmd = rig.write(query_ex, &0u64, room);
                    rig.send(&cmd)?;
                    let device: uverbs_kernel_abi::device::ib_uverbs_ex_query_device_resp =
                        rig.answer(&cmd, UVERBS_ATTR_CORE_OUT);
                    lengths.push(device.response_length.to_string());
                }
                Ok(lengths.join(" "))
            },
        ),
        case(
            "write commands",
            "extended: a short answer is cut",
            "core/uverbs_cmd.c:uverbs_response",
            Want::Is("200"),
            move |rig| {
                let cmd = rig.write(query_ex, &0u64, 200);
                rig.send(&cmd)?;
                let addr = cmd.find(UVERBS_ATTR_CORE_OUT).expect("room").data;
                Ok(rig.memory.get::<u32>(addr + 180).to_string())
            },
        ),
        case(
            "write commands",
            "the rest of a long answer is cleared",
            "core/uverbs_cmd.c:uverbs_response",
            Want::Is("true"),
            |rig| {
                let cmd = rig.write(IB_USER_VERBS_CMD_QUERY_DEVICE, &0u64, 400);
                rig.send(&cmd)?;
                let addr = cmd.find(UVERBS_ATTR_CORE_OUT).expect("room").data;
                let rest = rig.memory.read(addr + 176, 224);
                Ok(rest.iter().all(|byte| *byte == 0).to_string())
            },
        ),
        case(
            "write commands",
            "extended: room for the driver",
            "hw/mlx5/main.c:mlx5_ib_query_device; sw/rxe/rxe_verbs.c:rxe_query_device",
            Want::Driver { mlx5: &Want::Ok, rxe: &RXE_NO_ROOM },
            move |rig| {
                let cmd = rig.write(query_ex, &0u64, 304);
                rig.run(&cmd.output(&rig.memory, UVERBS_ATTR_UHW_OUT, 104))
            },
        ),
        case(
            "write commands",
            "extended: too little room for the driver",
            "hw/mlx5/main.c:mlx5_ib_query_device; sw/rxe/rxe_verbs.c:rxe_query_device",
            Want::Driver { mlx5: &EINVAL, rxe: &RXE_NO_ROOM },
            move |rig| {
                let cmd = rig.write(query_ex, &0u64, 304);
                rig.run(&cmd.output(&rig.memory, UVERBS_ATTR_UHW_OUT, 4))
            },
        ),
        case(
            "write commands",
            "an unknown number with a bad request",
            "core/uverbs_uapi.c:ib_uverbs_notsupp",
            EOPNOTSUPP,
            |rig| {
                let cmd = rig.write(200, &[0u64; 2], 8);
                rig.run(&cmd.edit(UVERBS_ATTR_CORE_IN, |attr| attr.data = rig.memory.hole()))
            },
        ),
    ]
}

/// InfiniBand has one GID.
const ONE_ENTRY: Want = Want::Is("entries padded true, rest untouched true");

/// rxe refused room that it has no use for at 6.1 and 6.12, and leaves it alone at 7.2.
const RXE_NO_ROOM: Want = Want::Since((6, 13), &EINVAL, &Want::Ok);

/// Answers of a file that has no context yet.
fn without_context() -> Vec<Case> {
    let source = "core/rdma_core.c:ib_uverbs_get_ucontext_file";
    let simple =
        |name, want, run: fn(&Rig) -> Outcome| bare("without context", name, source, want, run);
    let mut all = vec![
        simple("QUERY_PORT", EINVAL, |rig| rig.run(&(by_name("DEVICE.QUERY_PORT"))(rig))),
        simple("QUERY_GID_ENTRY", EINVAL, |rig| rig.run(&gid_entry(rig, 1, 0))),
        simple("QUERY_GID_TABLE", EINVAL, |rig| rig.run(&rig.gid_table())),
        simple("ASYNC_EVENT.ALLOC", EINVAL, |rig| rig.run(&rig.alloc_events())),
        simple("QUERY_DEVICE", EINVAL, |rig| {
            rig.run(&rig.write(IB_USER_VERBS_CMD_QUERY_DEVICE, &0u64, 176))
        }),
        simple("QUERY_DEVICE without buffers", ENOSPC, |rig| {
            let cmd = rig.write(IB_USER_VERBS_CMD_QUERY_DEVICE, &0u64, 0);
            rig.run(&cmd.without(UVERBS_ATTR_CORE_IN))
        }),
        simple("ALLOC_PD", EINVAL, |rig| rig.run(&rig.alloc_pd())),
        simple("CREATE_COMP_CHANNEL", EINVAL, |rig| rig.run(&rig.create_channel())),
        simple("an unknown write command", EOPNOTSUPP, |rig| rig.run(&rig.write(200, &0u64, 8))),
        simple("PD.DESTROY", crate::want::ENOENT, |rig| {
            rig.run(&rig.destroy(UVERBS_OBJECT_PD, 0u32))
        }),
        simple("an unknown object", EPROTONOSUPPORT, |rig| rig.run(&rig.cmd(0xfff, 0))),
    ];
    all.push(
        simple("UAR.ALLOC", EINVAL, |rig| rig.run(&rig.alloc_uar()))
            .only(World::Mlx5, "a method of mlx5's own"),
    );
    all
}

fn by_name(name: &str) -> fn(&Rig) -> crate::cmd::Cmd {
    calls().find(|call| call.name == name).expect("a known method").make
}
