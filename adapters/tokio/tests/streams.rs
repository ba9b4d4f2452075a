//! Streams for tasks: bytes both ways at once, tasks that share a stream, waits that are dropped.

use std::io::Read;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, split};
use tokio::runtime::Builder;
use tokio::time::timeout;
use uverbs::Device;
use uverbs::softhca::SoftHca;
use uverbs_streams::StreamOptions;
use uverbs_tokio::{RdmaListener, RdmaStream};

/// No wait in a test is longer.
const LIMIT: Duration = Duration::from_secs(20);

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// Options for streams of a new software HCA, and a listener there.
fn listen() -> (StreamOptions, RdmaListener, SocketAddr) {
    let device = Device::from(SoftHca::builder().build().unwrap());
    let ip = device.addresses().unwrap()[0];
    let options = StreamOptions::new().on(&device);
    let listener = options.listen((ip, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    (options, RdmaListener::new(listener).unwrap(), at)
}

async fn pair() -> (RdmaStream, RdmaStream) {
    let (options, listener, at) = listen();
    let (client, server) = tokio::join!(RdmaStream::connect(&options, at), listener.accept());
    (client.unwrap(), server.unwrap().0)
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    timeout(LIMIT, work).await.expect("in time")
}

/// Each end is read by one task and written by another.
#[test]
fn both_directions_run_at_once() {
    for threads in [1, 3] {
        let runtime = Builder::new_multi_thread().worker_threads(threads).enable_all().build();
        runtime.unwrap().block_on(within(async {
            let (client, server) = pair().await;
            let mut tasks = Vec::new();
            for end in [client, server] {
                let (mut read, mut write) = split(end);
                tasks.push(tokio::spawn(async move {
                    for piece in bytes(1_000_000).chunks(40_000) {
                        write.write_all(piece).await.unwrap();
                    }
                    write.shutdown().await.unwrap();
                }));
                tasks.push(tokio::spawn(async move {
                    let mut all = Vec::new();
                    read.read_to_end(&mut all).await.unwrap();
                    assert!(all == bytes(1_000_000));
                }));
            }
            for task in tasks {
                task.await.unwrap();
            }
        }));
    }
}

#[test]
fn a_read_that_is_dropped_loses_nothing() {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(within(async {
        let (mut client, mut server) = pair().await;
        for round in 0..60u8 {
            let mut got = [0];
            let early = timeout(Duration::from_millis(u64::from(round % 3)), server.read(&mut got));
            assert!(early.await.is_err(), "nothing was sent");
            client.write_all(&[round]).await.unwrap();
            if timeout(Duration::from_micros(50), server.read_exact(&mut got)).await.is_err() {
                server.read_exact(&mut got).await.unwrap();
            }
            assert_eq!(got, [round]);
        }
        drop(client);
        assert_eq!(server.read(&mut [0]).await.unwrap(), 0);
    }));
}

/// Waker that records if it was woken.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The reader sees the room that the writer waits for, before the reactor reads the file. The file
/// signals nothing more, and yet the writer is woken.
#[test]
fn a_task_that_sees_what_another_waits_for_wakes_it() {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(within(async {
        let (options, listener, at) = listen();
        let client = tokio::task::spawn_blocking(move || options.connect(at).unwrap());
        let (mut server, _) = listener.accept().await.unwrap();
        let mut client = client.await.unwrap();
        client.set_read_timeout(Some(LIMIT)).unwrap();
        let woken = Arc::<Flag>::default();
        let waker = Waker::from(Arc::clone(&woken));
        let mut writer = Context::from_waker(&waker);
        // No byte is sent before the peer has confirmed.
        server.write_all(&[7]).await.unwrap();
        let mut sent = 1;
        while let Poll::Ready(count) = Pin::new(&mut server).poll_write(&mut writer, &[7; 9000]) {
            sent += count.unwrap();
            // Until the peer's buffer is full, and not only this side's.
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(sent >= 128 << 10, "{sent}");
        woken.0.store(false, Ordering::Relaxed);
        client.read_exact(&mut vec![0; sent]).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert!(!woken.0.load(Ordering::Relaxed), "the reactor has had no turn");
        let mut room = [0; 1];
        let mut reader = Context::from_waker(Waker::noop());
        let read = Pin::new(&mut server).poll_read(&mut reader, &mut ReadBuf::new(&mut room));
        assert!(read.is_pending());
        assert!(woken.0.load(Ordering::Relaxed), "the writer sleeps on");
    }));
}

#[test]
fn many_streams_are_served_by_one_thread() {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(within(async {
        let (options, listener, at) = listen();
        const COUNT: usize = 12;
        let server = tokio::spawn(async move {
            let mut served = Vec::new();
            for _ in 0..COUNT {
                let (mut stream, _) = listener.accept().await.unwrap();
                served.push(tokio::spawn(async move {
                    let mut asked = Vec::new();
                    stream.read_to_end(&mut asked).await.unwrap();
                    stream.write_all(&asked).await.unwrap();
                    stream.shutdown().await.unwrap();
                }));
            }
            for task in served {
                task.await.unwrap();
            }
        });
        let clients: Vec<_> = (1..=COUNT)
            .map(|number| {
                let options = options.clone();
                tokio::spawn(async move {
                    let mut stream = RdmaStream::connect(&options, at).await.unwrap();
                    stream.write_all(&bytes(number * 1000)).await.unwrap();
                    stream.shutdown().await.unwrap();
                    let mut back = Vec::new();
                    stream.read_to_end(&mut back).await.unwrap();
                    assert!(back == bytes(number * 1000));
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
        server.await.unwrap();
    }));
}
