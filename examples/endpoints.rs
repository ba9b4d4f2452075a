//! librdmacm's `rdma_server` and `rdma_client`: one message of sixteen bytes there, one back, each
//! call waiting for its end.
//!
//!     cargo run --example endpoints
//!     cargo run --example endpoints -- server [PORT]
//!     cargo run --example endpoints -- client HOST[:PORT]
//!
//! Without words both sides are in this process, on two software HCAs. With them it goes by the
//! machine's RDMA devices, where the other side may be the program in C, or by the software HCA on
//! a machine without, which prints the address for HOST.

use std::env;
use std::error::Error;
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use uverbs::cm::{AddressInfo, EndpointListener, EventChannel, Lookup, NewEndpoint, Param};
use uverbs::{Device, QpCap};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Limit of every wait.
const LIMIT: Duration = Duration::from_secs(20);
/// Bytes of a message.
const LEN: usize = 16;
const PORT: &str = "7471";

fn main() -> Result<()> {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [] => both(),
        ["server"] => server(PORT),
        ["server", port] => server(port),
        ["client", at] => {
            // An IPv6 address has several colons, and no port here.
            let parts = at.split_once(':').filter(|(_, port)| !port.contains(':'));
            let (host, port) = parts.unwrap_or((at, PORT));
            client(host, port)
        }
        _ => Err("usage: endpoints [server [PORT] | client HOST[:PORT]]".into()),
    }
}

fn both() -> Result<()> {
    let (here, there) = (uverbs::device("softhca0")?, uverbs::device("softhca1")?);
    let ip = address(&there)?.to_string();
    let own = Lookup::new().passive().numeric().find(Some(&ip), None)?;
    let listener = EndpointListener::listen_on(EventChannel::of(&there)?, &own[0], &sizes())?;
    let at = listener.listener().local_addr()?.ok_or("a listener has an address")?;
    let server = thread::spawn(move || serve(listener));
    let peer = Lookup::new().numeric().find(Some(&ip), Some(&at.port().to_string()))?;
    ask(NewEndpoint::to_on(EventChannel::of(&here)?, &peer[0], &sizes(), LIMIT)?)?;
    server.join().map_err(|_| "the server panicked")?
}

fn server(port: &str) -> Result<()> {
    let own = Lookup::new().passive().ipv4().find(None, Some(port))?;
    let device = uverbs::device_or_softhca()?;
    // iWARP's interface has the address, and not the device.
    let at = device.addresses()?.first().map_or("*".to_owned(), ToString::to_string);
    println!("server  listens at {at}:{port}");
    serve(EndpointListener::listen_on(EventChannel::of(&device)?, &own[0], &sizes())?)
}

fn client(host: &str, port: &str) -> Result<()> {
    let found = Lookup::new().find(Some(host), Some(port))?;
    let channel = EventChannel::of(&uverbs::device_or_softhca()?)?;
    ask(NewEndpoint::to_on(channel, first(&found)?, &sizes(), LIMIT)?)
}

fn serve(mut listener: EndpointListener) -> Result<()> {
    let mut new = listener.next(LIMIT)?;
    let slab = new.pd().slab(LEN, 1)?;
    new.queue_pair().post_recv(1, slab.take().ok_or("the slab is new")?)?;
    let mut endpoint = new.accept(&Param::default())?;
    let received = endpoint.recv_completion(LIMIT)?;
    received.result?;
    println!("server  received {} bytes", received.byte_len);
    endpoint.queue_pair().post_send_inline(2, &[b's'; LEN])?;
    endpoint.send_completion(LIMIT)?.result?;
    // The peer may have disconnected before.
    endpoint.disconnect(LIMIT)?;
    Ok(())
}

fn ask(mut new: NewEndpoint<uverbs::cm::Route>) -> Result<()> {
    let slab = new.pd().slab(LEN, 1)?;
    new.queue_pair().post_recv(1, slab.take().ok_or("the slab is new")?)?;
    let mut endpoint = new.connect(&Param::default())?;
    endpoint.queue_pair().post_send_inline(2, &[b'c'; LEN])?;
    endpoint.send_completion(LIMIT)?.result?;
    let received = endpoint.recv_completion(LIMIT)?;
    received.result?;
    println!("client  received {} bytes", received.byte_len);
    endpoint.disconnect(LIMIT)?;
    Ok(())
}

/// One message each way at a time.
fn sizes() -> QpCap {
    QpCap { max_send_wr: 1, max_recv_wr: 1, max_inline_data: LEN as u32, ..QpCap::default() }
}

fn first(found: &[AddressInfo]) -> Result<&AddressInfo> {
    found.first().ok_or_else(|| "the name has no address".into())
}

/// The device's first IP address.
fn address(device: &Device) -> Result<IpAddr> {
    Ok(*device.addresses()?.first().ok_or("the device has no IP address")?)
}
