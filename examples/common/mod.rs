//! Shared code of the course's programs: connected queue pairs, and tables.
#![allow(dead_code, unreachable_pub, reason = "each program includes this file and uses its part")]

use std::error::Error;
use std::fmt::Display;
use std::time::Duration;

use uverbs::attr::{GlobalRoute, Path};
use uverbs::{AccessFlags, AckTimeout, CompletionQueue, Context, Frame, Local};
use uverbs::{ProtectionDomain, QueuePair, RnrTimer, WorkCompletion};

/// Limit of every wait.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes of a peer's as text. What would move a terminal's cursor is escaped.
pub fn shown(bytes: &[u8]) -> String {
    let plain = |char| matches!(char, '\'' | '"' | '\\');
    let shown = |char: char| match plain(char) {
        true => char.to_string(),
        false => char.escape_debug().to_string(),
    };
    String::from_utf8_lossy(bytes).chars().map(shown).collect()
}

/// Result of a program, or of a part of one.
pub type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

/// One end of a connection, with a separate protection domain and completion queue.
pub struct End {
    pub qp: QueuePair,
    pub cq: CompletionQueue,
    pub pd: ProtectionDomain,
}

impl End {
    /// A queue pair in RESET.
    pub fn new(context: &Context) -> Outcome<Self> {
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(256)?;
        let qp = context.queue_pair(&pd, &cq).build()?;
        Ok(Self { qp, cq, pd })
    }

    /// A frame with these bytes.
    pub fn frame(&self, bytes: &[u8]) -> Outcome<Frame> {
        let mut frame = self.pd.slab(bytes.len(), 1)?.take().ok_or("no free frame")?;
        frame.copy_from_slice(bytes);
        Ok(frame)
    }

    /// The next completion, a success or not.
    pub fn done(&mut self) -> Outcome<WorkCompletion> {
        Ok(self.cq.wait(PATIENCE)?)
    }
}

/// The peer may do everything, and a dead one is noticed within a second.
pub fn open_to_all() -> Local {
    Local {
        access: AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC,
        timeout: AckTimeout::from_code(12).unwrap_or(AckTimeout::DEFAULT),
        retry_count: 2,
        min_rnr_timer: RnrTimer::DEFAULT,
        rnr_retry: 2,
        ..Local::default()
    }
}

/// The way from port 1 to itself.
pub fn path_to_itself(context: &Context) -> Result<Path, uverbs::Error> {
    let grh = context.best_gid(1)?.map(|entry| GlobalRoute {
        dgid: entry.gid,
        sgid_index: entry.index as u8,
        hop_limit: 1,
        traffic_class: 0,
        flow_label: 0,
    });
    let dlid = context.query_port(1)?.lid;
    Ok(Path { dlid, grh, service_level: 0, src_path_bits: 0, static_rate: 0 })
}

/// Connects a client and a server; `local` says what the client may do.
pub fn connect(client: &mut QueuePair, server: &mut QueuePair, local: &Local) -> Outcome {
    let client_at = client.prepare(&open_to_all())?;
    let server_at = server.prepare(local)?;
    server.connect(&client_at)?;
    Ok(client.connect(&server_at)?)
}

/// A client and a server, connected; `local` says what the client may do.
pub fn connected(context: &Context, local: &Local) -> Outcome<[End; 2]> {
    let (mut client, mut server) = (End::new(context)?, End::new(context)?);
    connect(&mut client.qp, &mut server.qp, local)?;
    Ok([client, server])
}

/// How a work request ended, in words.
pub fn ending(done: &WorkCompletion) -> String {
    match done.result {
        Ok(completed) => format!("{completed:?}"),
        Err(failure) => failure.status.to_string(),
    }
}

/// Rows of text under headings, in columns as wide as they need to be.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// `heads` are separated by bars.
    pub fn new(heads: &str) -> Self {
        Self { rows: vec![heads.split('|').map(|head| head.trim().to_owned()).collect()] }
    }

    pub fn row(&mut self, cells: &[&dyn Display]) {
        self.line(cells.iter().map(|cell| cell.to_string()).collect());
    }

    pub fn line(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Prints it, and an empty line.
    pub fn print(&self) {
        let mut widths = vec![0; self.rows.iter().map(Vec::len).max().unwrap_or(0)];
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        for (number, row) in self.rows.iter().enumerate() {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
            println!("{}", cells.collect::<Vec<_>>().join("  ").trim_end());
            if number == 0 {
                let lines = widths.iter().map(|&width| "-".repeat(width));
                println!("{}", lines.collect::<Vec<_>>().join("  "));
            }
        }
        println!();
    }
}
