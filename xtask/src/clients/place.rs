//! Folder with a group's packages, and the network in which a row's programs run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::clients::sources;
use crate::clients::table::{Group, Program};
use crate::debian::apt::{create, failed, once};
use crate::debian::chroot::Root;
use crate::debian::target;
use crate::step::{Outcome, run};
use crate::vm::fetch::bookworm;

/// Limit of a download, or of a group's setup on a busy machine.
const FETCH: Duration = Duration::from_secs(3600);
/// Addresses of the server's and the client's device.
const ADDRESSES: [&str; 2] = ["10.9.0.1", "10.9.0.2"];
/// Python of Debian 12.
const PYTHON: &str = "3.11";
/// Users, groups and hosts that an installation would create.
const NAMES: [[&str; 2]; 4] = [
    [
        "/etc/passwd",
        "root:x:0:0::/root:/bin/bash\n\
         sshd:x:101:65534::/run/sshd:/bin/sh\n\
         nobody:x:65534:65534::/nonexistent:/bin/sh\n\
         user:x:1000:1000::/tmp:/bin/sh\n",
    ],
    ["/etc/group", "root:x:0:\nnogroup:x:65534:\n"],
    ["/etc/hosts", "127.0.0.1 localhost\n"],
    ["/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"],
];

/// Our libraries, as the rows use them.
#[derive(Debug)]
pub(super) struct Libraries {
    pub(super) tool: PathBuf,
    pub(super) folder: PathBuf,
    /// Preloaded library with the software HCA for Debian's libraries, instead of ours.
    pub(super) c: Option<PathBuf>,
}

/// Debian root with a group's packages.
#[derive(Debug)]
pub(super) struct GroupRoot {
    root: Root,
    /// Folder with the wheels.
    base: PathBuf,
}

/// Checks for network namespaces with veth, and ip(8).
///
/// # Errors
///
/// A skip without one of them.
pub(super) fn has_networks() -> Result<(), Outcome> {
    let mut probe = Command::new("unshare");
    probe.args(["--map-root-user", "--net", "ip", "link", "add", "near", "type", "veth"]);
    probe.args(["peer", "name", "far"]).stdin(Stdio::null()).stderr(Stdio::null());
    match probe.status().is_ok_and(|status| status.success()) {
        true => Ok(()),
        false => Err(Outcome::Skipped("no network namespaces with veth here, or no ip".to_owned())),
    }
}

impl GroupRoot {
    /// Fetches a group's packages, unless they are there.
    ///
    /// # Errors
    ///
    /// A skip without network, apt, pip or namespaces.
    pub(super) fn fetch(group: &Group) -> Result<Self, Outcome> {
        let base = target().join("clients").join(&group.name);
        let packages: Vec<&str> = group.debian.iter().map(String::as_str).collect();
        let root = Root::fetch(&base.join("root"), bookworm, &packages)?;
        // The root is made again after a change of its packages.
        let stamp = format!("{group:?} {NAMES:?}");
        once(&base.join("more"), &stamp, || {
            let _ = fs::remove_dir_all(base.join("more"));
            create(&base.join("more"))?;
            for [path, text] in NAMES {
                let path = root.path(path);
                fs::write(&path, text).map_err(|error| failed(&path, &error))?;
            }
            step(root.command(&["ldconfig"]), "ldconfig")?;
            sources::fetch(&root, group)?;
            step(sources::setup(&root, group), &group.setup)?;
            wheels(&base, group)
        })?;
        Ok(Self { root, base })
    }

    /// Command that runs a row by `uverbs run`, in a network with two addresses.
    pub(super) fn command(&self, program: &Program, libraries: &Libraries) -> Command {
        let files = files();
        let limit = program.limit.as_secs().to_string();
        let tool = libraries.tool.to_string_lossy();
        let folder = libraries.folder.to_string_lossy();
        let mut words = vec![&tool[..], "run", "-d", "softhca", "--libraries", &folder];
        if program.sockets {
            words.push("--preload-sockets");
        }
        let devices = ADDRESSES.map(|address| device(address, libraries, program.sockets));
        let library = files.join("functions.sh");
        let side = |device: &str, text: &str| {
            format!("{device} . '{}' && {{ {text}\n}}", library.display())
        };
        let client =
            side(&devices[1], &format!("{}\n}} && finish || {{ finish; false", program.client));
        // A program alone is the client of a server that does not wait.
        let server = side(&devices[0], program.server.as_deref().unwrap_or("true"));
        words.extend(["--limit", &limit, "--pair", &server, &client]);
        let build = libraries.tool.parent().unwrap_or(Path::new("/"));
        let shown = [build, &libraries.folder, &self.base, &files];
        let mut command = self.root.command_alone(&shown, &ADDRESSES, program.is_root, &words);
        command.env("PYTHONPATH", self.base.join("more/python")).env("FILES", &files);
        command
    }
}

/// Folder of the table, `$FILES` of the rows.
pub(super) fn files() -> PathBuf {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/clients");
    fs::canonicalize(&files).unwrap_or(files)
}

/// Shell text that sets a side's device.
fn device(address: &str, libraries: &Libraries, sockets: bool) -> String {
    let Some(c) = &libraries.c else { return format!("export UVERBS_DEVICE=softhca@{address};") };
    let preloaded = if sockets { ":/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so" } else { "" };
    format!(
        "unset LD_LIBRARY_PATH UVERBS_DEVICE; export UVERBS_SOFTHCA_UDP={address} \
         LD_PRELOAD={}{preloaded};",
        c.display()
    )
}

fn wheels(base: &Path, group: &Group) -> Result<(), Outcome> {
    if group.pypi.is_empty() {
        return Ok(());
    }
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--only-binary", ":all:"]);
    pip.args(["--python-version", PYTHON, "--no-deps", "--no-compile"]);
    for platform in ["manylinux2014_x86_64", "manylinux_2_28_x86_64", "manylinux_2_34_x86_64"] {
        pip.args(["--platform", platform]);
    }
    pip.arg("--target").arg(base.join("more/python")).args(&group.pypi);
    step(pip, "pip")
}

/// Runs a command that needs the network: its failure is a skip.
pub(super) fn step(command: Command, name: &str) -> Result<(), Outcome> {
    match run(command, FETCH) {
        Outcome::Failed(why) => Err(Outcome::Skipped(format!("{name}: {why}"))),
        _ => Ok(()),
    }
}
