//! The ping-pong over a TCP connection on loopback: two threads, blocking calls, no delay.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::SIZE;
use crate::soft::IDLE;
use crate::system::Spread;

fn connection() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    for end in [&client, &server] {
        end.set_nodelay(true)?;
        end.set_read_timeout(Some(Duration::from_secs(20)))?;
    }
    Ok((client, server))
}

/// Half of each round trip of a ping-pong.
pub(crate) fn half_trips(trips: usize) -> io::Result<Spread> {
    let (mut client, mut server) = connection()?;
    let warm = trips / 10;
    let echo = thread::spawn(move || -> io::Result<()> {
        let mut bytes = [0; SIZE];
        for _ in 0..warm + trips {
            server.read_exact(&mut bytes)?;
            server.write_all(&bytes)?;
        }
        Ok(())
    });
    let mut bytes = [0; SIZE];
    let mut times = Vec::with_capacity(trips);
    for trip in 0..warm + trips {
        let start = Instant::now();
        client.write_all(&bytes)?;
        client.read_exact(&mut bytes)?;
        if trip >= warm {
            times.push(start.elapsed() / 2);
        }
    }
    echo.join().expect("the echoing thread")?;
    Ok(Spread::of(times))
}

/// Messages per second one way, a call of the sender for each.
pub(crate) fn rate(messages: usize) -> io::Result<f64> {
    let (mut client, mut server) = connection()?;
    let start = Instant::now();
    let sink = thread::spawn(move || -> io::Result<()> {
        let mut bytes = vec![0; 1 << 16];
        let mut left = messages * SIZE;
        while left > 0 {
            left -= server.read(&mut bytes)?;
        }
        Ok(())
    });
    for _ in 0..messages {
        client.write_all(&[0; SIZE])?;
    }
    sink.join().expect("the reading thread")?;
    Ok(messages as f64 / start.elapsed().as_secs_f64())
}

/// From the call that sends to the return of the call that receives, each behind an idle time.
pub(crate) fn wakes(count: usize) -> io::Result<Spread> {
    let (mut client, mut server) = connection()?;
    let sink = thread::spawn(move || -> io::Result<Vec<Instant>> {
        let mut bytes = [0; SIZE];
        let mut when = Vec::with_capacity(count);
        for _ in 0..count {
            server.read_exact(&mut bytes)?;
            when.push(Instant::now());
        }
        Ok(when)
    });
    let mut starts = Vec::with_capacity(count);
    for _ in 0..count {
        thread::sleep(IDLE);
        starts.push(Instant::now());
        client.write_all(&[0; SIZE])?;
    }
    let ends = sink.join().expect("the reading thread")?;
    Ok(Spread::of(ends.into_iter().zip(starts).map(|(end, start)| end - start).collect()))
}
