//! A stream of bytes over RDMA, read and written as a TCP socket is: a server that turns lines
//! around, and a client.
//!
//!     cargo run --example streams                          both, in this process
//!     cargo run --example streams server [ADDRESS:PORT]    one terminal
//!     cargo run --example streams client ADDRESS:PORT      another one

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::thread;
use std::time::Duration;

use uverbs::Device;
use uverbs_streams::{RdmaListener, StreamOptions};

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
        ["server"] => server(&device, SocketAddr::new(address(&device)?, PORT)),
        ["server", at] => server(&device, at.parse()?),
        ["client", at] => client(&device, at.parse()?),
        _ => Err("usage: streams [server [ADDRESS:PORT] | client ADDRESS:PORT]".into()),
    }
}

fn both() -> Result<()> {
    let (here, there) = (uverbs::device("softhca0")?, uverbs::device("softhca1")?);
    let listener = StreamOptions::new().on(&there).listen((address(&there)?, 0))?;
    let at = listener.local_addr()?;
    let server = thread::spawn(move || serve(&listener));
    client(&here, at)?;
    println!("server  turned {} lines", server.join().map_err(|_| "the server panicked")??);
    Ok(())
}

fn server(device: &Device, at: SocketAddr) -> Result<()> {
    let listener = StreamOptions::new().on(device).listen(at)?;
    println!("server  listens at {}", listener.local_addr()?);
    println!("server  turned {} lines", serve(&listener)?);
    Ok(())
}

fn client(device: &Device, at: SocketAddr) -> Result<()> {
    let mut stream = StreamOptions::new().on(device).limit(LIMIT).connect(at)?;
    stream.set_read_timeout(Some(LIMIT))?;
    for line in ["bytes in order", "without messages' ends"] {
        writeln!(stream, "{line}")?;
    }
    // More than both buffers hold: the server reads meanwhile.
    let long = "uverbs".repeat(100_000);
    writeln!(stream, "{long}")?;
    stream.shutdown(Shutdown::Write)?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    for line in text.lines() {
        match line.len() {
            len @ ..100 => println!("client  {len} bytes came back: {line:?}"),
            len => println!("client  {len} bytes came back"),
        }
    }
    Ok(())
}

/// Turns each line of one client around, and counts them.
fn serve(listener: &RdmaListener) -> Result<usize> {
    let (stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(LIMIT))?;
    let mut turned = Vec::new();
    for line in BufReader::new(&stream).lines() {
        turned.push(line?.chars().rev().collect::<String>());
    }
    for line in &turned {
        writeln!(&stream, "{line}")?;
    }
    Ok(turned.len())
}

/// The device's first IP address.
fn address(device: &Device) -> Result<IpAddr> {
    Ok(*device.addresses()?.first().ok_or("the device has no IP address")?)
}
