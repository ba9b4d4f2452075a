//! Two queue pairs that find each other by IP address, as sockets do: a listener and a connector.
//!
//!     cargo run --example connect_by_address                          both, in this process
//!     cargo run --example connect_by_address server [ADDRESS:PORT]    one terminal
//!     cargo run --example connect_by_address client ADDRESS:PORT      another one

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

use uverbs::cm::{Connector, EventChannel, Listener, Param};
use uverbs::{CompletionQueue, Device, ProtectionDomain, QueuePair};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Limit of every wait.
const LIMIT: Duration = Duration::from_secs(10);
const PORT: u16 = 7471;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // On a machine without RDMA devices: the software HCA, which other processes reach.
    let device = uverbs::device_or_softhca()?;
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => both(),
        ["server"] => finish(serve(&listen(&device, SocketAddr::new(address(&device)?, PORT))?)?),
        ["server", at] => finish(serve(&listen(&device, at.parse()?)?)?),
        ["client", at] => ask(&device, at.parse()?),
        _ => Err("usage: connect_by_address [server [ADDRESS:PORT] | client ADDRESS:PORT]".into()),
    }
}

fn both() -> Result<()> {
    let (here, there) = (uverbs::device("softhca0")?, uverbs::device("softhca1")?);
    let listener = listen(&there, SocketAddr::new(address(&there)?, 0))?;
    let at = listener.local_addr()?.ok_or("a listener has an address")?;
    let server = thread::spawn(move || serve(&listener));
    ask(&here, at)?;
    finish(server.join().map_err(|_| "the server panicked")??)
}

fn finish(asked: String) -> Result<()> {
    println!("server  was asked with {asked:?}, and told that the client went");
    Ok(())
}

fn listen(device: &Device, at: SocketAddr) -> Result<Listener> {
    let listener = Listener::builder(at).listen_on(EventChannel::of(device)?)?;
    println!("server  listens at {}", listener.local_addr()?.ok_or("a listener has an address")?);
    Ok(listener)
}

/// Connects to the server, and sends it one message.
fn ask(device: &Device, at: SocketAddr) -> Result<()> {
    let route = Connector::new(at).limit(LIMIT).resolve_on(EventChannel::of(device)?)?;
    println!("client  goes by {}, port {}", route.device()?.name(), route.port()?);
    let (pd, mut cq, mut qp) = objects(&route.device()?)?;
    // Before the peer may send: its answer needs a receive.
    route.init(&mut qp)?;
    qp.post_recv(1, pd.slab(64, 1)?.take().ok_or("the slab is new")?)?;
    let param = Param { private_data: b"from the client".to_vec(), ..Param::default() };
    let mut connection = route.connect(qp, &param)?;
    println!("client  is connected; told {:?}", text(connection.private_data()));
    connection.queue_pair().post_send_inline(2, b"hello")?;
    println!("client  received {:?}", text(&received(&mut cq)?));
    connection.disconnect(LIMIT)?;
    println!("client  disconnected");
    Ok(())
}

/// Takes one connection, echoes one message, and answers what the client said when it asked.
fn serve(listener: &Listener) -> Result<String> {
    let request = listener.next(LIMIT)?;
    let asked = text(request.private_data());
    let (pd, mut cq, mut qp) = objects(&request.device()?)?;
    request.init(&mut qp)?;
    qp.post_recv(1, pd.slab(64, 1)?.take().ok_or("the slab is new")?)?;
    let param = Param { private_data: b"from the server".to_vec(), ..Param::default() };
    let mut connection = request.accept(qp, &param)?;
    let message = received(&mut cq)?;
    connection.queue_pair().post_send_inline(2, &message)?;
    if !connection.is_closed(LIMIT)? {
        return Err("the client stays".into());
    }
    Ok(asked)
}

fn objects(device: &Device) -> Result<(ProtectionDomain, CompletionQueue, QueuePair)> {
    let context = device.open()?;
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(256)?;
    let qp = context.queue_pair(&pd, &cq).build()?;
    Ok((pd, cq, qp))
}

/// The next message; completions of sends are passed over.
fn received(cq: &mut CompletionQueue) -> Result<Vec<u8>> {
    loop {
        let completion = cq.wait(LIMIT)?;
        completion.result?;
        if let Some(frame) = completion.frame {
            return Ok(frame.to_vec());
        }
    }
}

/// The device's first IP address.
fn address(device: &Device) -> Result<IpAddr> {
    Ok(*device.addresses()?.first().ok_or("the device has no IP address")?)
}

/// Private data comes filled up with zeros.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned()
}
