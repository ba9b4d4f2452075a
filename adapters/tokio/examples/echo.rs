//! A server of eight connections and their clients, each a task, on one thread: the server sends
//! back each message. No task polls while no message arrives.
//!
//! `cargo run -p uverbs-tokio --example echo [DEVICE]`

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use uverbs::{Context, Error, Local, ProtectionDomain, QueuePair, Slab};
use uverbs_tokio::{Channel, Completions, Events};

const CONNECTIONS: usize = 8;
const ROUNDS: u64 = 100;

/// One end of a connection.
struct End {
    qp: QueuePair,
    completions: Completions,
    slab: Slab,
}

impl End {
    fn new(context: &Context, pd: &ProtectionDomain, channel: &Channel) -> Result<Self, Error> {
        let cq = context.completion_queue(64).channel(channel.inner()).build()?;
        let qp = context.queue_pair(pd, &cq).max_send_wr(16).max_recv_wr(16).build()?;
        Ok(Self { qp, completions: channel.completions(cq)?, slab: pd.slab(64, 16)? })
    }

    /// The next message; completions of sends give their frames back on the way.
    async fn receive(&mut self) -> Result<Vec<u8>, Error> {
        loop {
            let done = self.completions.next().await?;
            done.result?;
            if let (true, Some(frame)) = (done.is_recv, done.frame) {
                let message = frame.to_vec();
                self.qp.post_recv(0, frame)?;
                return Ok(message);
            }
        }
    }

    async fn serve(mut self) -> Result<(), Error> {
        for _ in 0..ROUNDS {
            let message = self.receive().await?;
            self.qp.post_send_inline(0, &message)?;
        }
        // The last answer is in flight until its send completes.
        while self.completions.next().await?.is_recv {}
        Ok(())
    }

    async fn call(mut self, name: usize) -> Result<Duration, Error> {
        let started = Instant::now();
        for round in 0..ROUNDS {
            let question = format!("{name}: {round}");
            self.qp.post_send_inline(0, question.as_bytes())?;
            assert_eq!(self.receive().await?, question.as_bytes());
        }
        Ok(started.elapsed())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let device = match std::env::args().nth(1) {
        Some(name) => uverbs::device(&name)?,
        None => uverbs::device_or_softhca()?,
    };
    let context = device.open()?;
    let pd = context.alloc_pd()?;
    // One file for all queues, one for the device's asynchronous events.
    let channel = Channel::new(&context)?;
    let events = Events::new(&context)?;
    println!("{CONNECTIONS} connections on {}", device.name());

    let mut servers = JoinSet::new();
    let mut clients = JoinSet::new();
    for name in 0..CONNECTIONS {
        let mut ends = [End::new(&context, &pd, &channel)?, End::new(&context, &pd, &channel)?];
        let mut addresses = Vec::new();
        for end in &mut ends {
            addresses.push(end.qp.prepare(&Local::default())?);
            end.qp.post_recv(0, end.slab.take().expect("it is new"))?;
        }
        for (end, peer) in ends.iter_mut().zip(addresses.iter().rev()) {
            end.qp.connect(peer)?;
        }
        let [server, client] = ends;
        servers.spawn(server.serve());
        clients.spawn(client.call(name));
    }
    loop {
        tokio::select! {
            event = events.next() => println!("{}", event?),
            done = clients.join_next() => match done {
                Some(time) => {
                    let time = time.expect("no client panics")?;
                    println!("{ROUNDS} questions answered, {:.1?} each", time / ROUNDS as u32);
                }
                None => break,
            },
        }
    }
    for served in servers.join_all().await {
        served?;
    }
    Ok(())
}
