//! `uverbs multicast`: sends datagrams to a group, and receives from it.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::Serialize;
use uverbs::cm::{EventChannel, EventKind, Id, JoinedGroup, Lookup, Membership, PortSpace};
use uverbs::multicast::MulticastMembership;
use uverbs::transport::Ud;
use uverbs::{Any, CompletionQueue, Destination, GRH_LEN, ProtectionDomain, QueuePair};

use crate::base::error::Error;
use crate::base::interrupt;
use crate::base::output;
use crate::base::units::parse_size;
use crate::link::meet::ByArgs;

/// Number of posted receives.
const RECEIVES: u32 = 64;
/// Longest delay of Ctrl-C.
const LOOK: Duration = Duration::from_millis(100);

/// Join a multicast group, and receive what is sent there, or send.
///
/// The group is an IPv4 address on RoCE v2, 224.0.0.0 to 239.255.255.255. rdma-core's mckey may be
/// another member: its datagrams are SENDs with immediate data, as those here are.
///
/// A receiver ends after so many datagrams, after Ctrl-C, or when none came for --timeout.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES:\n  \
    uverbs multicast 239.1.2.3\n  \
    uverbs multicast 239.1.2.3 --send --iters 5\n\n\
WITH mckey:\n  \
    mckey -m 239.1.2.3 -C 10\n  \
    uverbs multicast 239.1.2.3 --send\n\n\
EXIT STATUS:\n  \
    0  as many datagrams as were asked for, or Ctrl-C\n  \
    1  fewer, or the group could not be joined\n  \
    2  bad arguments")]
pub(crate) struct Args {
    /// The group
    group: IpAddr,

    /// Join as a sender only, without the group's datagrams
    #[arg(long)]
    send: bool,

    /// Local name or address, which selects the device [default: by the route to the group]
    #[arg(long, value_name = "HOST")]
    bind: Option<String>,

    /// Bytes of a datagram to send [default: 100]
    #[arg(short, long, value_name = "BYTES", value_parser = parse_size)]
    size: Option<u64>,

    /// Number of datagrams [default: 10]
    #[arg(short = 'n', long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1 << 31))]
    iters: Option<u64>,

    #[command(flatten)]
    by: ByArgs,

    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    group: String,
    /// Number of datagrams, sent or received.
    datagrams: u64,
    bytes: u64,
}

/// A member of the group.
struct Member {
    qp: QueuePair<Any, Ud>,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    to: Destination,
    // Dropped in this order: detached, then left, then the id destroyed.
    attached: Option<MulticastMembership>,
    _joined: JoinedGroup,
    _id: Id,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    if !args.group.is_multicast() {
        let why = "it is no multicast address".to_owned();
        return Err(Error::Argument { option: "GROUP", value: args.group.to_string(), why });
    }
    let wanted = args.iters.unwrap_or(10);
    let mut member = Member::join(args)?;
    let (datagrams, bytes) = if args.send {
        member.send(args.size.unwrap_or(100), wanted)?
    } else {
        member.receive(wanted, args.by.timeout)?
    };
    drop(member.attached.take());
    let report = Report { group: args.group.to_string(), datagrams, bytes };
    if args.json {
        return output::json(&report);
    }
    let done = if args.send { "sent to" } else { "received from" };
    output::print(&format!("{datagrams} datagrams, {bytes} bytes, {done} {}\n", args.group))
}

/// Local address of this name, of the group's address family.
fn own(host: &str, group: IpAddr) -> Result<SocketAddr, Error> {
    let lookup = Lookup::new().passive().space(PortSpace::Udp);
    let lookup = if group.is_ipv4() { lookup.ipv4() } else { lookup.ipv6() };
    let refuse = |why: String| Error::Argument { option: "--bind", value: host.to_owned(), why };
    let found = lookup.find(Some(host), None).map_err(|error| refuse(error.to_string()))?;
    let first = found.into_iter().find_map(|info| info.own);
    first.ok_or_else(|| refuse("it has no address".to_owned()))
}

impl Member {
    fn join(args: &Args) -> Result<Self, Error> {
        let channel = args.by.channel()?;
        let limit = args.by.timeout;
        let id = channel.create_id(PortSpace::Udp)?;
        let from = args.bind.as_deref().map(|host| own(host, args.group)).transpose()?;
        id.resolve_addr(from, (args.group, 0).into(), limit)?;
        expect(&channel, limit, EventKind::AddressResolved)?;
        let context = id.device()?.open()?;
        let (pd, completions) = (context.alloc_pd()?, context.create_comp_channel()?);
        let cq = context.completion_queue(2 * RECEIVES).channel(&completions).build()?;
        let qp = context.queue_pair(&pd, &cq).ud().max_send_wr(16).max_recv_wr(RECEIVES);
        let mut qp = qp.build()?;
        id.bring_up_datagrams(&mut qp)?;
        let mtu = context.query_port(id.port()?)?.active_mtu.bytes().unwrap_or(1024);
        if args.size.is_some_and(|size| size > mtu.into()) {
            let why = format!("a datagram is one packet, and the port's MTU is {mtu} bytes");
            let value = args.size.unwrap_or(0).to_string();
            return Err(Error::Argument { option: "--size", value, why });
        }
        if !args.send {
            let slab = pd.slab(GRH_LEN + mtu as usize, RECEIVES as usize)?;
            while let Some(frame) = slab.take() {
                qp.post_recv(0, frame).map_err(uverbs::Error::from)?;
            }
        }
        let how = if args.send { Membership::SendOnly } else { Membership::Full };
        let joined = id.join_multicast(args.group, how)?;
        let details = expect(&channel, limit, EventKind::MulticastJoined)?.datagram();
        let attached = match args.send {
            true => None,
            false => Some(qp.attach(&details.group())?),
        };
        let to = context.create_ah(&pd, &details.ah)?.to(details.qpn, details.qkey);
        output::complain(&format!("joined {}", args.group));
        Ok(Self { qp, cq, pd, to, attached, _joined: joined, _id: id })
    }

    fn send(&mut self, size: u64, count: u64) -> Result<(u64, u64), Error> {
        let slab = self.pd.slab(size as usize, 1)?;
        let qpn = self.qp.qpn();
        for iteration in 0..count {
            // The previous completion returned it.
            let Some(mut frame) = slab.take() else { break };
            frame.fill(iteration as u8);
            let mut batch = self.qp.batch();
            batch.send_imm_to(iteration, frame, qpn, &self.to).map_err(uverbs::Error::from)?;
            batch.ring();
            let done = self.cq.wait(LOOK * 100)?;
            let what = || "the datagram".to_owned();
            done.result.map_err(|failure| Error::Completion {
                iteration,
                what: what(),
                failure,
            })?;
        }
        Ok((count, count * size))
    }

    fn receive(&mut self, count: u64, limit: Duration) -> Result<(u64, u64), Error> {
        let stop = interrupt::watch()?;
        let (mut got, mut bytes) = (0, 0);
        let mut last = Instant::now();
        while got < count && !stop.load(Ordering::Relaxed) {
            let done = match self.cq.wait(LOOK) {
                Ok(done) => done,
                Err(uverbs::Error::TimedOut { .. }) if last.elapsed() < limit => continue,
                Err(uverbs::Error::TimedOut { .. }) => {
                    let waited = last.elapsed();
                    let what = "a datagram";
                    return Err(Error::Silence { iteration: got, what, waited });
                }
                Err(error) => return Err(error.into()),
            };
            let what = || "a receive".to_owned();
            done.result.map_err(|failure| Error::Completion {
                iteration: got,
                what: what(),
                failure,
            })?;
            (got, last) = (got + 1, Instant::now());
            bytes += u64::from(done.byte_len).saturating_sub(GRH_LEN as u64);
            if let Some(frame) = done.frame {
                self.qp.post_recv(0, frame).map_err(uverbs::Error::from)?;
            }
        }
        Ok((got, bytes))
    }
}

fn expect(
    channel: &EventChannel,
    limit: Duration,
    kind: EventKind,
) -> Result<uverbs::cm::Event, Error> {
    Ok(channel.next(limit)?.expect(kind)?)
}
