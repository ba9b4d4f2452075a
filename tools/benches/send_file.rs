//! Copies a file between two processes by `uverbs send-file` and `recv-file` on two software HCAs.
//! Compared with a copy through a TCP socket of the host, plain and with the same hash of all
//! bytes.
//!
//!     cargo bench -p uverbs-tools --bench send_file [-- MEBIBYTES]
//!
//! Default: 2048 MiB. Each copy is compared with the file, outside of the measured time, which is
//! from the start of the first process to the end of both.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use std::{env, error, process};

use sha2::{Digest, Sha256};

type Result<T> = std::result::Result<T, Box<dyn error::Error>>;

/// Bytes per read and write.
const PIECE: usize = 1 << 20;

fn main() -> Result<()> {
    let words: Vec<String> = env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["take", to, check] => take(Path::new(to), check == "check"),
        ["give", from, at, check] => give(Path::new(from), at, check == "check"),
        [] => compare(2048),
        [mebibytes] => compare(mebibytes.parse()?),
        _ => Err("arguments: [MEBIBYTES]".into()),
    }
}

fn compare(mebibytes: u64) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (file, copies) = (folder.path().join("file"), folder.path().join("copies"));
    fs::create_dir(&copies)?;
    fill(&file, mebibytes)?;
    let bytes = mebibytes << 20;
    let rate = |name: &str, seconds: f64| {
        let rate = bytes as f64 / seconds / 1e9;
        println!("{name:<40} {seconds:7.2} s  {rate:6.3} GB/s");
        rate
    };
    let mut times = Vec::new();
    for check in ["plain", "check"] {
        let to = copies.join(check);
        let at = Instant::now();
        tcp(&file, &to, check)?;
        times.push(at.elapsed().as_secs_f64());
        same(&file, &to)?;
    }
    let at = Instant::now();
    rdma(&file, &copies)?;
    let rdma = at.elapsed().as_secs_f64();
    same(&file, &copies.join("file"))?;
    println!("{mebibytes} MiB, from the page cache");
    let plain = rate("TCP", times[0]);
    let checked = rate("TCP, SHA-256 at both ends", times[1]);
    let sent = rate("send-file, SHA-256 at both ends", rdma);
    println!("ratio send_file_over_tcp {:.2}", sent / plain);
    println!("ratio send_file_over_checked_tcp {:.2}", sent / checked);
    Ok(())
}

/// Fills a file with bytes that do not repeat within a piece.
fn fill(file: &Path, mebibytes: u64) -> Result<()> {
    let mut to = File::create(file)?;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut piece = vec![0; PIECE];
    for _ in 0..mebibytes {
        for word in piece.chunks_exact_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        to.write_all(&piece)?;
    }
    Ok(to.sync_all()?)
}

/// Compares a copy with the file, and removes it.
fn same(file: &Path, copy: &Path) -> Result<()> {
    let (mut a, mut b) = (File::open(file)?, File::open(copy)?);
    let (mut left, mut right) = (vec![0; PIECE], vec![0; PIECE]);
    if a.metadata()?.len() != b.metadata()?.len() {
        return Err("the copy has another length".into());
    }
    for _ in 0..a.metadata()?.len() >> 20 {
        a.read_exact(&mut left)?;
        b.read_exact(&mut right)?;
        if left != right {
            return Err("the copy is another".into());
        }
    }
    Ok(fs::remove_file(copy)?)
}

fn tcp(file: &Path, to: &Path, check: &str) -> Result<()> {
    let me = env::current_exe()?;
    let mut taker =
        Command::new(&me).arg("take").arg(to).arg(check).stdout(Stdio::piped()).spawn()?;
    let mut at = String::new();
    BufReader::new(taker.stdout.take().ok_or("a pipe")?).read_line(&mut at)?;
    let giver = Command::new(&me).arg("give").arg(file).arg(at.trim()).arg(check).spawn()?;
    ended(giver)?;
    ended(taker)
}

fn rdma(file: &Path, folder: &Path) -> Result<()> {
    let [_, high, low, _] = process::id().to_be_bytes();
    let (there, here) = (format!("127.99.{high}.{low}"), format!("127.98.{high}.{low}"));
    let uverbs = || Command::new(env!("CARGO_BIN_EXE_uverbs"));
    let mut receiver = uverbs();
    receiver.args(["recv-file", "--timeout", "120", "-d", &format!("softhca@{there}")]);
    receiver.arg("--out").arg(folder).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut receiver = receiver.spawn()?;
    // The receiver prints its address when it listens.
    let mut said = BufReader::new(receiver.stderr.take().ok_or("a pipe")?);
    said.read_line(&mut String::new())?;
    let mut sender = uverbs();
    sender.arg("send-file").arg(file).args([&there, "--timeout", "120", "-d"]);
    sender.arg(format!("softhca@{here}")).stdout(Stdio::null()).stderr(Stdio::null());
    ended(sender.spawn()?)?;
    ended(receiver)
}

fn ended(mut child: Child) -> Result<()> {
    let status = child.wait()?;
    if status.success() { Ok(()) } else { Err(format!("a side ended with {status}").into()) }
}

/// Receiving process of the TCP copy: the file and, after it, the sender's hash.
fn take(to: &Path, check: bool) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    let (mut from, _) = listener.accept()?;
    let mut head = [0; 40];
    from.read_exact(&mut head)?;
    let (len, hash) = head.split_at(8);
    let mut left = u64::from_le_bytes(len.try_into()?);
    let (mut file, mut hasher, mut piece) = (File::create(to)?, Sha256::new(), vec![0; PIECE]);
    while left > 0 {
        let most = piece.len().min(usize::try_from(left)?);
        let count = from.read(&mut piece[..most])?;
        if count == 0 {
            return Err("the sender went".into());
        }
        file.write_all(&piece[..count])?;
        if check {
            hasher.update(&piece[..count]);
        }
        left -= count as u64;
    }
    if check && hasher.finalize()[..] != *hash {
        return Err("other bytes came".into());
    }
    Ok(from.write_all(b"!")?)
}

/// Sending process of the TCP copy. It announces length and hash like `send-file`.
fn give(from: &Path, at: &str, check: bool) -> Result<()> {
    let len = fs::metadata(from)?.len();
    let mut piece = vec![0; PIECE];
    let mut hash = vec![0; 32];
    if check {
        let (mut file, mut hasher) = (File::open(from)?, Sha256::new());
        loop {
            match file.read(&mut piece)? {
                0 => break,
                count => hasher.update(&piece[..count]),
            }
        }
        hash = hasher.finalize().to_vec();
    }
    let mut to = TcpStream::connect(at)?;
    to.write_all(&[&len.to_le_bytes()[..], &hash].concat())?;
    let mut file = File::open(from)?;
    loop {
        match file.read(&mut piece)? {
            0 => break,
            count => to.write_all(&piece[..count])?,
        }
    }
    Ok(to.read_exact(&mut [0])?)
}
