//! Lists the RDMA devices of this machine with their ports. Lists the embedded software HCA if the
//! machine has no RDMA device.
//!
//! `cargo run --example list_devices`

use std::error::Error;
use std::sync::Arc;

use uverbs::softhca::SoftHca;
use uverbs::{Device, devices};

fn main() -> Result<(), Box<dyn Error>> {
    let mut devices = devices()?;
    if devices.is_empty() {
        println!("no RDMA device here; this is the embedded software HCA:");
        devices.push(Device::from_source(Arc::new(SoftHca::builder().build()?)));
    }
    for device in &devices {
        // Name and GUID are known before a device is opened, which needs access to its node under
        // /dev/infiniband.
        println!("{}  node GUID {:016x}", device.name(), device.node_guid());
        let context = match device.open() {
            Ok(context) => context,
            Err(error) => {
                println!("  {error}");
                continue;
            }
        };
        let attr = context.query_device()?;
        println!("  firmware {}, {} queue pairs at most", attr.firmware(), attr.max_qp);
        for number in 1..=attr.phys_port_count {
            let port = context.query_port(number)?;
            println!(
                "  port {number}: {}, {}, MTU {}",
                port.state, port.link_layer, port.active_mtu
            );
        }
        for entry in context.query_gid_table()? {
            println!("  port {} GID {:3}: {} ({})", entry.port, entry.index, entry.gid, entry.kind);
        }
    }
    Ok(())
}
