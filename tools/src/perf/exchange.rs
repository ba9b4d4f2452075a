//! How two processes find each other: lines of text over TCP, and a limit on every wait.
//!
//! Both send one line that says what they are about to measure, and go on only if it is the same. Then the client says, a line
//! for each queue pair, where its own are, the server answers likewise, and both say `ready`. During the run there is a sign of life
//! twice a second, and at the end `done`, or `failed` and why.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use uverbs::{Endpoint, Remote};

use super::options::Shape;
use super::side::Hand;
use crate::error::Error;
use crate::pingpong::verify::Who;

/// What the first line begins with. The number changes when the lines do.
const MAGIC: &str = "uverbs-perf";
const VERSION: &str = "1";
/// Bytes of a line. An endpoint has 150.
const LINE: usize = 512;
/// Time between two signs of life.
const BEAT: Duration = Duration::from_millis(500);
/// No wait for a sign of life is shorter, whatever is asked for.
const SILENCE_MIN: Duration = Duration::from_secs(2);
/// Time between two looks at whether the user has had enough.
const LOOK: Duration = Duration::from_millis(100);
/// Lines that are looked at before something else has its turn: eight seconds of signs of life.
const HEARD: usize = 16;
/// What bringing up a queue pair may take the peer.
const PER_QP: Duration = Duration::from_millis(10);

/// A server that waits for its client.
#[derive(Debug)]
pub(super) struct Listener {
    listener: TcpListener,
}

/// The connection to the other process.
#[derive(Debug)]
pub(super) struct Control {
    stream: TcpStream,
    /// What was read and is no whole line yet, or not looked at.
    pending: Vec<u8>,
    peer: Who,
    limit: Duration,
    heard: Instant,
    beaten: Instant,
}

/// How a side ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    /// Messages that it sent, in the measured time.
    pub(super) messages: u64,
    pub(super) ns: u64,
    /// Messages that it sent in all.
    pub(super) posted: u64,
    /// Its user had had enough.
    pub(super) interrupted: bool,
}

impl Done {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("done ")?.split(' ').map(|word| word.parse::<u64>().ok());
        let [messages, ns, posted, interrupted] = std::array::from_fn(|_| words.next().flatten());
        let interrupted = match interrupted? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let done = Self { messages: messages?, ns: ns?, posted: posted?, interrupted };
        words.next().is_none().then_some(done)
    }
}

impl Listener {
    /// Listens on all addresses; port 0 takes a free one.
    pub(super) fn bind(port: u16) -> Result<Self, Error> {
        // A kernel without IPv6 has no `::`; one with it hears IPv4 there, too.
        let listener =
            TcpListener::bind(("::", port)).or_else(|_| TcpListener::bind(("0.0.0.0", port)));
        let listener = listener
            .map_err(|error| Error::Peer(format!("listening on TCP port {port}: {error}")))?;
        let plain = listener.set_nonblocking(true);
        plain.map_err(|error| Error::Peer(format!("listening on TCP port {port}: {error}")))?;
        Ok(Self { listener })
    }

    pub(super) fn port(&self) -> u16 {
        self.listener.local_addr().map_or(0, |address| address.port())
    }

    /// The first client that comes within `wait`.
    pub(super) fn accept(
        self,
        wait: Duration,
        limit: Duration,
        stop: &AtomicBool,
    ) -> Result<Control, Error> {
        let started = Instant::now();
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => return Control::new(stream, Who::Client, limit),
                Err(error) if again(error.kind()) => {}
                Err(error) => return Err(Error::Peer(format!("waiting for a client: {error}"))),
            }
            let left = wait.checked_sub(started.elapsed());
            let Some(left) = left.filter(|left| !left.is_zero()) else {
                let port = self.port();
                let waited = wait.as_secs_f64();
                let what = format!("no client came to TCP port {port} within {waited} s (--wait)");
                return Err(Error::Peer(what));
            };
            pause(&self.listener, PollFlags::POLLIN, left, stop)?;
        }
    }
}

/// Waits for a file to become ready, for [`LOOK`] at most.
fn pause(
    file: &impl AsFd,
    events: PollFlags,
    left: Duration,
    stop: &AtomicBool,
) -> Result<(), Error> {
    check(stop)?;
    let mut files = [PollFd::new(file.as_fd(), events)];
    let time = left.min(LOOK).as_millis().max(1) as u16;
    match poll(&mut files, PollTimeout::from(time)) {
        Ok(_) | Err(nix::Error::EINTR) => Ok(()),
        Err(errno) => {
            Err(Error::System { what: "poll", errno: uverbs::Errno::from_raw(errno as i32) })
        }
    }
}

/// An error if the user has had enough.
fn check(stop: &AtomicBool) -> Result<(), Error> {
    match stop.load(Ordering::Relaxed) {
        true => Err(Error::Peer("interrupted".to_owned())),
        false => Ok(()),
    }
}

fn again(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

impl Control {
    /// Connects to a server.
    pub(super) fn connect(host: &str, port: u16, limit: Duration) -> Result<Self, Error> {
        let failed = |error| Error::Peer(format!("{host}, TCP port {port}: {error}"));
        let mut last = None;
        for address in (host, port).to_socket_addrs().map_err(failed)? {
            match TcpStream::connect_timeout(&address, limit) {
                Ok(stream) => return Self::new(stream, Who::Server, limit),
                Err(error) => last = Some(error),
            }
        }
        Err(match last {
            Some(error) if error.kind() == ErrorKind::ConnectionRefused => Error::Peer(format!(
                "{host}, TCP port {port}: nobody listens there; start `uverbs perf ... --server` there first"
            )),
            Some(error) => failed(error),
            None => Error::Peer(format!("{host}: a name without an address")),
        })
    }

    pub(super) fn new(stream: TcpStream, peer: Who, limit: Duration) -> Result<Self, Error> {
        let plain = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
        plain.map_err(|error| Error::Peer(format!("the connection to the {peer}: {error}")))?;
        let now = Instant::now();
        Ok(Self { stream, pending: Vec::new(), peer, limit, heard: now, beaten: now })
    }

    /// Both sides say what they measure. What differs is an error on both, with the option's name.
    pub(super) fn agree(
        &mut self,
        shape: &Shape,
        size: u32,
        stop: &AtomicBool,
    ) -> Result<(), Error> {
        let deadline = Instant::now() + self.limit;
        let own = terms(shape, size);
        let line = own.iter().fold(format!("{MAGIC} {VERSION}"), |mut line, (name, value)| {
            let _ = write!(line, " {name}={value}");
            line
        });
        self.send(&line, deadline, stop)?;
        let line = self.line(deadline, stop)?;
        let mut words = line.split(' ');
        if words.next() != Some(MAGIC) {
            return Err(self.nonsense(&line));
        }
        let version = words.next().unwrap_or("");
        if version != VERSION {
            let peer = self.peer;
            return Err(Error::Peer(format!(
                "the {peer} is another version of `uverbs perf`: it speaks {}, this one {VERSION}",
                quoted(version)
            )));
        }
        let theirs: Vec<(&str, &str)> =
            words.map(|word| word.split_once('=').unwrap_or((word, ""))).collect();
        let mut differs = Vec::new();
        for (name, value) in &own {
            let theirs = theirs.iter().find(|(their, _)| their == name);
            let theirs = theirs.map_or("nothing", |(_, value)| value);
            if theirs != value {
                differs.push(format!("{name} {value} here and {} there", plain(theirs)));
            }
        }
        for (name, _) in theirs.iter().filter(|(name, _)| own.iter().all(|(ours, _)| ours != name))
        {
            differs.push(format!("{} there only", plain(name)));
        }
        if differs.is_empty() {
            return Ok(());
        }
        let peer = self.peer;
        Err(Error::Peer(format!("the {peer} measures something else: {}", differs.join(", "))))
    }

    /// Both sides say where their queue pairs are.
    pub(super) fn swap(&mut self, own: &[Hand], stop: &AtomicBool) -> Result<Vec<Hand>, Error> {
        let deadline =
            Instant::now() + self.limit + PER_QP * u32::try_from(own.len()).unwrap_or(u32::MAX);
        // One after the other: together they might fill both buffers, and neither would read.
        if self.peer == Who::Server {
            self.send_hands(own, deadline, stop)?;
            return self.read_hands(own.len(), deadline, stop);
        }
        let theirs = self.read_hands(own.len(), deadline, stop)?;
        self.send_hands(own, deadline, stop)?;
        Ok(theirs)
    }

    fn send_hands(
        &mut self,
        own: &[Hand],
        deadline: Instant,
        stop: &AtomicBool,
    ) -> Result<(), Error> {
        for (at, hand) in own.iter().enumerate() {
            self.send(&hand_text(at, hand), deadline, stop)?;
        }
        Ok(())
    }

    fn read_hands(
        &mut self,
        count: usize,
        deadline: Instant,
        stop: &AtomicBool,
    ) -> Result<Vec<Hand>, Error> {
        let mut hands = Vec::with_capacity(count);
        for at in 0..count {
            let line = self.line(deadline, stop)?;
            match parse_hand(at, &line) {
                Ok(hand) => hands.push(hand),
                Err(why) => {
                    let peer = self.peer;
                    let line = quoted(&line);
                    return Err(Error::Peer(format!(
                        "the {peer}'s queue pair {at}: {why}: {line}"
                    )));
                }
            }
        }
        Ok(hands)
    }

    /// Says that this side can be sent to, and waits until the other one can.
    pub(super) fn ready(&mut self, qps: u32, stop: &AtomicBool) -> Result<(), Error> {
        let deadline = Instant::now() + self.limit + PER_QP * qps;
        self.send("ready", deadline, stop)?;
        let line = self.line(deadline, stop)?;
        if line == "ready" {
            return Ok(());
        }
        Err(self.failure(&line).unwrap_or_else(|| self.nonsense(&line)))
    }

    /// Says that this side has sent all that it will.
    pub(super) fn done(&mut self, done: Done, stop: &AtomicBool) -> Result<(), Error> {
        let Done { messages, ns, posted, interrupted } = done;
        let line = format!("done {messages} {ns} {posted} {}", u8::from(interrupted));
        self.send(&line, Instant::now() + self.limit, stop)
    }

    /// Says why this side gives up. The peer may be gone: nobody wants to know then.
    pub(super) fn give_up(&mut self, error: &Error) {
        let text = plain(&error.to_string()).replace('\n', " ");
        let never = AtomicBool::new(false);
        let deadline = Instant::now() + Duration::from_secs(1);
        let _ = self.send(&format!("failed {text}"), deadline, &never);
    }

    /// A sign of life, if one is due. Never waits.
    pub(super) fn beat(&mut self) -> Result<(), Error> {
        if self.beaten.elapsed() < BEAT {
            return Ok(());
        }
        self.beaten = Instant::now();
        match self.stream.write(b"alive\n") {
            // Part of a line would be nonsense to the peer; six bytes go as a whole, or the buffer is full and it hears enough.
            Ok(_) => Ok(()),
            Err(error) if again(error.kind()) => Ok(()),
            Err(error) => Err(self.broken(&error)),
        }
    }

    /// What the peer said meanwhile. Never waits; a peer that says nothing for too long is an error.
    pub(super) fn hear(&mut self) -> Result<Option<Done>, Error> {
        let mut read = false;
        // One read and so many lines: a peer that never stops talking must not keep this one.
        for _ in 0..HEARD {
            let Some(line) = self.take_line()? else {
                if !read && self.fill()? {
                    read = true;
                    continue;
                }
                break;
            };
            self.heard = Instant::now();
            if line == "alive" {
                continue;
            }
            return match Done::parse(&line) {
                Some(done) => Ok(Some(done)),
                None => Err(self.failure(&line).unwrap_or_else(|| self.nonsense(&line))),
            };
        }
        let limit = self.limit.max(SILENCE_MIN);
        if self.heard.elapsed() > limit { Err(self.silent(limit)) } else { Ok(None) }
    }

    /// Waits until the peer is done, and shows signs of life meanwhile.
    pub(super) fn wait_done(&mut self, stop: &AtomicBool) -> Result<Done, Error> {
        loop {
            if let Some(done) = self.hear()? {
                return Ok(done);
            }
            self.beat()?;
            pause(&self.stream, PollFlags::POLLIN, LOOK, stop)?;
        }
    }

    /// The silence begins now: what came before was not the peer's turn.
    pub(super) fn start(&mut self) {
        self.heard = Instant::now();
    }

    fn send(&mut self, line: &str, deadline: Instant, stop: &AtomicBool) -> Result<(), Error> {
        let text = format!("{line}\n");
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(sent) => rest = &rest[sent..],
                Err(error) if again(error.kind()) => {
                    let left = self.left(deadline)?;
                    pause(&self.stream, PollFlags::POLLOUT, left, stop)?;
                }
                Err(error) => return Err(self.broken(&error)),
            }
        }
        Ok(())
    }

    fn line(&mut self, deadline: Instant, stop: &AtomicBool) -> Result<String, Error> {
        loop {
            if let Some(line) = self.take_line()? {
                match self.failure(&line) {
                    Some(error) => return Err(error),
                    // It may go on with this for ever, and there would always be something to read.
                    None if line == "alive" => {
                        check(stop)?;
                        if Instant::now() >= deadline {
                            return Err(self.only_alive());
                        }
                    }
                    None => return Ok(line),
                }
            } else if !self.fill()? {
                let left = self.left(deadline)?;
                pause(&self.stream, PollFlags::POLLIN, left, stop)?;
            }
        }
    }

    fn take_line(&mut self) -> Result<Option<String>, Error> {
        let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') else {
            if self.pending.len() > LINE {
                return Err(self.nonsense(&String::from_utf8_lossy(&self.pending)));
            }
            return Ok(None);
        };
        let line: Vec<u8> = self.pending.drain(..=end).collect();
        if line.len() > LINE {
            return Err(self.nonsense(&String::from_utf8_lossy(&line)));
        }
        Ok(Some(String::from_utf8_lossy(&line[..end]).into_owned()))
    }

    /// Reads what there is. False if there is nothing.
    fn fill(&mut self) -> Result<bool, Error> {
        let mut bytes = [0; 4096];
        match self.stream.read(&mut bytes) {
            Ok(0) => {
                let peer = self.peer;
                Err(Error::Peer(format!("the {peer} closed the connection before it was done")))
            }
            Ok(count) => {
                self.pending.extend_from_slice(&bytes[..count]);
                Ok(true)
            }
            Err(error) if again(error.kind()) => Ok(false),
            Err(error) => Err(self.broken(&error)),
        }
    }

    fn left(&self, deadline: Instant) -> Result<Duration, Error> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(self.silent(self.limit)) } else { Ok(left) }
    }

    #[cold]
    fn silent(&self, limit: Duration) -> Error {
        let seconds = limit.as_secs_f64();
        Error::Peer(format!("the {} said nothing for {seconds} s (--timeout)", self.peer))
    }

    #[cold]
    fn only_alive(&self) -> Error {
        let (peer, seconds) = (self.peer, self.limit.as_secs_f64());
        Error::Peer(format!("the {peer} said only that it lives for {seconds} s (--timeout)"))
    }

    #[cold]
    fn broken(&self, error: &std::io::Error) -> Error {
        Error::Peer(format!("the connection to the {}: {error}", self.peer))
    }

    fn failure(&self, line: &str) -> Option<Error> {
        let why = line.strip_prefix("failed ")?;
        Some(Error::Peer(format!("the {} failed: {}", self.peer, plain(why))))
    }

    #[cold]
    fn nonsense(&self, line: &str) -> Error {
        let line = quoted(line);
        Error::Peer(format!("the {} doesn't speak as `uverbs perf` does: {line}", self.peer))
    }
}

/// What both sides must have in common, by the options' names.
fn terms(shape: &Shape, size: u32) -> Vec<(&'static str, String)> {
    vec![
        ("operation", shape.op.to_string()),
        ("test", shape.test.to_string()),
        ("--size", size.to_string()),
        ("--qps", shape.qps.to_string()),
        ("--bidirectional", shape.bidirectional.to_string()),
        ("--check", shape.check.to_string()),
    ]
}

fn hand_text(at: usize, hand: &Hand) -> String {
    let Hand { endpoint, memory: Remote { addr, rkey } } = hand;
    format!("qp {at} addr={addr:#x} rkey={rkey:#x} {endpoint}")
}

fn parse_hand(at: usize, line: &str) -> Result<Hand, String> {
    let rest = line.strip_prefix("qp ").and_then(|rest| rest.split_once(' '));
    let Some((number, rest)) = rest else { return Err("no `qp` and its number".to_owned()) };
    if number != at.to_string() {
        return Err(format!("it has another number, {}", quoted(number)));
    }
    let hex = |name: &str| {
        let word = rest.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix("=0x"));
        word.and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .ok_or_else(|| format!("no hexadecimal {name}"))
    };
    let rkey =
        u32::try_from(hex("rkey")?).map_err(|_| "an rkey of more than 32 bits".to_owned())?;
    let endpoint: Endpoint = rest.parse().map_err(|error| format!("{error}"))?;
    Ok(Hand { endpoint, memory: Remote { addr: hex("addr")?, rkey } })
}

/// What a stranger sent, so that it can be shown: short, and nothing that moves a cursor.
fn plain(text: &str) -> String {
    let short: String = text.chars().take(200).collect();
    short.escape_debug().to_string()
}

fn quoted(text: &str) -> String {
    let short: String = text.chars().take(40).collect();
    let dots = if short.len() < text.len() { "..." } else { "" };
    format!("{short:?}{dots}")
}

#[cfg(test)]
mod tests {
    use std::thread;

    use clap::Parser;
    use proptest::prelude::*;
    use uverbs::{Gid, Mtu};

    use super::super::options::{Family, Options};
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    static NEVER: AtomicBool = AtomicBool::new(false);

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        options: Options,
    }

    fn shape(args: &str) -> Shape {
        let words = std::iter::once("perf").chain(args.split(' '));
        Only::parse_from(words).options.plan(Family::Write).unwrap().shape
    }

    fn hand(number: u32) -> Hand {
        let endpoint = Endpoint {
            lid: 0,
            qpn: number,
            psn: 7,
            mtu: Mtu::Mtu1024,
            rd_atomic: 4,
            gid: Some(Gid([9; 16])),
        };
        Hand { endpoint, memory: Remote { addr: 0xdead_beef_0000, rkey: number } }
    }

    /// A server, and what a client does with its address.
    fn with<T: Send>(
        limit: Duration,
        client: impl FnOnce(TcpStream) -> T + Send,
        server: impl FnOnce(Control),
    ) -> T {
        let listener = Listener::bind(0).unwrap();
        let port = listener.port();
        thread::scope(|scope| {
            let client =
                scope.spawn(move || client(TcpStream::connect(("127.0.0.1", port)).unwrap()));
            server(listener.accept(10 * SECOND, limit, &NEVER).unwrap());
            client.join().unwrap()
        })
    }

    fn client(stream: TcpStream) -> Control {
        Control::new(stream, Who::Server, 10 * SECOND).unwrap()
    }

    /// What the server says to a peer that sends this and then nothing, or closes.
    fn told(sends: &[u8], closes: bool) -> String {
        let shape = shape("bw -s 64");
        let mut said = String::new();
        let started = Instant::now();
        let stay = |mut stream: TcpStream| {
            // The server may have closed by now, having heard enough.
            let _ = stream.write_all(sends);
            if !closes {
                return Some(stream);
            }
            None
        };
        let kept = with(SECOND / 2, stay, |mut control| {
            let met = control
                .agree(&shape, 64, &NEVER)
                .and_then(|()| control.swap(&[hand(1)], &NEVER))
                .and_then(|_| control.ready(1, &NEVER))
                .and_then(|()| control.wait_done(&NEVER));
            said = met.unwrap_err().to_string();
        });
        drop(kept);
        assert!(started.elapsed() < 10 * SECOND, "{said}");
        assert!(!said.contains('\n') && said.chars().all(|c| !c.is_control()), "{said:?}");
        said
    }

    const HELLO: &str = "uverbs-perf 1 operation=write test=bw --size=64 --qps=1 --bidirectional=false --check=false\n";

    #[test]
    fn two_that_agree_meet_and_part() {
        let shape = shape("bw -q 300");
        let of = |from: u32| (from..from + 300).map(hand).collect::<Vec<_>>();
        let both = |control: &mut Control, own: &[Hand]| {
            control.agree(&shape, 64, &NEVER).unwrap();
            let theirs = control.swap(own, &NEVER).unwrap();
            control.ready(300, &NEVER).unwrap();
            theirs
        };
        let (sent, back) =
            (Done { messages: 5, ns: 6, posted: 7, interrupted: true }, Done::default());
        let said = with(
            10 * SECOND,
            |stream| {
                let mut control = client(stream);
                let theirs = both(&mut control, &of(1));
                control.beaten -= SECOND;
                control.beat().unwrap();
                control.done(sent, &NEVER).unwrap();
                (theirs, control.wait_done(&NEVER).unwrap())
            },
            |mut control| {
                assert_eq!(both(&mut control, &of(1000)), of(1));
                assert_eq!(control.wait_done(&NEVER).unwrap(), sent);
                control.done(back, &NEVER).unwrap();
            },
        );
        assert_eq!(said, (of(1000), back));
    }

    #[test]
    fn what_differs_is_named_on_both_sides() {
        let says = with(
            SECOND,
            |stream| client(stream).agree(&shape("lat --check"), 64, &NEVER).unwrap_err(),
            |mut control| {
                let error = control.agree(&shape("bw"), 4096, &NEVER).unwrap_err();
                assert_eq!(
                    error.to_string(),
                    "the client measures something else: test bw here and lat there, --size 4096 here and 64 there, \
                     --check false here and true there"
                );
            },
        );
        assert!(says.to_string().starts_with("the server measures something else: test lat here"));
    }

    #[test]
    fn strangers_are_one_line_within_the_limit() {
        let far = format!("{HELLO}qp 1 addr=0x1 rkey=0x1 lid=0\n");
        let big = format!("{HELLO}qp 0 addr=0x1 rkey=0x100000000 lid=0\n");
        let no_gid =
            format!("{HELLO}qp 0 addr=0x1 rkey=0x1 lid=0 qpn=1 psn=1 mtu=1024 rd_atomic=1\n");
        let met = format!("{HELLO}{}\n", hand_text(0, &hand(3)));
        let late = format!("{met}ready\n");
        let long = vec![b'x'; 1 << 20];
        for (sends, closes, says) in [
            (&b""[..], false, "the client said nothing for 0.5 s (--timeout)"),
            (b"", true, "the client closed the connection before it was done"),
            (
                b"GET / HTTP/1.1\r\n\r\n",
                false,
                "doesn't speak as `uverbs perf` does: \"GET / HTTP/1.1\\r\"",
            ),
            (b"\x1b[2J\xff\0\n", false, "doesn't speak as `uverbs perf` does: \"\\u{1b}[2J"),
            (&long, false, "doesn't speak as `uverbs perf` does: \"xxxxx"),
            (b"uverbs-perf 1 operation=wri", false, "said nothing for 0.5 s"),
            (b"uverbs-perf 2 operation=write\n", false, "it speaks \"2\", this one 1"),
            (b"uverbs-perf 1\n", false, "operation write here and nothing there"),
            (b"failed no\x1b[2J memory\n", false, "the client failed: no\\u{1b}[2J memory"),
            (HELLO.as_bytes(), false, "said nothing for 0.5 s"),
            (HELLO.as_bytes(), true, "closed the connection before it was done"),
            (far.as_bytes(), false, "queue pair 0: it has another number, \"1\""),
            (big.as_bytes(), false, "queue pair 0: an rkey of more than 32 bits"),
            (no_gid.as_bytes(), false, "queue pair 0: the endpoint's text has no gid"),
            (met.as_bytes(), false, "said nothing for 0.5 s"),
            (late.as_bytes(), true, "closed the connection before it was done"),
            (late.as_bytes(), false, "the client said nothing for 2 s (--timeout)"),
        ] {
            let told = told(sends, closes);
            // A reset connection is as closed as any, if the other end had not read all.
            let closed = closes && told.contains("the connection to the client");
            assert!(told.contains(says) || closed, "{:?}: {told}", String::from_utf8_lossy(sends));
        }
    }

    #[test]
    fn one_that_speaks_a_byte_at_a_time_has_a_limit_too() {
        let slow = |mut stream: TcpStream| {
            for byte in HELLO.bytes() {
                if stream.write_all(&[byte]).is_err() {
                    return;
                }
                thread::sleep(SECOND / 20);
            }
        };
        with(SECOND / 2, slow, |mut control| {
            let started = Instant::now();
            let error = control.agree(&shape("bw -s 64"), 64, &NEVER).unwrap_err().to_string();
            assert!(error.contains("said nothing for 0.5 s"), "{error}");
            assert!(started.elapsed() < 2 * SECOND);
        });
    }

    /// What `server` makes of a client that says that it lives, and nothing else, as fast as it can.
    fn against_a_chatterer(server: impl FnOnce(Control)) {
        let over = AtomicBool::new(false);
        let chatter = |mut stream: TcpStream| {
            let text = b"alive\n".repeat(4096);
            let started = Instant::now();
            while stream.write_all(&text).is_ok() {
                // Ends a server that would listen for ever, so that the test fails and doesn't hang.
                if started.elapsed() > 10 * SECOND {
                    over.store(true, Ordering::Relaxed);
                    return;
                }
            }
        };
        with(SECOND / 2, chatter, |control| {
            // There is something to be read from now on.
            thread::sleep(SECOND / 5);
            server(control);
            assert!(!over.load(Ordering::Relaxed), "it listened until the client gave up");
        });
    }

    #[test]
    fn one_that_never_stops_talking_has_a_limit_too() {
        against_a_chatterer(|mut control| {
            let error = control.ready(1, &NEVER).unwrap_err().to_string();
            assert_eq!(error, "the client said only that it lives for 0.5 s (--timeout)");
        });
    }

    #[test]
    fn one_that_never_stops_talking_can_be_left() {
        let stop = AtomicBool::new(true);
        against_a_chatterer(|mut control| {
            assert_eq!(control.hear().unwrap(), None);
            assert_eq!(control.wait_done(&stop).unwrap_err().to_string(), "interrupted");
            assert_eq!(control.ready(1, &stop).unwrap_err().to_string(), "interrupted");
        });
    }

    #[test]
    fn a_server_without_a_client_ends() {
        let listener = Listener::bind(0).unwrap();
        let port = listener.port();
        let started = Instant::now();
        let error = listener.accept(SECOND / 4, SECOND, &NEVER).unwrap_err().to_string();
        assert_eq!(error, format!("no client came to TCP port {port} within 0.25 s (--wait)"));
        assert!((SECOND / 4..5 * SECOND).contains(&started.elapsed()));
        let stopped = AtomicBool::new(true);
        let listener = Listener::bind(0).unwrap();
        let error = listener.accept(60 * SECOND, SECOND, &stopped).unwrap_err().to_string();
        assert_eq!(error, "interrupted");
    }

    #[test]
    fn a_client_without_a_server_is_told_what_to_do() {
        let free = Listener::bind(0).unwrap().port();
        let error = Control::connect("127.0.0.1", free, SECOND).unwrap_err().to_string();
        assert!(error.contains("nobody listens there; start `uverbs perf"), "{error}");
        assert!(Control::connect("no.such.host.invalid", free, SECOND).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn hands_survive_their_text(qpn in 0u32..1 << 24, psn in 0u32..1 << 24, addr: u64, rkey: u32, at in 0usize..1 << 16) {
            let hand = Hand {
                endpoint: Endpoint { qpn, psn, ..hand(0).endpoint },
                memory: Remote { addr, rkey },
            };
            prop_assert_eq!(parse_hand(at, &hand_text(at, &hand)), Ok(hand));
        }

        #[test]
        fn any_line_is_something_or_an_error(line in "(qp 0 |done |uverbs-perf 1 )?.{0,80}") {
            let _ = parse_hand(0, &line);
            let _ = Done::parse(&line);
        }
    }
}
