#![no_main]
#![allow(dead_code, reason = "a test's peer, of which a part is used")]

use std::net::Ipv6Addr;
use std::sync::LazyLock;

use uverbs::Device;

#[path = "../../adapters/streams/tests/sockets/stream_peer.rs"]
mod stream_peer;

static DEVICE: LazyLock<Device> = LazyLock::new(|| uverbs::device("softhca0").unwrap());

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let gids = DEVICE.open().unwrap().query_gid_table().unwrap();
    let own = gids.iter().find(|entry| entry.gid.is_ipv4_mapped()).unwrap();
    stream_peer::messages(&DEVICE, Ipv6Addr::from(own.gid.0).to_canonical(), data);
});
