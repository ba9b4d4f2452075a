//! Third part of a check: wrong posts, whose errors a device must tell.

use std::time::Duration;

use uverbs::{
    AccessFlags, CompletionQueue, Context, ExposedMemory, Frame, Local, QueuePair, Slab, Status,
};

use super::Budget;
use super::report::Row;
use crate::base::error::Error;
use crate::base::select::{PortArgs, Two};

const PART: &str = "errors";

/// Time until an error must be told. Retries of ConnectX take up to a second.
const LIMIT: Duration = Duration::from_secs(20);

/// Status of a completion; `None` for a success.
type Told = uverbs::Result<Option<Status>>;

/// Two connected queue pairs, and memory of the second one.
struct Ends {
    client: QueuePair,
    server: QueuePair,
    cq: CompletionQueue,
    memory: ExposedMemory,
    slab: Slab,
    _contexts: [Context; 2],
}

impl Ends {
    fn new(devices: &Two, at: &PortArgs) -> Result<Self, uverbs::Error> {
        let (here, there) = (devices.client.open()?, devices.server.open()?);
        let (pd, cq) = (here.alloc_pd()?, here.create_cq(64)?);
        let (far_pd, far_cq) = (there.alloc_pd()?, there.create_cq(64)?);
        let small = here.queue_pair(&pd, &cq).max_send_wr(8).max_recv_wr(8);
        let mut client = small.build()?;
        let small = there.queue_pair(&far_pd, &far_cq).max_send_wr(8).max_recv_wr(8);
        let mut server = small.build()?;
        let local = Local {
            port: at.ib_port,
            gid_index: at.gid_index,
            access: AccessFlags::REMOTE_WRITE,
            rnr_retry: 1,
            ..Local::default()
        };
        let (near, far) = (client.prepare(&local)?, server.prepare(&local)?);
        client.connect(&far)?;
        server.connect(&near)?;
        let memory = far_pd.expose(4096, AccessFlags::REMOTE_WRITE)?;
        let slab = pd.slab(64, 2)?;
        Ok(Self { client, server, cq, memory, slab, _contexts: [here, there] })
    }

    /// Takes a frame and fills it. The slab has two; each attempt uses one.
    fn frame(&self) -> Frame {
        let mut frame = self.slab.take().expect("a frame is free");
        frame.set_len(64);
        frame
    }

    /// Status of the client's next completion.
    fn status(&mut self) -> Told {
        let told = self.cq.wait(LIMIT)?;
        Ok(told.result.err().map(|failure| failure.status))
    }
}

/// A row for each error.
pub(super) fn rows(devices: &Two, at: &PortArgs, budget: &Budget) -> Vec<Row> {
    let wrong_key = |ends: &mut Ends| -> Told {
        let frame = ends.frame();
        let mut to = ends.memory.remote(0);
        to.rkey ^= 0x5a00;
        ends.client.post_write(1, frame, to)?;
        ends.status()
    };
    let outside = |ends: &mut Ends| -> Told {
        let frame = ends.frame();
        let mut to = ends.memory.remote(0);
        to.addr += 4096 - 32;
        ends.client.post_write(1, frame, to)?;
        ends.status()
    };
    let no_receive = |ends: &mut Ends| -> Told {
        let frame = ends.frame();
        ends.client.post_send(1, frame)?;
        ends.status()
    };
    let short = |ends: &mut Ends| -> Told {
        let frame = ends.frame();
        let mut empty = ends.server.recv_batch();
        empty.post_empty(2)?;
        empty.ring();
        ends.client.post_send(1, frame)?;
        ends.status()
    };
    type Try<'a> = &'a dyn Fn(&mut Ends) -> Told;
    const ACCESS: &[Status] = &[Status::RemoteAccess];
    // IBTA 9.7.5.2 has an invalid request; soft-RoCE has an operational error.
    const LENGTH: &[Status] = &[Status::RemoteInvalidRequest, Status::RemoteOperation];
    let tries: [(&str, &[Status], Try<'_>); 4] = [
        ("wrong remote key", ACCESS, &wrong_key),
        ("write past the memory", ACCESS, &outside),
        ("no receive at the peer", &[Status::RnrRetryExceeded], &no_receive),
        ("receive without room", LENGTH, &short),
    ];
    tries
        .into_iter()
        .map(|(name, wanted, run)| row(name, wanted, run, devices, at, budget))
        .collect()
}

fn row(
    name: &str,
    wanted: &[Status],
    run: &dyn Fn(&mut Ends) -> Told,
    devices: &Two,
    at: &PortArgs,
    budget: &Budget,
) -> Row {
    if let Some(why) = budget.bars(devices) {
        return Row::untried(PART, name, why);
    }
    match Ends::new(devices, at).and_then(|mut ends| run(&mut ends)) {
        Ok(Some(status)) if wanted.contains(&status) => Row::good(PART, name, status.to_string()),
        Ok(Some(status)) => Row::failed(PART, name, format!("{status}, and not: {}", wanted[0])),
        Ok(None) => Row::failed(PART, name, format!("it succeeded, and not: {}", wanted[0])),
        Err(error) => Row::of_error(PART, name, &Error::Verb(error)),
    }
}
