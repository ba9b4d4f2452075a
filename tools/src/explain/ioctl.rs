//! Commands of the uverbs ioctl: header and attributes.

use uverbs_kernel_abi::driver_id::RDMA_DRIVER_MLX5;
use uverbs_kernel_abi::ioctl::{
    UVERBS_ATTR_F_MANDATORY, UVERBS_ATTR_F_VALID_OUTPUT, UVERBS_ATTR_INLINE_MAX, ib_uverbs_attr,
    ib_uverbs_ioctl_hdr,
};
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_WRITE_CMD, UVERBS_METHOD_INVOKE_WRITE, UVERBS_OBJECT_DEVICE,
};
use zerocopy::FromBytes;

use super::names;
use super::report::{Explained, Structure, Wrong};

pub(super) fn explain(bytes: &[u8]) -> Result<Explained, Wrong> {
    let wrong = |why: String| (bytes.len(), why);
    let (header, mut rest) = ib_uverbs_ioctl_hdr::read_from_prefix(bytes)
        .map_err(|_| wrong(format!("a header has {}", size_of::<ib_uverbs_ioctl_hdr>())))?;
    let (object, method) = (header.object_id, header.method_id);
    let mlx5 = header.driver_id == RDMA_DRIVER_MLX5;
    let wanted = size_of::<ib_uverbs_ioctl_hdr>()
        + usize::from(header.num_attrs) * size_of::<ib_uverbs_attr>();
    if bytes.len() < wanted {
        let count = header.num_attrs;
        return Err(wrong(format!("{count} attributes and the header have {wanted}")));
    }
    let known = |name: Option<&str>| name.map_or_else(String::new, |name| format!(" {name}"));
    let mut structures = vec![
        Structure::new("ib_uverbs_ioctl_hdr")
            .at(0x00, "length", of_length(header.length, bytes.len()))
            .at(0x02, "object_id", format!("{object:#06x}{}", known(names::object(mlx5, object))))
            .at(
                0x04,
                "method_id",
                format!("{method:#06x}{}", known(names::method(mlx5, object, method))),
            )
            .at(0x06, "num_attrs", header.num_attrs)
            .at(0x08, "reserved1", format!("{:#018x}", header.reserved1))
            .at(0x10, "driver_id", driver(header.driver_id))
            .at(0x14, "reserved2", format!("{:#010x}", header.reserved2)),
    ];
    let mut what = names::method(mlx5, object, method)
        .map_or_else(|| format!("method {method:#x} of object {object:#x}"), str::to_owned);
    for _ in 0..header.num_attrs {
        let Ok((attr, behind)) = ib_uverbs_attr::read_from_prefix(rest) else { break };
        rest = behind;
        let is_write = (object, method, attr.attr_id)
            == (UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, UVERBS_ATTR_WRITE_CMD);
        let command = names::write(attr.data as u32).filter(|_| is_write);
        if let Some(command) = command {
            what = format!("{what}: {command}");
        }
        let name = names::attr(mlx5, object, method, attr.attr_id);
        structures.push(
            Structure::new("ib_uverbs_attr")
                .at(0x00, "attr_id", format!("{:#06x}{}", attr.attr_id, known(name)))
                .at(0x02, "len", attr.len)
                .at(0x04, "flags", flags(attr.flags))
                .at(
                    0x06,
                    "attr_data",
                    format!("{:02x}{:02x}", attr.attr_data[0], attr.attr_data[1]),
                )
                .at(
                    0x08,
                    "data",
                    format!("{:#018x}{}{}", attr.data, place(attr.len), known(command)),
                ),
        );
    }
    Ok(Explained::new(what, structures))
}

fn of_length(length: u16, have: usize) -> String {
    if usize::from(length) == have {
        length.to_string()
    } else {
        format!("{length}, and there are {have} bytes")
    }
}

fn driver(id: u32) -> String {
    let name = if id == RDMA_DRIVER_MLX5 { " RDMA_DRIVER_MLX5" } else { "" };
    format!("{id}{name}")
}

fn flags(flags: u16) -> String {
    let names = [
        (UVERBS_ATTR_F_MANDATORY, " UVERBS_ATTR_F_MANDATORY"),
        (UVERBS_ATTR_F_VALID_OUTPUT, " UVERBS_ATTR_F_VALID_OUTPUT"),
    ];
    let set = names.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| *name);
    format!("{flags:#06x}{}", set.collect::<String>())
}

/// Marks an attribute that is passed by address. Attributes of at most eight bytes are inline
/// (`uverbs_attr_is_inline` of the kernel's `uverbs_ioctl.h`).
fn place(len: u16) -> &'static str {
    if len <= UVERBS_ATTR_INLINE_MAX { "" } else { " (address)" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uverbs_kernel_abi::objects::{
        UVERBS_ATTR_DESTROY_PD_HANDLE, UVERBS_METHOD_PD_DESTROY, UVERBS_OBJECT_PD,
    };
    use zerocopy::IntoBytes;

    fn command(object: u16, method: u16, attrs: &[ib_uverbs_attr]) -> Vec<u8> {
        let length = (size_of::<ib_uverbs_ioctl_hdr>() + size_of_val(attrs)) as u16;
        let header = ib_uverbs_ioctl_hdr {
            length,
            object_id: object,
            method_id: method,
            num_attrs: attrs.len() as u16,
            driver_id: RDMA_DRIVER_MLX5,
            ..Default::default()
        };
        [header.as_bytes(), attrs.as_bytes()].concat()
    }

    #[test]
    fn a_command_has_its_names() {
        let handle = ib_uverbs_attr {
            attr_id: UVERBS_ATTR_DESTROY_PD_HANDLE,
            flags: UVERBS_ATTR_F_MANDATORY,
            data: 7,
            ..Default::default()
        };
        let bytes = command(UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, &[handle]);
        let text = explain(&bytes).unwrap().to_string();
        for says in [
            "UVERBS_METHOD_PD_DESTROY\n",
            "0x0001 UVERBS_OBJECT_PD",
            "0x0000 UVERBS_ATTR_DESTROY_PD_HANDLE",
            "0x0001 UVERBS_ATTR_F_MANDATORY",
            "0x0000000000000007",
            "RDMA_DRIVER_MLX5",
        ] {
            assert!(text.contains(says), "{says}:\n{text}");
        }
        for len in 0..bytes.len() {
            assert!(explain(&bytes[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn a_write_command_is_named() {
        let number =
            ib_uverbs_attr { attr_id: UVERBS_ATTR_WRITE_CMD, data: 9, ..Default::default() };
        let bytes = command(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, &[number]);
        let text = explain(&bytes).unwrap().to_string();
        assert!(
            text.starts_with("UVERBS_METHOD_INVOKE_WRITE: IB_USER_VERBS_CMD_REG_MR\n"),
            "{text}"
        );
    }
}
