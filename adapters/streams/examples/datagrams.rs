//! Datagrams over RDMA, sent and received as by a UDP socket: a server that sends each one back,
//! and a client that asks again for what was lost.
//!
//!     cargo run --example datagrams                      both, in this process
//!     cargo run --example datagrams server [ADDRESS]     one terminal
//!     cargo run --example datagrams client ADDRESS:PORT  another one

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use uverbs_streams::{RdmaDatagram, StreamOptions};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const PORT: u16 = 7175;
/// Datagrams of the client, of all lengths up to what one packet of Ethernet's holds.
const COUNT: u32 = 200;
const LONGEST: usize = 1000;
/// After so long a datagram counts as lost.
const LOST: Duration = Duration::from_millis(200);
/// The client's last number.
const END: u32 = u32::MAX;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // On a machine without RDMA devices: the software HCA, which other processes reach.
    let options = StreamOptions::new().on(&uverbs::device_or_softhca()?);
    let server = |ip| -> Result<()> {
        let socket = options.datagrams((ip, PORT))?;
        println!("server  receives at {}", socket.local_addr()?);
        serve(&socket)
    };
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server"] => server("0.0.0.0"),
        ["server", ip] => server(ip),
        ["client", at] => ask(&options.datagrams("0.0.0.0:0")?, at.parse()?),
        [] => {
            let socket = options.datagrams("0.0.0.0:0")?;
            let at = socket.local_addr()?;
            let server = thread::spawn(move || serve(&socket));
            ask(&options.datagrams("0.0.0.0:0")?, at)?;
            server.join().map_err(|_| "the server panicked")?
        }
        _ => Err("usage: datagrams [server [ADDRESS] | client ADDRESS:PORT]".into()),
    }
}

/// Sends back what comes, until the client ends.
fn serve(socket: &RdmaDatagram) -> Result<()> {
    // The client has ten seconds for the first one; its last one may be lost.
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    let (mut room, mut count) = ([0; 2048], 0);
    loop {
        let (len, from) = match socket.recv_from(&mut room) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut && count > 0 => break,
            other => other?,
        };
        socket.send_to(&room[..len], from)?;
        count += 1;
        if room[..len].first_chunk() == Some(&END.to_be_bytes()) {
            break;
        }
    }
    println!("server  sent {count} datagrams back");
    Ok(())
}

/// Sends datagrams of many lengths, and looks at what comes back.
fn ask(socket: &RdmaDatagram, server: SocketAddr) -> Result<()> {
    socket.connect(server)?;
    socket.set_read_timeout(Some(LOST))?;
    let mut lost = 0;
    for number in (0..COUNT).chain([END]) {
        let len = 4 + number as usize * 37 % (LONGEST - 4);
        let mut data: Vec<u8> = (0..len).map(|at| (at as u32 ^ number) as u8).collect();
        data[..4].copy_from_slice(&number.to_be_bytes());
        while !comes_back(socket, &data)? {
            lost += 1;
            if lost > 50 {
                return Err(format!("{server} doesn't answer").into());
            }
        }
    }
    println!("client  {COUNT} datagrams came back, and {lost} were asked for again");
    Ok(())
}

/// Sends a datagram, and waits for it. False if it was lost on the way.
fn comes_back(socket: &RdmaDatagram, data: &[u8]) -> Result<bool> {
    socket.send(data)?;
    let mut room = [0; 2048];
    loop {
        let len = match socket.recv(&mut room) {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(false),
            other => other?,
        };
        match room[..len].first_chunk::<4>() == data.first_chunk() {
            true if room[..len] == *data => return Ok(true),
            true => return Err("a datagram came back changed".into()),
            // The answer to one that was asked for twice.
            false => {}
        }
    }
}
