//! The reliable-connection example of the RDMA-aware programming guide: both sides tell each other
//! over TCP where they are; then the server sends, and the client reads and writes its memory.
//!
//!     cargo run --example rc_tcp                        both, each in a thread
//!     cargo run --example rc_tcp server ADDRESS:PORT    one terminal
//!     cargo run --example rc_tcp client HOST:PORT       another one

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

use common::{End, Outcome, PATIENCE, Table, open_to_all, shown};
use uverbs::{Context, Endpoint, ExposedMemory, Remote};

const LEN: usize = 20;

/// A step, its actor, the completion, and the bytes then.
type Seen = (u32, &'static str, String, String);

fn main() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let context = uverbs::device_or_softhca()?.open()?;
    let mut seen = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let (address, there) = (listener.local_addr()?, context.clone());
            let server = thread::spawn(move || server(&there, listener.accept()?.0));
            let mut seen = client(&context, TcpStream::connect(address)?)?;
            seen.extend(server.join().map_err(|_| "the server panicked")??);
            seen
        }
        ["server", at] => {
            let listener = TcpListener::bind(at)?;
            println!("listening at {}", listener.local_addr()?);
            server(&context, listener.accept()?.0)?
        }
        ["client", address] => client(&context, TcpStream::connect(address)?)?,
        _ => return Err("usage: rc_tcp [server ADDRESS:PORT | client HOST:PORT]".into()),
    };
    seen.sort();
    let mut table = Table::new("step | side | completion | bytes");
    seen.iter().for_each(|(step, side, what, bytes)| table.row(&[step, side, what, bytes]));
    table.print();
    Ok(())
}

fn server(context: &Context, stream: TcpStream) -> Outcome<Vec<Seen>> {
    let mut side = Side::new(context, stream)?;
    let frame = side.end.frame(b"SEND operation")?;
    side.end.qp.post_send(1, frame)?;
    let sent = side.done(1, "server")?;
    side.memory.write(0, b"RDMA read operation ")?;
    side.tell("read")?;
    // The client reads and writes meanwhile; this side only waits for its message.
    side.hear("written")?;
    let mut bytes = [0; LEN];
    side.memory.read(0, &mut bytes)?;
    Ok(vec![sent, (4, "server", "none".to_owned(), shown(&bytes))])
}

fn client(context: &Context, stream: TcpStream) -> Outcome<Vec<Seen>> {
    let mut side = Side::new(context, stream)?;
    let received = side.done(1, "client")?;
    side.hear("read")?;
    let frame = side.end.frame(&[0; LEN])?;
    side.end.qp.post_read(2, frame, side.there)?;
    let read = side.done(2, "client")?;
    let frame = side.end.frame(b"RDMA write operation")?;
    side.end.qp.post_write(3, frame, side.there)?;
    let written = side.done(3, "client")?;
    side.tell("written")?;
    Ok(vec![received, read, written])
}

/// One side: its queue pair and memory, where the other side's is, and the way to talk.
struct Side {
    end: End,
    memory: ExposedMemory,
    there: Remote,
    tcp: BufReader<TcpStream>,
}

impl Side {
    /// Exchanges endpoints and memory with the other side, and connects.
    fn new(context: &Context, stream: TcpStream) -> Outcome<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut end = End::new(context)?;
        let memory = end.pd.expose(LEN, open_to_all().access)?;
        let (there, tcp) = (memory.remote(0), BufReader::new(stream));
        let here = end.qp.prepare(&open_to_all())?;
        // Before the other side can send.
        end.qp.post_recv(0, end.frame(&[0; LEN])?)?;
        let mut side = Self { end, memory, there, tcp };
        side.tell(&format!("{here} addr={} rkey={}", there.addr, there.rkey))?;
        let heard = side.hear("")?;
        side.end.qp.connect(&heard.parse::<Endpoint>()?)?;
        let number = |name| heard.split(' ').find_map(|word| word.strip_prefix(name)).unwrap_or("");
        side.there = Remote { addr: number("addr=").parse()?, rkey: number("rkey=").parse()? };
        side.tell("connected")?;
        side.hear("connected")?;
        Ok(side)
    }

    fn tell(&mut self, line: &str) -> Outcome {
        Ok(writeln!(self.tcp.get_mut(), "{line}")?)
    }

    /// The next line, which begins so.
    fn hear(&mut self, begin: &str) -> Outcome<String> {
        let mut line = String::new();
        self.tcp.read_line(&mut line)?;
        let line = line.trim_end().to_owned();
        let other = format!("the other side said {line:?} instead of {begin:?}");
        if line.starts_with(begin) { Ok(line) } else { Err(other.into()) }
    }

    fn done(&mut self, step: u32, side: &'static str) -> Outcome<Seen> {
        let done = self.end.done()?;
        let bytes = done.frame.ok_or("each was posted with a frame")?.to_vec();
        Ok((step, side, format!("{:?}", done.result?), shown(&bytes)))
    }
}
