//! UDP sockets over loopback: a call for each message, on either side. The receiver confirms from
//! time to time, as it must if no protocol keeps its buffer from overflowing.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use crate::{Fallible, Figures, Peer, Plan, SIZES, SMALL, heard, processor};

/// Longest datagram here: an even part of all sizes.
const LONGEST: usize = 1 << 15;
/// Bytes and messages in flight: as many as a receive buffer of usual size (208 KiB) holds, where
/// each message counts for several hundred bytes more than its length.
const UNDER_WAY: usize = 1 << 16;
const MESSAGES: usize = 64;

fn socket() -> Fallible<UdpSocket> {
    let socket = UdpSocket::bind(("127.0.0.1", 0))?;
    socket.set_read_timeout(Some(Duration::from_secs(20)))?;
    Ok(socket)
}

/// Messages after which the receiver speaks.
fn often(piece: usize) -> usize {
    (UNDER_WAY / piece).clamp(2, MESSAGES) / 2
}

/// Receives so many datagrams.
fn take(socket: &UdpSocket, count: usize, piece: usize) -> Fallible<()> {
    let mut bytes = vec![0; piece];
    for number in 1..=count {
        if socket.recv(&mut bytes)? != piece {
            return Err("a datagram of another length".into());
        }
        if number % often(piece) == 0 || number == count {
            socket.send(&[1])?;
        }
    }
    Ok(())
}

/// Sends so many datagrams. Returns bytes per second until the other side has them.
fn give(socket: &UdpSocket, count: usize, piece: usize) -> Fallible<f64> {
    let (bytes, often) = (vec![7; piece], often(piece));
    let mut unanswered = count.div_ceil(often);
    let start = Instant::now();
    for number in 1..=count {
        socket.send(&bytes)?;
        // One answer behind: the receiver never waits for us.
        if number % often == 0 && number > often {
            socket.recv(&mut [0])?;
            unanswered -= 1;
        }
    }
    for _ in 0..unanswered {
        socket.recv(&mut [0])?;
    }
    Ok((count * piece) as f64 / start.elapsed().as_secs_f64())
}

pub(crate) fn serve(plan: &Plan) -> Fallible<()> {
    let socket = socket()?;
    println!("{}", socket.local_addr()?);
    socket.connect(heard()?)?;
    println!("ready");
    let mut bytes = [0; SMALL];
    for _ in 0..plan.all_trips() {
        socket.recv(&mut bytes)?;
        socket.send(&bytes)?;
    }
    take(&socket, plan.messages, SMALL)?;
    let before = processor()?;
    for size in SIZES {
        let piece = size.min(LONGEST);
        take(&socket, plan.bytes / piece, piece)?;
    }
    println!("{}", processor()? - before);
    Ok(())
}

pub(crate) fn run(peer: &mut Peer, plan: &Plan) -> Fallible<Figures> {
    let socket = socket()?;
    socket.connect(peer.hear()?)?;
    peer.say(&socket.local_addr()?.to_string())?;
    peer.hear()?;
    let mut bytes = [0; SMALL];
    let mut figures = Figures::of_trips(plan, || {
        let start = Instant::now();
        socket.send(&bytes)?;
        socket.recv(&mut bytes)?;
        Ok(start.elapsed() / 2)
    })?;
    figures.rate = give(&socket, plan.messages, SMALL)? / SMALL as f64;
    let before = processor()?;
    for (bandwidth, size) in figures.bandwidth.iter_mut().zip(SIZES) {
        let piece = size.min(LONGEST);
        *bandwidth = give(&socket, plan.bytes / piece, piece)?;
    }
    figures.processor(processor()? - before + peer.hear()?.parse::<f64>()?, plan);
    Ok(figures)
}
