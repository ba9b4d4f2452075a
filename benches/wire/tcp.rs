//! TCP over loopback, without delay: a call of the sender for each message.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::{Fallible, Figures, Peer, Plan, SIZES, SMALL, processor};

fn tuned(stream: TcpStream) -> Fallible<TcpStream> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    Ok(stream)
}

/// Reads so many bytes, and confirms them with one byte.
fn take(stream: &mut TcpStream, mut left: usize, piece: usize) -> Fallible<()> {
    let mut bytes = vec![0; piece.max(1 << 16)];
    while left > 0 {
        match stream.read(&mut bytes)? {
            0 => return Err("the other process has gone".into()),
            count => left = left.saturating_sub(count),
        }
    }
    Ok(stream.write_all(&[1])?)
}

/// Sends so many bytes in pieces. Returns bytes per second until the other side has them.
fn give(stream: &mut TcpStream, count: usize, piece: usize) -> Fallible<f64> {
    let bytes = vec![7; piece];
    let start = Instant::now();
    for _ in 0..count {
        stream.write_all(&bytes)?;
    }
    stream.read_exact(&mut [0])?;
    Ok((count * piece) as f64 / start.elapsed().as_secs_f64())
}

pub(crate) fn serve(plan: &Plan) -> Fallible<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    println!("{}", listener.local_addr()?);
    let mut stream = tuned(listener.accept()?.0)?;
    let mut bytes = [0; SMALL];
    for _ in 0..plan.all_trips() {
        stream.read_exact(&mut bytes)?;
        stream.write_all(&bytes)?;
    }
    take(&mut stream, plan.messages * SMALL, SMALL)?;
    let before = processor()?;
    for size in SIZES {
        take(&mut stream, plan.bytes / size * size, size)?;
    }
    println!("{}", processor()? - before);
    Ok(())
}

pub(crate) fn run(peer: &mut Peer, plan: &Plan) -> Fallible<Figures> {
    let mut stream = tuned(TcpStream::connect(peer.hear()?)?)?;
    let mut bytes = [0; SMALL];
    let mut figures = Figures::of_trips(plan, || {
        let start = Instant::now();
        stream.write_all(&bytes)?;
        stream.read_exact(&mut bytes)?;
        Ok(start.elapsed() / 2)
    })?;
    figures.rate = give(&mut stream, plan.messages, SMALL)? / SMALL as f64;
    let before = processor()?;
    for (bandwidth, size) in figures.bandwidth.iter_mut().zip(SIZES) {
        *bandwidth = give(&mut stream, plan.bytes / size, size)?;
    }
    figures.processor(processor()? - before + peer.hear()?.parse::<f64>()?, plan);
    Ok(figures)
}
