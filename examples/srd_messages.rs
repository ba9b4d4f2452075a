//! Messages of SRD, on Elastic Fabric Adapters: two sides tell each other over TCP where they are;
//! the client sends messages that arrive in any order, and writes to the server's memory.
//!
//!     cargo run --example srd_messages                        both, each in a thread
//!     cargo run --example srd_messages server ADDRESS:PORT    one side
//!     cargo run --example srd_messages client HOST:PORT       the other side
//!
//! On a machine without an adapter, each process has a software one.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

use common::{Outcome, PATIENCE, Table, shown};
use uverbs::transport::Srd;
use uverbs::{
    AccessFlags, Completed, CompletionQueue, Context, DatagramEndpoint, Destination, Device, Efa,
    ExposedMemory, Local, ProtectionDomain, QueuePair, Remote, Wr,
};
use uverbs_softefa::SoftEfa;

const MESSAGES: u64 = 8;
/// Bytes of a message: its number, then text.
const LEN: usize = 32;
/// `RDMA_DRIVER_EFA`.
const DRIVER: u32 = 17;

/// A message: its number, whose it is, and its bytes.
type Seen = (u64, &'static str, String);

fn main() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let found = uverbs::devices()?.into_iter().find(|device| device.record().driver_id == DRIVER);
    let device = match found {
        Some(device) => device,
        None => Device::from_source(Arc::new(software()?)),
    };
    let context = device.open_as::<Efa>()?;
    let seen = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let (address, there) = (listener.local_addr()?, context.clone());
            let server = thread::spawn(move || server(&there, listener.accept()?.0));
            client(&context, TcpStream::connect(address)?)?;
            server.join().map_err(|_| "the server panicked")??
        }
        ["server", at] => {
            let listener = TcpListener::bind(at)?;
            println!("listening at {}", listener.local_addr()?);
            server(&context, listener.accept()?.0)?
        }
        ["client", address] => client(&context, TcpStream::connect(address)?)?,
        _ => return Err("usage: srd_messages [server ADDRESS:PORT | client HOST:PORT]".into()),
    };
    let mut table = Table::new("message | operation | bytes");
    seen.iter().for_each(|(number, what, bytes)| table.row(&[number, what, bytes]));
    table.print();
    Ok(())
}

/// The software adapter that this user's other processes on this host reach.
fn software() -> Outcome<SoftEfa> {
    Ok(SoftEfa::embedded("softefa").ok_or("no such name")??)
}

/// Receives all messages, and puts them in order by the numbers in them. The WRITE with immediate
/// data is told by its own completion: a message behind it may arrive before its data.
fn server(context: &Context<Efa>, stream: TcpStream) -> Outcome<Vec<Seen>> {
    let mut side = Side::new(context, stream)?;
    let mut seen = Vec::new();
    for _ in 0..=MESSAGES {
        let done = side.cq.wait(PATIENCE)?;
        if done.result? == Completed::RecvWriteImm {
            let mut bytes = [0; LEN];
            side.memory.read(0, &mut bytes)?;
            let number = u64::from(done.immediate.unwrap_or_default());
            let written = bytes.get(..done.byte_len as usize).unwrap_or_default();
            seen.push((number, "WRITE", shown(written)));
            continue;
        }
        let frame = done.frame.ok_or("a receive without its frame")?;
        let (number, text) = frame.split_at(size_of::<u64>());
        seen.push((u64::from_le_bytes(number.try_into()?), "SEND", shown(text)));
    }
    seen.sort();
    side.tell("received")?;
    Ok(seen)
}

fn client(context: &Context<Efa>, stream: TcpStream) -> Outcome<Vec<Seen>> {
    let mut side = Side::new(context, stream)?;
    let slab = side.pd.slab(LEN, 1)?;
    let mut frame = slab.take().ok_or("no free frame")?;
    frame.set_len(20);
    frame.copy_from_slice(b"RDMA write operation");
    let (to, there) = (&side.to, side.there);
    let mut batch = side.qp.batch();
    batch.write_imm_to(MESSAGES, frame, (there, MESSAGES as u32), to)?;
    for number in 0..MESSAGES {
        let message = [&number.to_le_bytes()[..], format!("message {number}").as_bytes()].concat();
        batch.send_inline_to(Wr::new(number), &message, to)?;
    }
    batch.ring();
    for _ in 0..=MESSAGES {
        side.cq.wait(PATIENCE)?.result?;
    }
    side.hear("received")?;
    Ok(Vec::new())
}

/// One side: its queue pair and memory, the other side's, and the way to talk.
struct Side {
    qp: QueuePair<Efa, Srd>,
    cq: CompletionQueue<Efa>,
    pd: ProtectionDomain,
    memory: ExposedMemory,
    to: Destination<Efa>,
    there: Remote,
    tcp: BufReader<TcpStream>,
}

impl Side {
    /// Exchanges GID, queue pair number, Q_Key and memory with the other side.
    fn new(context: &Context<Efa>, stream: TcpStream) -> Outcome<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(64)?);
        let builder = context.queue_pair(&pd, &cq).srd().max_inline_data(32);
        let mut qp = builder.max_send_wr(16).max_recv_wr(16).build()?;
        let here = qp.bring_up(&Local { qkey: std::process::id(), ..Local::default() })?;
        let memory = pd.expose(LEN, AccessFlags::REMOTE_WRITE)?;
        let Remote { addr, rkey } = memory.remote(0);
        let slab = pd.slab(LEN, MESSAGES as usize + 1)?;
        while let Some(frame) = slab.take() {
            qp.post_recv(0, frame)?;
        }
        let mut tcp = BufReader::new(stream);
        writeln!(tcp.get_mut(), "{here} addr={addr} rkey={rkey}")?;
        let heard = line(&mut tcp)?;
        let to = qp.destination(&heard.parse::<DatagramEndpoint>()?)?;
        let number = |name| heard.split(' ').find_map(|word| word.strip_prefix(name)).unwrap_or("");
        let there = Remote { addr: number("addr=").parse()?, rkey: number("rkey=").parse()? };
        let mut side = Self { qp, cq, pd, memory, to, there, tcp };
        // A WRITE needs an address handle at the target, too.
        side.tell("ready")?;
        side.hear("ready")?;
        Ok(side)
    }

    fn tell(&mut self, line: &str) -> Outcome {
        Ok(writeln!(self.tcp.get_mut(), "{line}")?)
    }

    /// The next line, which is this one.
    fn hear(&mut self, expected: &str) -> Outcome {
        let line = line(&mut self.tcp)?;
        let other = format!("the other side said {line:?} instead of {expected:?}");
        if line == expected { Ok(()) } else { Err(other.into()) }
    }
}

fn line(tcp: &mut BufReader<TcpStream>) -> Outcome<String> {
    let mut line = String::new();
    tcp.read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}
