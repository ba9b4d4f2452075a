//! Machine: starts QEMU, reads its ports, stops it, and forms the verdict.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::vm::fetch::Qemu;
use crate::vm::server::Server;
use crate::vm::verdict::{Failure, Limits, Ran, Verdict};

/// Interval of reading the ports.
const STEP: Duration = Duration::from_millis(20);
/// Time to read on after a complaint of the kernel: registers and the trace follow it.
const AFTERMATH: Duration = Duration::from_secs(2);
/// Memory of the guest.
const MEMORY: &str = "1024M";
/// Emulated IOMMU, which tells the functions' servers each mapping, and kernel parameters for it.
const IOMMU: &str = "intel-iommu,intremap=on,caching-mode=on";
const IOMMU_PARAMETERS: &str = " intel_iommu=on";

/// Accelerator of QEMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accel {
    Kvm,
    Tcg,
}

/// Machine to boot.
pub(crate) struct Machine<'a> {
    pub(crate) qemu: &'a Qemu,
    pub(crate) accel: Accel,
    pub(crate) processors: u8,
    pub(crate) kernel: &'a Path,
    pub(crate) image: &'a Path,
    /// Folder of the logs.
    pub(crate) folder: &'a Path,
    pub(crate) server: Option<Server>,
    pub(crate) iommu: bool,
    pub(crate) limits: Limits,
    /// True if the first serial port is this terminal.
    pub(crate) shell: bool,
    /// True if the first program in the reports is the set-up.
    pub(crate) has_setup: bool,
}

/// Result of a boot.
pub(crate) struct Showed {
    pub(crate) ran: Vec<Ran>,
    pub(crate) failure: Option<Failure>,
    pub(crate) has_setup: bool,
}

impl Showed {
    /// Number of programs that began, without the set-up.
    pub(crate) fn programs(&self) -> usize {
        self.ran.len() - usize::from(self.has_setup)
    }
}

/// Files of a run: the kernel's log, the results, QEMU's messages.
pub(crate) const LOGS: [&str; 3] = ["dmesg.log", "results.log", "qemu.log"];

/// Process that is killed on drop.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Machine<'_> {
    /// Boots, waits for the end, and calls `ended` for each program that ends.
    pub(crate) fn boot(mut self, mut ended: impl FnMut(&Ran)) -> Showed {
        let mut verdict = Verdict::default();
        match self.start() {
            Ok(mut qemu) => self.watch(&mut qemu.0, &mut verdict, &mut ended),
            Err(why) => verdict.fail(Failure::Qemu(why)),
        }
        let failure = verdict.close(usize::from(self.has_setup));
        Showed { ran: verdict.ran, failure, has_setup: self.has_setup }
    }

    fn start(&self) -> Result<Killed, String> {
        for name in LOGS {
            let path = self.folder.join(name);
            File::create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let log = File::create(self.folder.join(LOGS[2])).map_err(|error| error.to_string())?;
        let again = log.try_clone().map_err(|error| error.to_string())?;
        let mut command = self.command();
        command.current_dir(self.folder);
        if self.shell {
            command.stdin(Stdio::inherit()).stderr(log);
        } else {
            command.stdin(Stdio::null()).stdout(again).stderr(log);
        }
        command.spawn().map(Killed).map_err(|error| error.to_string())
    }

    fn command(&self) -> Command {
        let mut command = self.qemu.command();
        let accel = match self.accel {
            Accel::Kvm => "kvm",
            Accel::Tcg => "tcg",
        };
        // The memory is shared, so that a device's server can map it.
        let memory = format!("memory-backend-memfd,id=memory,size={MEMORY},share=on");
        // A panic or an oops ends the machine at once: its first message counts. On a busy host a
        // virtual processor may stop for seconds, so stalls and lockups have longer limits, and the
        // kernel keeps its clock: with another one each look at the time is a system call.
        let board = self.qemu.board();
        let append = format!(
            "{} panic=-1 oops=panic mitigations=off tsc=reliable rcupdate.rcu_cpu_stall_timeout=60 \
             watchdog_thresh=30",
            board.parameters()
        );
        let append = if self.iommu { append + IOMMU_PARAMETERS } else { append };
        for words in [
            ["-machine", board.machine()],
            ["-object", &memory],
            ["-m", MEMORY],
            ["-accel", accel],
            ["-cpu", board.processor()],
            ["-smp", &self.processors.to_string()],
            ["-append", &append],
            ["-display", "none"],
            ["-monitor", "none"],
            ["-nic", "none"],
            ["-vga", "none"],
        ] {
            command.args(words);
        }
        command.args(["-nodefaults", "-no-user-config", "-no-reboot"]);
        if self.qemu.exits_with_parent() {
            command.args(["-run-with", "exit-with-parent=on"]);
        }
        command.arg("-kernel").arg(self.kernel).arg("-initrd").arg(self.image);
        // QEMU runs in the folder of the logs.
        let console = if self.shell { "stdio".to_owned() } else { format!("file:{}", LOGS[0]) };
        command.args(["-serial", &console]).args(board.results());
        if self.iommu {
            // Before the functions behind it.
            command.args(["-device", IOMMU]);
        }
        if let Some(server) = &self.server {
            for device in server.devices() {
                command.args(["-device", &device]);
            }
        }
        command
    }

    fn watch(&mut self, qemu: &mut Child, verdict: &mut Verdict, ended: &mut impl FnMut(&Ran)) {
        let mut tails = LOGS.map(|name| Tail::new(self.folder.join(name)));
        let started = Instant::now();
        let mut heard = started;
        let mut said = None;
        let mut lost: Option<Instant> = None;
        loop {
            // The status comes first, so that QEMU's last output is read below.
            let status = qemu.try_wait();
            let [log, results, own] = &mut tails;
            for line in log.lines() {
                heard = Instant::now();
                verdict.kernel(&line);
            }
            for line in results.lines() {
                heard = Instant::now();
                if let Some(ran) = verdict.result(&line) {
                    ended(ran);
                }
            }
            let complaint = own.lines().into_iter().find(|line| line.contains("internal error"));
            if let Some(line) = complaint {
                verdict.fail(Failure::Qemu(line));
            }
            match status {
                Ok(None) => {}
                Ok(Some(status)) if status.success() => return,
                Ok(Some(status)) => {
                    let last = fs::read_to_string(self.folder.join(LOGS[2])).unwrap_or_default();
                    let last = last.lines().last().unwrap_or_default();
                    return verdict.fail(Failure::Qemu(format!("{status}: {last}")));
                }
                Err(error) => return verdict.fail(Failure::Qemu(error.to_string())),
            }
            // The server ends with QEMU. Its end is a failure only before the verdict.
            if !verdict.is_said()
                && let Some(why) = self.server.as_mut().and_then(Server::ended)
            {
                verdict.fail(Failure::Server(why));
            }
            if verdict.is_said() && said.is_none() {
                said = Some(Instant::now());
            }
            if !self.shell {
                let said = said.map(|said| said.elapsed());
                verdict.time(&self.limits, started.elapsed(), heard.elapsed(), said);
            }
            if verdict.is_lost() || verdict.has_complaint() {
                let lost = lost.get_or_insert_with(Instant::now);
                if lost.elapsed() > AFTERMATH {
                    return;
                }
            }
            thread::sleep(STEP);
        }
    }
}

/// Reader of a growing file.
struct Tail {
    path: PathBuf,
    file: Option<File>,
    /// Incomplete last line.
    pending: Vec<u8>,
}

impl Tail {
    fn new(path: PathBuf) -> Self {
        Self { path, file: None, pending: Vec::new() }
    }

    /// Lines that were completed since the last call.
    fn lines(&mut self) -> Vec<String> {
        if self.file.is_none() {
            self.file = File::open(&self.path).ok();
        }
        if let Some(file) = &mut self.file {
            let _ = file.read_to_end(&mut self.pending);
        }
        let Some(end) = self.pending.iter().rposition(|&byte| byte == b'\n') else {
            return Vec::new();
        };
        let rest = self.pending.split_off(end + 1);
        let whole = std::mem::replace(&mut self.pending, rest);
        let text = String::from_utf8_lossy(&whole);
        text.lines().map(|line| line.trim_end_matches('\r').to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_tail_gives_whole_lines() {
        let path = std::env::temp_dir().join(format!("uverbs-tail-{}", std::process::id()));
        let mut file = File::create(&path).expect("a file");
        let mut tail = Tail::new(path.clone());
        assert_eq!(tail.lines(), Vec::<String>::new());
        file.write_all(b"one\r\ntwo\nthr").expect("written");
        assert_eq!(tail.lines(), ["one", "two"]);
        file.write_all(b"ee\n").expect("written");
        assert_eq!(tail.lines(), ["three"]);
        assert_eq!(tail.lines(), Vec::<String>::new());
        fs::remove_file(path).expect("removed");
    }
}
