//! A ping-pong with another process, which may be `ibv_rc_pingpong`: the exchange has that
//! program's messages and order (rdma-core `libibverbs/examples/rc_pingpong.c`).

mod address;
mod exchange;
#[cfg(test)]
pub(crate) mod fuzz;
mod report;
mod session;

use std::sync::atomic::AtomicBool;

use self::address::Address;
use self::exchange::Peer;
use self::report::{Done, Report};
use self::session::Session;
use super::config::{Config, Remote, Role};
use crate::base::error::Error;
use crate::base::output;
use crate::base::select;
use crate::link::tcp::{Listener, Stream, TcpError};

/// A run with another process.
pub(super) fn run(config: &Config, remote: &Remote, stop: &AtomicBool) -> Result<(), Error> {
    let device = select::reachable(config.device.as_deref())?.client;
    let tell = |whose: &str, address: &Address| {
        if config.quiet || config.json {
            return Ok(());
        }
        output::print(&format!("{whose} {address}\n"))
    };
    let session = Session::new(&device, config, remote, stop)?;
    let done = match &remote.role {
        Role::Server => serve(session, Listener::bind(remote.port)?, tell)?,
        Role::Client { host } => {
            call(session, || Stream::connect(host, remote.port, config.timeout), tell)?
        }
    };
    let report = Report::new(config, remote, &done);
    if config.json { output::json(&report) } else { output::print(&report.text()) }
}

/// Server's side. Calls `tell` with each address as soon as it is known.
fn serve(
    mut session: Session<'_>,
    listener: Listener,
    tell: impl Fn(&str, &Address) -> Result<(), Error>,
) -> Result<Done, Error> {
    tell("local  ", session.address())?;
    let Session { config, remote, stop, .. } = session;
    let stream = listener.accept(remote.wait, config.timeout, stop)?;
    let mut client = Peer::new(stream, stop);
    let peer = client.read_address()?;
    let way = session.way();
    let theirs = way.map(|_| client.read_way()).transpose()?;
    tell("remote ", &peer)?;
    // Before the answer: the client's first message must find the queue pair ready.
    session.connect(&peer, theirs)?;
    client.write_address(session.address())?;
    way.map_or(Ok(()), |way| client.write_way(way))?;
    client.read_done()?;
    let outcome = session.run()?;
    Ok(Done { device: session.device().to_owned(), own: *session.address(), peer, outcome })
}

/// Client's side.
fn call(
    mut session: Session<'_>,
    connect: impl FnOnce() -> Result<Stream, TcpError>,
    tell: impl Fn(&str, &Address) -> Result<(), Error>,
) -> Result<Done, Error> {
    tell("local  ", session.address())?;
    let mut server = Peer::new(connect()?, session.stop);
    server.write_address(session.address())?;
    let way = session.way();
    way.map_or(Ok(()), |way| server.write_way(way))?;
    let peer = server.read_address()?;
    let theirs = way.map(|_| server.read_way()).transpose()?;
    tell("remote ", &peer)?;
    server.write_done()?;
    session.connect(&peer, theirs)?;
    let outcome = session.run()?;
    Ok(Done { device: session.device().to_owned(), own: *session.address(), peer, outcome })
}

#[cfg(test)]
mod tests;
