//! Memory of a stream, both ends in one process on a software HCA, seconds:
//! `cargo bench -p uverbs-streams --bench memory`
//!
//! Streams are opened, carry a byte, and stay. `small` has the least buffers and queues.

use std::error::Error;
use std::io::{Read, Write};
use std::net::IpAddr;
use std::{fs, io, thread};

use uverbs_streams::{RdmaStream, StreamOptions};

const STREAMS: usize = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let device = uverbs::device("softhca0")?;
    let options = StreamOptions::new().on(&device);
    let small = options.clone().send_buffer(2048).recv_buffer(2048).sends(16).recvs(16);
    let addr = device.addresses()?.into_iter().find(|it| it.is_ipv4()).ok_or("no address")?;
    // Freed memory would hide the growth.
    let mut kept = Vec::new();
    for (name, options) in [("default", options), ("small", small)] {
        // Memory that the device takes once.
        kept.extend(open(&options, addr, 1)?);
        let before = resident()?;
        kept.extend(open(&options, addr, STREAMS)?);
        let grown = resident()?.saturating_sub(before);
        println!("{name:<8} {STREAMS} streams: {} bytes each, both ends", grown / STREAMS);
    }
    Ok(())
}

/// Resident bytes, shared pages included.
fn resident() -> Result<usize, Box<dyn Error>> {
    let text = fs::read_to_string("/proc/self/statm")?;
    let pages = text.split_whitespace().nth(1).ok_or("statm has no second field")?;
    Ok(pages.parse::<usize>()? * 4096)
}

/// Opens so many streams, one after the other. Returns both ends of each.
fn open(options: &StreamOptions, addr: IpAddr, count: usize) -> io::Result<Vec<[RdmaStream; 2]>> {
    let listener = options.listen((addr, 0))?;
    let to = listener.local_addr()?;
    thread::scope(|scope| {
        let accepted = scope.spawn(|| (0..count).map(|_| Ok(listener.accept()?.0)).collect());
        let asked = (0..count).map(|_| options.connect(to)).collect::<io::Result<Vec<_>>>();
        let accepted: io::Result<Vec<_>> = accepted.join().expect("it returns errors");
        let ends = asked?.into_iter().zip(accepted?);
        let talk = |(mut from, mut to): (RdmaStream, RdmaStream)| {
            from.write_all(&[1])?;
            to.read_exact(&mut [0])?;
            Ok([from, to])
        };
        ends.map(talk).collect()
    })
}
