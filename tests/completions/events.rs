//! Completion channels: an armed CQ sends an event, a wait sleeps, and a destroyed CQ sends no
//! event.
#![allow(unsafe_code, reason = "puts another file under a channel's descriptor")]

use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use common::{LIMIT, device, local, only_on_softhca, pattern, soft};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{UsageWho, getrusage};
use uverbs::softhca::SoftHca;
use uverbs::{
    AccessFlags, CompletionChannel, CompletionQueue, Context, Device, Errno, Error, Notify,
    ProtectionDomain, QueuePair, Slab, Wr,
};

/// Long enough for a completion to arrive.
const PAUSE: Duration = Duration::from_millis(100);

/// A queue pair that is connected to itself, and whose receives complete on a queue with a channel.
struct Loop {
    qp: QueuePair,
    sent: CompletionQueue,
    received: CompletionQueue,
    slab: Slab,
}

impl Loop {
    fn new(context: &Context, pd: &ProtectionDomain, channel: &CompletionChannel) -> Self {
        let sent = context.create_cq(64).unwrap();
        let received = context.completion_queue(64).channel(channel).build().unwrap();
        Self::of(context, pd, sent, received)
    }

    fn of(
        context: &Context,
        pd: &ProtectionDomain,
        sent: CompletionQueue,
        received: CompletionQueue,
    ) -> Self {
        let builder = context.queue_pair(pd, &sent).recv_cq(&received);
        let mut qp = builder.max_send_wr(16).max_recv_wr(16).build().unwrap();
        qp.prepare(&local()).unwrap();
        qp.connect_to_self().unwrap();
        let slab = pd.slab(64, 16).unwrap();
        Self { qp, sent, received, slab }
    }

    fn expect(&mut self, id: u64) {
        self.qp.post_recv(id, self.slab.take().unwrap()).unwrap();
    }

    /// Sends to itself; returns when it has arrived, since it is acknowledged.
    fn send(&mut self, wr: Wr) {
        let mut batch = self.qp.batch();
        batch.send_inline(wr, b"x").unwrap();
        batch.ring();
        self.sent.wait(LIMIT).unwrap().result.unwrap();
    }

    /// A message that has arrived and is not polled.
    fn message(&mut self, id: u64) {
        self.expect(id);
        self.send(Wr::new(id));
    }

    /// The numbers of all that has arrived.
    fn poll(&mut self) -> Vec<u64> {
        let mut ids = Vec::new();
        self.received.poll_with(64, |completion| ids.push(completion.id()));
        ids
    }
}

fn open() -> (Context, ProtectionDomain, CompletionChannel) {
    open_on(&device())
}

fn open_on(device: &Device) -> (Context, ProtectionDomain, CompletionChannel) {
    let context = device.open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let channel = context.create_comp_channel().unwrap();
    (context, pd, channel)
}

/// True if the channel becomes readable within `limit`.
fn readable(channel: &CompletionChannel, limit: Duration) -> bool {
    let timeout = PollTimeout::try_from(limit).unwrap();
    poll(&mut [PollFd::new(channel.as_fd(), PollFlags::POLLIN)], timeout).unwrap() != 0
}

#[test]
fn an_event_names_its_queue_and_comes_once() {
    let (context, pd, channel) = open();
    let mut loops: Vec<_> = (0..3).map(|_| Loop::new(&context, &pd, &channel)).collect();
    loops[0].message(1);
    assert!(!readable(&channel, PAUSE), "no event unless armed");
    assert_eq!(channel.try_next(), Ok(None));
    assert_eq!(loops[0].poll(), [1]);
    for round in 0..9 {
        let which = round % 3;
        for one in &mut loops {
            one.received.arm(Notify::Any).unwrap();
        }
        loops[which].message(round as u64);
        assert!(readable(&channel, LIMIT));
        let event = channel.next_within(LIMIT).unwrap();
        let named: Vec<_> = loops.iter().map(|one| event.is_of(&one.received)).collect();
        assert_eq!(named, [0, 1, 2].map(|index| index == which), "round {round}");
        assert_eq!(event.cq, loops[which].received.event_id());
        // It was armed once.
        loops[which].message(100);
        assert!(!readable(&channel, PAUSE), "one event an arm");
        assert_eq!(loops[which].poll(), [round as u64, 100]);
    }
}

#[test]
fn armed_for_solicited_it_lets_the_others_pass() {
    let (context, pd, channel) = open();
    let mut one = Loop::new(&context, &pd, &channel);
    one.received.arm(Notify::Solicited).unwrap();
    one.message(1);
    assert!(!readable(&channel, PAUSE), "nobody asked for an event");
    one.expect(2);
    one.send(Wr::new(2).solicited());
    assert!(channel.next_within(LIMIT).unwrap().is_of(&one.received));
    assert_eq!(one.poll(), [1, 2]);
    if common::not_on_rxe("its kernel flushes receives without calling them solicited") {
        return;
    }
    // A receive that fails counts as solicited (IBTA vol 1, 11.4.2.2).
    one.received.arm(Notify::Solicited).unwrap();
    one.expect(3);
    one.qp.fail().unwrap();
    assert!(channel.next_within(LIMIT).unwrap().is_of(&one.received));
}

#[test]
fn what_came_before_it_was_armed_is_not_slept_through() {
    let (context, pd, channel) = open();
    let mut one = Loop::new(&context, &pd, &channel);
    for round in 0..50 {
        one.message(round);
        // Not polled: `wait` finds it, or is woken for it.
        if round % 2 == 0 {
            one.received.arm(Notify::Any).unwrap();
        }
        assert_eq!(one.received.wait(LIMIT).unwrap().id, round);
    }
    let limit = Duration::from_millis(50);
    let started = Instant::now();
    assert!(matches!(one.received.wait(limit), Err(Error::TimedOut { verb: "poll_cq", .. })));
    assert!(started.elapsed() >= limit);
}

/// Voluntary switches and processor time of this thread, in microseconds.
fn usage() -> (i64, i64) {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
    let micros = [usage.user_time(), usage.system_time()]
        .map(|time| time.tv_sec() * 1_000_000 + time.tv_usec());
    (usage.voluntary_context_switches(), micros.iter().sum())
}

#[test]
fn a_server_of_eight_that_waits_does_nothing_while_nothing_comes() {
    const CONNECTIONS: u64 = 8;
    let (context, pd, channel) = open();
    let received = context.completion_queue(256).channel(&channel).build().unwrap();
    // The sends of each go elsewhere: a queue without events.
    let mut sides = Vec::new();
    for id in 0..CONNECTIONS {
        let sent = context.create_cq(64).unwrap();
        let builder = context.queue_pair(&pd, &sent).recv_cq(&received);
        let mut qp = builder.max_send_wr(16).max_recv_wr(16).build().unwrap();
        qp.prepare(&local()).unwrap();
        qp.connect_to_self().unwrap();
        qp.post_recv(id, pd.slab(64, 1).unwrap().take().unwrap()).unwrap();
        sides.push((qp, sent));
    }
    let mut received = received;
    // `wait` is not used here: it asks the kernel for the state of each queue pair.
    received.arm(Notify::Any).unwrap();
    assert!(received.poll(1).next().is_none());
    let before = usage();
    let nothing = channel.next_within(8 * PAUSE).unwrap_err();
    assert!(matches!(nothing, Error::TimedOut { .. }), "{nothing}");
    let after = usage();
    assert!(after.0 - before.0 <= 3, "{} sleeps while nothing came", after.0 - before.0);
    // Polling takes all of these 0.8 seconds. An emulated processor on a busy host is charged some
    // 50 ms for the sleep alone.
    let micros = after.1 - before.1;
    assert!(micros <= 200_000, "{micros} us of processor time while nothing came");
    thread::scope(|scope| {
        let server = scope.spawn(move || {
            let (start, before) = (Instant::now(), usage());
            let mut ids = Vec::new();
            for _ in 0..CONNECTIONS {
                ids.push(received.wait(LIMIT).unwrap().id);
            }
            let after = usage();
            (ids, after.0 - before.0, after.1 - before.1, start.elapsed())
        });
        for (id, (qp, sent)) in (0..).zip(&mut sides) {
            thread::sleep(PAUSE);
            qp.post_send_inline(id, b"x").unwrap();
            sent.wait(LIMIT).unwrap().result.unwrap();
        }
        let (ids, switches, micros, waited) = server.join().unwrap();
        assert_eq!(ids, (0..CONNECTIONS).collect::<Vec<_>>());
        // A sleep for each message, and some for locks. Polling with a yield between, or a look
        // every few milliseconds, has hundreds and more in these 0.8 seconds.
        // A function has more locks: its driver's thread works, too.
        let each = if common::is_function() { 6 } else { 3 };
        assert!(switches <= each * CONNECTIONS as i64, "{switches} sleeps");
        // A kernel's device may be in an emulated machine, where eight messages alone took 105 ms:
        // it counts time, too, in which its own processor stood still.
        let in_process = std::env::var_os("UVERBS_TEST_DEVICE").is_none();
        let waited = i64::try_from(waited.as_micros()).unwrap();
        let most = if in_process { 100_000 } else { waited / 2 };
        assert!(micros <= most, "{micros} us of processor time in {waited} of waiting");
    });
}

#[test]
fn threads_that_wait_on_one_channel_wake_each_for_its_queue() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 200;
    let (context, pd, channel) = open();
    // Half of them report sends, too: their threads wait twice a round.
    let loops: Vec<_> = (0..THREADS)
        .map(|index| {
            let [sent, received] =
                [0, 1].map(|_| context.completion_queue(64).channel(&channel).build().unwrap());
            let sent = if index % 2 == 0 { sent } else { context.create_cq(64).unwrap() };
            Loop::of(&context, &pd, sent, received)
        })
        .collect();
    thread::scope(|scope| {
        for mut one in loops {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    one.expect(round);
                    one.qp.post_send_inline(round, &pattern(8, round as u8)).unwrap();
                    let done = one.received.wait(LIMIT).unwrap();
                    done.result.unwrap();
                    assert_eq!(
                        (done.id, &*done.frame.unwrap()),
                        (round, &pattern(8, round as u8)[..])
                    );
                    assert_eq!(one.sent.wait(LIMIT).unwrap().id, round);
                }
            });
        }
    });
    // Events of waits that found their completion before they slept may be left: all of queues that
    // are gone now.
    assert_eq!(channel.try_next(), Ok(None));
}

#[test]
fn a_queue_that_goes_takes_its_events_along_and_waits_for_nobody() {
    let (context, pd, channel) = open();
    let mut left = Loop::new(&context, &pd, &channel);
    let event_of = |one: &mut Loop, id| {
        one.received.arm(Notify::Any).unwrap();
        one.message(id);
        assert!(readable(&channel, LIMIT));
    };
    // Not read, and read but not fetched: it was read by a wait for another queue.
    for fetched in [false, true] {
        let mut one = Loop::new(&context, &pd, &channel);
        event_of(&mut one, 1);
        if fetched {
            // On a busy machine a short wait is over before it has read anything.
            let start = Instant::now();
            while readable(&channel, Duration::ZERO) {
                assert!(start.elapsed() < LIMIT, "no wait reads it");
                let wait = left.received.wait(Duration::from_millis(20));
                assert!(matches!(wait, Err(Error::TimedOut { .. })));
            }
        }
        drop(one);
        assert_eq!(channel.try_next(), Ok(None), "fetched: {fetched}");
    }
    // In the program's hands.
    let mut one = Loop::new(&context, &pd, &channel);
    event_of(&mut one, 2);
    let event = channel.next_within(LIMIT).unwrap();
    assert!(event.is_of(&one.received));
    drop(one);
    let other = Loop::new(&context, &pd, &channel);
    assert!(!event.is_of(&other.received), "a number is given out once");
    assert_eq!(channel.try_next(), Ok(None));
    event_of(&mut left, 3);
    assert!(channel.next_within(LIMIT).unwrap().is_of(&left.received));
}

#[test]
fn a_channel_lives_as_long_as_a_queue_that_reports_to_it() {
    let (context, pd, channel) = open();
    let mut one = Loop::new(&context, &pd, &channel);
    drop((channel, context, pd));
    one.message(1);
    assert_eq!(one.received.wait(LIMIT).unwrap().id, 1);
    let channel = one.received.channel().expect("it has one");
    one.received.arm(Notify::Any).unwrap();
    one.message(2);
    assert!(channel.next_within(LIMIT).unwrap().is_of(&one.received));
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let (context, _pd, channel) = open();
    let (other, _, others) = open();
    let error = context.completion_queue(16).channel(&others).build().unwrap_err();
    let Error::Invalid { verb, what, value, .. } = &error else { panic!("{error:?}") };
    assert_eq!((*verb, *what, &**value), ("create_cq", "completion channel", "of another context"));

    let mut mute = other.create_cq(16).unwrap();
    assert!(mute.channel().is_none());
    let error = mute.arm(Notify::Any).unwrap_err();
    let Error::Invalid { verb, what, value, .. } = &error else { panic!("{error:?}") };
    assert_eq!(
        (*verb, *what, &**value),
        ("req_notify_cq", "completion queue", "without a channel")
    );

    let error = channel.next_within(Duration::from_millis(10)).unwrap_err();
    assert!(matches!(error, Error::TimedOut { verb: "get_cq_event", .. }), "{error:?}");

    let error = context.completion_queue(16).channel(&channel).vector(1 << 20).build().unwrap_err();
    assert!(matches!(error, Error::Limit { verb: "create_cq", .. }), "{error:?}");
}

#[test]
fn another_file_under_the_channels_descriptor_is_an_error_and_not_a_loop() {
    let (context, _pd, channel) = open();
    let mut cq = context.completion_queue(16).channel(&channel).build().unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    // SAFETY: taken for the call alone, and given back without closing it.
    let mut victim = unsafe { OwnedFd::from_raw_fd(channel.as_fd().as_raw_fd()) };
    nix::unistd::dup2(&null, &mut victim).unwrap();
    let _ = victim.into_raw_fd();
    let expected = Error::Kernel { verb: "get_cq_event", errno: Errno::EIO, hint: None };
    let errno = |error: Error| (error.verb(), error.errno());
    assert_eq!(errno(channel.try_next().unwrap_err()), errno(expected.clone()));
    assert_eq!(errno(cq.wait(LIMIT).unwrap_err()), errno(expected));
    let error = context.completion_queue(16).channel(&channel).build().unwrap_err();
    assert_eq!((error.verb(), error.errno()), (Some("create_cq"), Some(Errno::EBADF)));
    // Whoever else made something of it: the destruction doesn't care.
    drop(cq);
}

#[test]
fn a_device_that_goes_wakes_who_waits() {
    if !only_on_softhca("the test removes the device; tests/lifecycle/unbind.rs does so elsewhere")
    {
        return;
    }
    let hca = SoftHca::builder().build().unwrap();
    let (context, pd, channel) = open_on(&soft(&hca));
    let mut one = Loop::new(&context, &pd, &channel);
    let mut other = context.completion_queue(16).channel(&channel).build().unwrap();
    one.message(1);
    thread::scope(|scope| {
        let waits = [
            scope.spawn(move || other.wait(LIMIT).unwrap_err()),
            scope.spawn(|| channel.next_within(LIMIT).unwrap_err()),
        ];
        thread::sleep(PAUSE);
        hca.unplug();
        let verbs = waits.map(|wait| match wait.join().unwrap() {
            Error::DeviceGone { verb } => verb,
            error => panic!("{error:?}"),
        });
        assert_eq!(verbs, ["poll_cq", "get_cq_event"]);
    });
    // Earlier completions are still delivered.
    assert_eq!(one.received.wait(LIMIT).unwrap().id, 1);
    assert!(matches!(one.received.wait(LIMIT), Err(Error::DeviceGone { .. })));
}

#[test]
fn a_peers_write_with_immediate_wakes_and_a_silent_write_does_not() {
    let (context, pd, channel) = open();
    let mut one = Loop::new(&context, &pd, &channel);
    let memory = pd.expose(64, AccessFlags::REMOTE_WRITE).unwrap();
    one.received.arm(Notify::Any).unwrap();
    one.expect(1);
    let to = memory.remote(0);
    let mut batch = one.qp.batch();
    batch.write_inline(5, b"silent", to).unwrap();
    batch.ring();
    one.sent.wait(LIMIT).unwrap().result.unwrap();
    assert!(!readable(&channel, PAUSE), "a peer that only writes is not heard");
    let mut batch = one.qp.batch();
    batch.write_imm_inline(6, b"loud", to, 7).unwrap();
    batch.ring();
    assert!(channel.next_within(LIMIT).unwrap().is_of(&one.received));
    assert_eq!(one.poll(), [1]);
}
