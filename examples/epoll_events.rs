//! A server that sleeps: completions of three clients and asynchronous events, through one epoll,
//! as in a program that has an event loop already.
//!
//! `cargo run --example epoll_events`

mod common;

use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use common::{End, Outcome, Table, connect, open_to_all, shown};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use uverbs::event::AsyncElement::Qp;
use uverbs::{CompletionChannel, Context, Frame, Notify, Remote};

const CLIENTS: usize = 3;
const ROUNDS: usize = 2;
/// Tokens of the two files in epoll.
const COMPLETIONS: u64 = 0;
const EVENTS: u64 = 1;
/// Milliseconds without anything after which the server goes home.
const PATIENCE: u16 = 2000;

fn main() -> Outcome {
    let context = uverbs::device_or_softhca()?.open()?;
    // One file for the completion queues of all clients, one for the device's asynchronous events.
    let channel = context.create_comp_channel()?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    epoll.add(&channel, EpollEvent::new(EpollFlags::EPOLLIN, COMPLETIONS))?;
    epoll.add(context.async_events(), EpollEvent::new(EpollFlags::EPOLLIN, EVENTS))?;
    let (mut servers, mut clients) = (Vec::new(), Vec::new());
    for _ in 0..CLIENTS {
        let pd = context.alloc_pd()?;
        let cq = context.completion_queue(256).channel(&channel).build()?;
        let qp = context.queue_pair(&pd, &cq).build()?;
        let (mut server, mut client) = (End { qp, cq, pd }, End::new(&context)?);
        connect(&mut client.qp, &mut server.qp, &open_to_all())?;
        let slab = server.pd.slab(64, ROUNDS)?;
        while let Some(frame) = slab.take() {
            server.qp.post_recv(0, frame)?;
        }
        // The next completion, and only that, sends an event.
        server.cq.arm(Notify::Any)?;
        servers.push(server);
        clients.push(client);
    }
    let (read, turns) = mpsc::channel();
    let talking = thread::spawn(move || talk(clients, &turns).map_err(|error| error.to_string()));
    serve(&context, &epoll, &channel, &mut servers, &read)?;
    Ok(talking.join().expect("the clients don't panic")?)
}

/// The event loop. It ends with the first asynchronous event.
fn serve(
    context: &Context,
    epoll: &Epoll,
    channel: &CompletionChannel,
    servers: &mut [End],
    read: &Sender<()>,
) -> Outcome {
    let mut table = Table::new("readable file | event | what it brought");
    let mut ready = [EpollEvent::empty(); 2];
    'sleep: loop {
        let count = epoll.wait(&mut ready, EpollTimeout::from(PATIENCE))?;
        for file in &ready[..count] {
            if file.data() == EVENTS {
                let mut any = false;
                while let Some(event) = context.async_events().try_next()? {
                    let is_of = |server: &End| event.element == Qp(server.qp.event_id());
                    let whose = servers.iter().position(is_of);
                    let whose = whose.map_or("nobody".to_owned(), |of| format!("client {of}"));
                    table.row(&[&"asynchronous events", &format!("{:?}", event.kind), &whose]);
                    any = true;
                }
                // A readable file may still have no event.
                if any {
                    break 'sleep;
                }
            }
            // All pending events: each names a queue, and is returned once.
            while let Some(event) = channel.try_next()? {
                let Some(of) = servers.iter().position(|server| event.is_of(&server.cq)) else {
                    continue;
                };
                let End { cq, qp, .. } = &mut servers[of];
                // Armed before it is polled, so that a completion after the poll sends an event.
                cq.arm(Notify::Any)?;
                let mut arrived: Vec<Frame> = Vec::new();
                cq.poll_with(16, |mut done| {
                    // A receive that failed brings its frame back without a message.
                    arrived.extend(done.take_frame().filter(|_| done.result().is_ok()));
                });
                for frame in arrived {
                    let text = shown(&frame);
                    table.row(&[&"completion channel", &format!("queue of client {of}"), &text]);
                    qp.post_recv(0, frame)?;
                    read.send(())?;
                }
            }
        }
        if count == 0 {
            return Err("nothing came".into());
        }
    }
    table.print();
    Ok(())
}

/// The clients. Each begins when the server has read the message of the one before. The last one
/// then writes without permission.
fn talk(mut clients: Vec<End>, turns: &Receiver<()>) -> Outcome {
    for round in 0..ROUNDS {
        for (number, client) in clients.iter_mut().enumerate() {
            client.qp.post_send_inline(0, format!("{round} from {number}").as_bytes())?;
            client.done()?.result?;
            turns.recv_timeout(Duration::from_millis(PATIENCE.into()))?;
        }
    }
    let Some(last) = clients.last_mut() else { return Ok(()) };
    last.qp.post_write_inline(0, b"x", Remote { addr: 0, rkey: 0xdead_0000 })?;
    last.done()?;
    Ok(())
}
