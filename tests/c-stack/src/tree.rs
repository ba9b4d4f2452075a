//! The sysfs files that libibverbs and libmlx5 read (`libibverbs/init.c`, `sysfs.c`,
//! `cmd_device.c`; kernel `Documentation/ABI/stable/sysfs-class-infiniband`).

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use uverbs_core::doors::DeviceSource;
use uverbs_softhca::{GidType, SoftHca};

use crate::device::{NAME, NODE, Settings};
use crate::files::STAND_IN_NUMBER;

/// PCI vendor and device id of softhca, as in QUERY_DEVICE: Mellanox, ConnectX-6 Dx.
const PCI: (u32, u32) = (0x15b3, 0x101d);
/// PCI vendor and device id of Omni-Path 100: Intel.
const OMNI_PATH: (u32, u32) = (0x8086, 0x24f0);
/// PCI vendor and device id of the EFA that softefa is: Amazon.
const EFA: (u32, u32) = (0x1d0f, 0xefa2);

/// Address of the PCI function.
const PCI_ADDRESS: &str = "0000:00:06.0";

/// Writes the device's tree below `root`.
///
/// # Errors
///
/// The errors of the files.
pub(crate) fn write(root: &Path, settings: Settings) -> io::Result<()> {
    if settings.efa {
        return write_efa(root, settings);
    }
    // Has the addresses of the device that will be opened, without its thread.
    let omni_path = settings.omni_path;
    let device = settings.builder().stepped().build()?;
    // ABI 2 of rdmavt: rings are mapped (`sw/rdmavt/vt.c`, `RVT_UVERBS_ABI_VERSION`).
    let (abi, (vendor, part), driver) = match omni_path {
        true => ("2", OMNI_PATH, "hfi1"),
        false => ("1", PCI, "mlx5_core"),
    };
    let guid = device.record().node_guid;
    let folder = function(root, "1: CA", guid, (abi, driver), (vendor, part))?;
    port(&folder.join("ports/1"), &device)
}

/// Tree of an adapter of Amazon's (`hw/efa/efa_main.c`, `efa_ib_device_add`).
fn write_efa(root: &Path, mut settings: Settings) -> io::Result<()> {
    settings.stepped = true;
    let device = crate::device::new_efa(settings)?;
    let guid = device.record().node_guid;
    let folder = function(root, "7: unspecified", guid, ("1", "efa"), EFA)?;
    let port = folder.join("ports/1");
    file(&port, "state", "4: ACTIVE")?;
    file(&port, "phys_state", "5: LinkUp")?;
    file(&port, "link_layer", "Unspecified")?;
    file(&port, "lid", "0x0")?;
    file(&port, "pkeys/0", "0xffff")?;
    file(&port, "gids/0", &groups(&device.gid()))
}

/// Writes the files of a PCI function. Returns the device's folder.
fn function(
    root: &Path,
    node_type: &str,
    guid: u64,
    (abi, driver): (&str, &str),
    (vendor, part): (u32, u32),
) -> io::Result<PathBuf> {
    let verbs = root.join("class/infiniband_verbs");
    file(&verbs, "abi_version", "6")?;
    file(&verbs, &format!("{NODE}/ibdev"), NAME)?;
    file(&verbs, &format!("{NODE}/dev"), STAND_IN_NUMBER)?;
    file(&verbs, &format!("{NODE}/abi_version"), abi)?;

    let folder = root.join("class/infiniband").join(NAME);
    let guid = groups(&guid.to_be_bytes());
    file(&folder, "node_type", node_type)?;
    file(&folder, "node_guid", &guid)?;
    file(&folder, "sys_image_guid", &guid)?;
    file(&folder, "node_desc", "software HCA")?;
    file(&folder, "fw_ver", "99.0.0001")?;
    // Programs resolve the links, and read addresses and names out of the paths.
    let function = root.join(format!("devices/{PCI_ADDRESS}"));
    fs::create_dir_all(&function)?;
    symlink(&function, folder.join("device"))?;
    file(&folder, "device/vendor", &format!("{vendor:#06x}"))?;
    file(&folder, "device/device", &format!("{part:#06x}"))?;
    let modalias = format!("pci:v{vendor:08X}d{part:08X}sv{vendor:08X}sd{part:08X}bc02sc00i00");
    file(&folder, "device/modalias", &modalias)?;
    let driver = root.join("bus/pci/drivers").join(driver);
    fs::create_dir_all(&driver)?;
    symlink(driver, function.join("driver"))?;
    Ok(folder)
}

fn port(folder: &Path, device: &SoftHca) -> io::Result<()> {
    let info = device.port_info();
    let layer = if info.lid == 0 { "Ethernet" } else { "InfiniBand" };
    file(folder, "state", "4: ACTIVE")?;
    file(folder, "phys_state", "5: LinkUp")?;
    file(folder, "link_layer", layer)?;
    file(folder, "lid", &format!("{:#x}", info.lid))?;
    for index in 0..info.pkey_table_len {
        let pkey = device.pkey(1, index)?;
        file(folder, &format!("pkeys/{index}"), &format!("{pkey:#06x}"))?;
    }
    for (index, gid) in device.gids().iter().enumerate() {
        file(folder, &format!("gids/{index}"), &groups(&gid.gid))?;
        let kind = match gid.kind {
            GidType::Ib | GidType::RoceV1 => "IB/RoCE v1",
            GidType::RoceV2 => "RoCE v2",
        };
        file(folder, &format!("gid_attrs/types/{index}"), kind)?;
    }
    Ok(())
}

/// Formats bytes as `fe80:0000:…`, two bytes a group.
fn groups(bytes: &[u8]) -> String {
    let groups =
        bytes.chunks(2).map(|pair| pair.iter().map(|byte| format!("{byte:02x}")).collect());
    groups.collect::<Vec<String>>().join(":")
}

fn file(folder: &Path, path: &str, text: &str) -> io::Result<()> {
    let path = folder.join(path);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, format!("{text}\n"))
}

/// Directory of this process's tree.
pub(crate) fn root() -> PathBuf {
    let dir = std::env::var_os("UVERBS_SOFTHCA_DIR").filter(|dir| !dir.is_empty());
    let dir = dir.map_or_else(std::env::temp_dir, PathBuf::from);
    dir.join(format!("uverbs-softhca-{}", std::process::id()))
}
