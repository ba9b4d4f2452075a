//! Tasks that wait: each wakes for its own event, a dropped wait loses none, and no task runs
//! without an event.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};
use uverbs::event::{AsyncElement, AsyncEventKind};
use uverbs::softhca::SoftHca;
use uverbs::{Context, Device, Error, Local, ProtectionDomain, QueuePair, Slab};
use uverbs_tokio::{Channel, Completions, Events};

/// No wait in a test is longer.
const LIMIT: Duration = Duration::from_secs(20);

/// A queue pair that is connected to itself.
struct Loop {
    qp: QueuePair,
    completions: Completions,
    slab: Slab,
}

impl Loop {
    fn new(context: &Context, pd: &ProtectionDomain, channel: &Channel) -> Self {
        let cq = context.completion_queue(64).channel(channel.inner()).build().unwrap();
        let mut qp = context.queue_pair(pd, &cq).max_send_wr(16).max_recv_wr(16).build().unwrap();
        qp.prepare(&Local::default()).unwrap();
        qp.connect_to_self().unwrap();
        let slab = pd.slab(64, 16).unwrap();
        Self { qp, completions: channel.completions(cq).unwrap(), slab }
    }

    fn message(&mut self, id: u64) {
        self.qp.post_recv(2 * id, self.slab.take().unwrap()).unwrap();
        self.qp.post_send_inline(2 * id + 1, b"x").unwrap();
    }

    async fn next(&mut self) -> u64 {
        let done = timeout(LIMIT, self.completions.next()).await.expect("in time").unwrap();
        done.result.unwrap();
        done.id
    }

    /// Numbers of the two completions of a message, lower first.
    async fn both(&mut self) -> [u64; 2] {
        let mut ids = [self.next().await, self.next().await];
        ids.sort_unstable();
        ids
    }
}

fn open(hca: &SoftHca) -> (Context, ProtectionDomain) {
    let context = Device::from(hca.clone()).open().unwrap();
    let pd = context.alloc_pd().unwrap();
    (context, pd)
}

fn hca() -> SoftHca {
    SoftHca::builder().build().unwrap()
}

fn one_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn tasks_on_one_channel_wake_each_for_its_queue() {
    const TASKS: u64 = 8;
    const ROUNDS: u64 = 100;
    for threads in [1, 3] {
        let runtime = Builder::new_multi_thread().worker_threads(threads).enable_all().build();
        runtime.unwrap().block_on(async {
            let (context, pd) = open(&hca());
            let channel = Channel::new(&context).unwrap();
            let tasks: Vec<_> = (0..TASKS)
                .map(|_| {
                    let mut one = Loop::new(&context, &pd, &channel);
                    tokio::spawn(async move {
                        for round in 0..ROUNDS {
                            one.message(round);
                            assert_eq!(one.both().await, [2 * round, 2 * round + 1]);
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
    }
}

#[test]
fn a_wait_that_is_dropped_loses_nothing() {
    one_thread().block_on(async {
        let (context, pd) = open(&hca());
        let channel = Channel::new(&context).unwrap();
        let mut one = Loop::new(&context, &pd, &channel);
        let mut other = Loop::new(&context, &pd, &channel);
        for round in 0..100 {
            // Dropped while it is armed and asleep, with or without a completion.
            let early = timeout(Duration::from_millis(round % 3), one.completions.next()).await;
            assert!(early.is_err(), "nothing was sent");
            one.message(round);
            other.message(round);
            let taken = timeout(Duration::from_micros(100 * round), one.completions.next()).await;
            let mut ids: Vec<_> = taken.into_iter().map(|done| done.unwrap().id).collect();
            // Reads the file for both.
            assert_eq!(other.both().await, [2 * round, 2 * round + 1]);
            while ids.len() < 2 {
                ids.push(one.next().await);
            }
            ids.sort_unstable();
            assert_eq!(ids, [2 * round, 2 * round + 1]);
        }
        assert!(timeout(Duration::from_millis(20), one.completions.next()).await.is_err());
    });
}

#[test]
fn a_server_of_eight_sleeps_while_nothing_comes() {
    const CONNECTIONS: u64 = 8;
    let usage = || {
        let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
        let micros = [usage.user_time(), usage.system_time()]
            .map(|time| time.tv_sec() * 1_000_000 + time.tv_usec());
        (usage.voluntary_context_switches(), micros[0] + micros[1])
    };
    one_thread().block_on(async {
        let (context, pd) = open(&hca());
        let channel = Channel::new(&context).unwrap();
        let mut tasks: Vec<_> = (0..CONNECTIONS)
            .map(|_| {
                let mut one = Loop::new(&context, &pd, &channel);
                tokio::spawn(async move {
                    one.completions.next().await.map(drop).unwrap_err();
                })
            })
            .collect();
        sleep(Duration::from_millis(50)).await;
        let before = usage();
        sleep(Duration::from_millis(500)).await;
        let after = usage();
        let (switches, micros) = (after.0 - before.0, after.1 - before.1);
        // One sleep for the timer, and some that tokio's clock may need.
        assert!(switches <= 10, "{switches} sleeps");
        assert!(micros <= 50_000, "{micros} us of processor time in 500000 of waiting");
        for task in &mut tasks {
            task.abort();
        }
    });
}

#[test]
fn a_device_that_goes_wakes_every_task_after_what_came_before() {
    one_thread().block_on(async {
        let hca = hca();
        let (context, pd) = open(&hca);
        let channel = Channel::new(&context).unwrap();
        let events = Events::new(&context).unwrap();
        let mut one = Loop::new(&context, &pd, &channel);
        let mut other = Loop::new(&context, &pd, &channel);
        one.message(0);
        let idle = tokio::spawn(async move { other.completions.next().await.map(drop) });
        let first = one.next().await;
        let both_came = async {
            while hca.stats().cqes < 2 {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(LIMIT, both_came).await.expect("a second completion");
        // The task waits by now.
        sleep(Duration::from_millis(20)).await;
        hca.unplug();
        let gone = timeout(LIMIT, idle).await.expect("woken").unwrap().unwrap_err();
        assert!(matches!(gone, Error::DeviceGone { .. }), "{gone:?}");
        assert_eq!(one.next().await, 1 - first);
        let gone = timeout(LIMIT, one.completions.next()).await.expect("woken").unwrap_err();
        assert!(matches!(gone, Error::DeviceGone { .. }), "{gone:?}");
        let event = timeout(LIMIT, events.next()).await.expect("an event").unwrap();
        assert_eq!(
            (event.kind, event.element),
            (AsyncEventKind::DeviceFatal, AsyncElement::Device)
        );
    });
}

#[test]
fn events_come_to_the_task_that_waits() {
    one_thread().block_on(async {
        let hca = hca();
        let (context, _pd) = open(&hca);
        let events = Events::new(&context).unwrap();
        let early = timeout(Duration::from_millis(10), events.next()).await;
        assert!(early.is_err(), "nothing happened");
        let link = async {
            sleep(Duration::from_millis(10)).await;
            hca.link_down();
            hca.link_up();
        };
        let kinds = async {
            let [one, two] = [events.next().await.unwrap(), events.next().await.unwrap()];
            assert_eq!(one.element, AsyncElement::Port(1));
            [one.kind, two.kind]
        };
        let (kinds, ()) = timeout(LIMIT, async { tokio::join!(kinds, link) }).await.unwrap();
        assert_eq!(kinds, [AsyncEventKind::PortError, AsyncEventKind::PortActive]);
        // A file is watched once.
        let error = Events::new(&context).unwrap_err();
        assert!(matches!(error, Error::System { .. }), "{error:?}");
    });
}

#[test]
fn a_queue_of_another_channel_is_refused() {
    one_thread().block_on(async {
        let (context, _pd) = open(&hca());
        let [one, other] = [Channel::new(&context).unwrap(), Channel::new(&context).unwrap()];
        let mute = context.create_cq(16).unwrap();
        let cq = context.completion_queue(16).channel(other.inner()).build().unwrap();
        for (cq, expected) in [(mute, "reports to no channel"), (cq, "reports to another channel")]
        {
            let error = one.completions(cq).unwrap_err();
            let Error::Invalid { verb, what, value, .. } = &error else { panic!("{error:?}") };
            assert_eq!((*verb, *what, &**value), ("completions", "completion queue", expected));
        }
        let cq = context.completion_queue(16).channel(one.inner()).build().unwrap();
        let mut completions = one.completions(cq).unwrap();
        assert_eq!(completions.fill(&mut []).await, Ok(0));
        assert!(completions.queue().channel().is_some());
        let _ = one.inner().as_fd();
    });
}

/// A task waits for the queue that it has, also after programs swapped it.
#[test]
fn a_queue_that_was_swapped_in_wakes_its_task() {
    one_thread().block_on(async {
        let (context, pd) = open(&hca());
        let channel = Channel::new(&context).unwrap();
        let mut one = Loop::new(&context, &pd, &channel);
        let mut other = Loop::new(&context, &pd, &channel);
        std::mem::swap(one.completions.queue(), other.completions.queue());
        std::mem::swap(&mut one.qp, &mut other.qp);
        for it in [&mut one, &mut other] {
            it.message(1);
            assert_eq!(it.both().await, [2, 3]);
        }
        // The end of one ends no wait of the other.
        drop(other);
        let woken = async {
            sleep(Duration::from_millis(20)).await;
            one.qp.post_recv(8, one.slab.take().unwrap()).unwrap();
            one.qp.post_send_inline(9, b"x").unwrap();
        };
        let (done, ()) = tokio::join!(timeout(LIMIT, one.completions.next()), woken);
        done.expect("in time").unwrap().result.unwrap();
        // A queue that reports elsewhere is refused.
        let mut foreign = context.completion_queue(64).build().unwrap();
        std::mem::swap(one.completions.queue(), &mut foreign);
        let told = timeout(LIMIT, one.completions.next()).await.expect("in time").unwrap_err();
        assert!(matches!(told, Error::Invalid { verb: "completions", .. }), "{told}");
    });
}
