//! Facts of a device that need no open device, as reports show them.

use serde::Serialize;
use uverbs::Device;

/// Fields that are known without opening a device. Unknown ones are left out.
#[derive(Debug, Serialize)]
pub(crate) struct DeviceFacts {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pci_address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) numa_node: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) firmware: Option<String>,
}

impl DeviceFacts {
    pub(crate) fn of(device: &Device) -> Self {
        let file = device.source().sysfs().map(|folder| folder.join("fw_ver"));
        let firmware = file.and_then(|file| std::fs::read_to_string(file).ok());
        Self {
            pci_address: device.pci_address().map(|address| address.to_string()),
            numa_node: device.numa_node(),
            firmware: firmware.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()),
        }
    }
}
