//! Parses case files and expands them to scripts of plain statements (`cases/README.md`).

use std::path::Path;

use crate::receivers::Kind;

/// Receive posted for a case that describes none.
const RECEIVE: &str = "0x80000:65536";
/// Distance of pieces in bytes.
const PIECES: usize = 4096;

/// A case file.
#[derive(Clone)]
pub(crate) struct Cases {
    pub(crate) name: String,
    /// Environment of libmlx5's process.
    pub(crate) env: Vec<(String, String)>,
    /// Doorbells without BlueFlame.
    pub(crate) plain: bool,
    /// An InfiniBand port; Ethernet otherwise.
    pub(crate) infiniband: bool,
    /// Raw packets need inline headers.
    pub(crate) headers: bool,
    /// `rc`, `uc`, `ud`, `xrc`, `dc` or `raw`.
    pub(crate) transport: String,
    /// One memory window of each type.
    pub(crate) windows: bool,
    /// An indirect key.
    pub(crate) keys: bool,
    /// Short messages and responses lie in CQEs.
    pub(crate) scatter: bool,
    /// The environment enables that, for messages only; the program does not.
    by_environment: bool,
    /// DC initiators have streams.
    pub(crate) streams: bool,
    /// Completions of 128 bytes; libmlx5 gets them by `env`.
    pub(crate) wide: bool,
    /// Device memory, a dma-buf and the null region in addition.
    pub(crate) memory: bool,
    /// The device, its domain and its region are imported at the end.
    pub(crate) import: bool,
    /// RC receives from a shared queue per side.
    pub(crate) shared: bool,
    /// Shared queues match tags: for each party, maximum tags and outstanding changes.
    pub(crate) tags: Vec<(String, String)>,
    /// The completion queues report to a channel.
    pub(crate) channel: bool,
    /// Addresses of datagrams, in words `name=value`.
    pub(crate) addresses: Vec<String>,
    sizes: Vec<(String, String)>,
    /// Name and statements.
    cases: Vec<(String, Vec<String>)>,
}

impl Cases {
    pub(crate) fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let mut all = Self {
            name,
            env: Vec::new(),
            plain: false,
            infiniband: false,
            headers: false,
            transport: "rc".to_owned(),
            windows: false,
            keys: false,
            scatter: false,
            by_environment: false,
            streams: false,
            wide: false,
            memory: false,
            import: false,
            shared: false,
            tags: Vec::new(),
            channel: false,
            addresses: Vec::new(),
            sizes: Vec::new(),
            cases: Vec::new(),
        };
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(env) = line.strip_prefix("env ") {
                let (name, value) = env.split_once('=').unwrap();
                all.env.push((name.to_owned(), value.to_owned()));
            } else if let Some(sizes) = line.strip_prefix("sizes ") {
                let (who, sizes) = sizes.split_once(' ').unwrap();
                all.sizes.push((who.to_owned(), sizes.to_owned()));
            } else if let Some(tags) = line.strip_prefix("tags ") {
                let (who, tags) = tags.split_once(' ').unwrap();
                all.tags.push((who.to_owned(), tags.to_owned()));
            } else if let Some(transport) = line.strip_prefix("transport ") {
                transport.clone_into(&mut all.transport);
            } else if let Some(address) = line.strip_prefix("address ") {
                all.addresses.push(address.to_owned());
            } else if line == "headers" {
                all.headers = true;
            } else if line == "windows" {
                all.windows = true;
            } else if line == "keys" {
                all.keys = true;
            } else if line == "scatter" {
                all.scatter = true;
            } else if line == "scatter by environment" {
                (all.scatter, all.by_environment) = (true, true);
                all.env.push(("MLX5_SCATTER_TO_CQE".to_owned(), "1".to_owned()));
            } else if line == "streams" {
                all.streams = true;
            } else if line == "wide" {
                all.wide = true;
            } else if line == "memory" {
                all.memory = true;
            } else if line == "import" {
                all.import = true;
            } else if line == "srq" {
                all.shared = true;
            } else if line == "doorbell plain" {
                all.plain = true;
            } else if line == "channel" {
                all.channel = true;
            } else if line == "link ib" {
                all.infiniband = true;
            } else {
                all.add(line);
            }
        }
        all
    }

    /// Tag-matching queues, in our sizes.
    pub(crate) fn tags(&self) -> Option<Kind> {
        let (_, tags) = self.tags.iter().find(|(who, _)| who == "ours")?;
        let (tags, changes) = tags.split_once(' ').unwrap();
        Some(Kind::Tags(tags.parse().unwrap(), changes.parse().unwrap()))
    }

    pub(crate) fn len(&self) -> usize {
        self.cases.len()
    }

    /// Ways to post that libmlx5 is compared in: `post`, `wr`.
    pub(crate) fn ways(&self) -> Vec<&str> {
        let names = self.sizes.iter().map(|(who, _)| who.as_str());
        names.filter(|who| *who != "ours").collect()
    }

    /// Name of the sizes that our libibverbs is asked for. For `ibv_post_send` it makes libmlx5's
    /// rings, except of tag lists.
    pub(crate) fn sizes_of_library(way: &str) -> &'static str {
        if way == "post" { "our_library" } else { "ours" }
    }

    /// Script for one party, a statement per line.
    pub(crate) fn script(&self, who: &str) -> String {
        let (who, lists) = if who == "our_library" { ("post", "ours") } else { (who, who) };
        let (_, sizes) = self.sizes.iter().find(|(name, _)| name == who).unwrap();
        let mut script = format!("transport {}\n", self.transport);
        if self.windows {
            script += "windows\n";
        }
        if self.keys {
            script += "keys\n";
        }
        if self.scatter && !self.by_environment {
            script += "scatter\n";
        }
        if self.streams {
            script += "streams\n";
        }
        if self.memory {
            script += "memory\n";
        }
        if self.import {
            script += "import\n";
        }
        if self.shared {
            script += "srq\n";
        }
        for (_, tags) in self.tags.iter().filter(|(name, _)| name == lists) {
            script += &format!("tags {tags}\n");
        }
        for address in &self.addresses {
            script += &format!("address {address}\n");
        }
        if self.channel {
            script += "channel\n";
        }
        script += &format!("sizes {sizes}\n");
        for (name, statements) in &self.cases {
            script += &format!("case {name}\n{}\nend\n", statements.join("\n"));
        }
        script
    }

    /// Parses a line `variables | name | statements`.
    fn add(&mut self, line: &str) {
        let parts: Vec<_> = line.split('|').map(str::trim).collect();
        let [variables, name, statements] = parts[..] else { panic!("{line}") };
        let mut all = vec![(name.to_owned(), statements.to_owned())];
        for variable in variables.split_whitespace() {
            let (name, values) = variable.split_once('=').unwrap();
            let key = format!("{{{name}}}");
            let each = |(name, statements): &(String, String)| {
                let with =
                    |value: String| (name.replace(&key, &value), statements.replace(&key, &value));
                self::values(values).into_iter().map(with).collect::<Vec<_>>()
            };
            all = all.iter().flat_map(each).collect();
        }
        let cases = all.into_iter().map(|(name, statements)| (name, plain(&statements)));
        self.cases.extend(cases);
    }
}

/// Values of a variable.
fn values(text: &str) -> Vec<String> {
    let (edges, range) = match text.strip_prefix("edges") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let Some((low, high)) = range.split_once("..") else {
        return text.split(',').map(str::to_owned).collect();
    };
    let (high, step) = high.split_once('/').unwrap_or((high, "1"));
    let numbers = low.parse::<usize>().unwrap()..=high.parse::<usize>().unwrap();
    // Inline data follows a header of four bytes.
    let wanted = |n: &usize| !edges || matches!((n + 4) % 16, 0 | 1 | 15);
    numbers.step_by(step.parse().unwrap()).filter(wanted).map(|n| n.to_string()).collect()
}

/// Expands repetitions and lists, and adds the needed receives.
fn plain(statements: &str) -> Vec<String> {
    let mut all = Vec::new();
    for statement in statements.split(';').map(str::trim).filter(|text| !text.is_empty()) {
        let (times, statement) = match statement.split_once("* ") {
            Some((times, rest)) => (times.parse().unwrap(), rest),
            None => (1, statement),
        };
        all.extend(std::iter::repeat_n(pieces(statement), times));
    }
    if !all.iter().any(|statement| statement.starts_with("recv ")) {
        let takes = |statement: &&String| {
            let op = statement.split(' ').nth(2).unwrap_or_default();
            statement.starts_with("send ")
                && matches!(op, "send" | "send_imm" | "send_inv" | "write_imm")
        };
        let peer = |side: &str| if side == "A" { "B" } else { "A" };
        let takers = all.iter().filter(takes);
        let mut before: Vec<_> =
            takers.map(|statement| format!("recv {} {RECEIVE}", peer(&statement[5..6]))).collect();
        // Positions come first, since they fill rings.
        let at = all.iter().position(|statement| !statement.starts_with("at ")).unwrap_or(0);
        for side in ["A", "B"] {
            if before.iter().any(|receive| receive.starts_with(&format!("recv {side}"))) {
                before.push(format!("ring {side}"));
            }
        }
        all.splice(at..at, before);
    }
    all.extend(["ring A".to_owned(), "ring B".to_owned()]);
    all
}

/// Expands `pieces COUNT LEN`.
fn pieces(statement: &str) -> String {
    let Some((head, list)) = statement.split_once("pieces ") else { return statement.to_owned() };
    let (count, len) = list.trim().split_once(' ').unwrap();
    let all =
        (0..count.parse().unwrap()).map(|index: usize| format!("{:#x}:{len}", index * PIECES));
    format!("{head}{}", all.collect::<Vec<_>>().join(" ")).trim_end().to_owned()
}
