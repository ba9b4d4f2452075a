//! Part of a check beside the C libraries: what `ibv_devinfo` says of the device, where it is
//! installed, and what this library says.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Read;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use uverbs::Device;

use super::report::Row;
use crate::base::error::Error;
use crate::base::select;
use crate::devinfo;

const PART: &str = "beside C";
const NAME: &str = "ibv_devinfo";

/// Time until the program must have ended.
const LIMIT: Duration = Duration::from_secs(10);

/// Fields that both print alike.
const FIELDS: [&str; 37] = [
    "fw_ver",
    "node_guid",
    "sys_image_guid",
    "vendor_id",
    "vendor_part_id",
    "hw_ver",
    "phys_port_cnt",
    "max_mr_size",
    "page_size_cap",
    "max_qp",
    "max_qp_wr",
    "max_sge",
    "max_sge_rd",
    "max_cq",
    "max_cqe",
    "max_mr",
    "max_pd",
    "max_qp_rd_atom",
    "max_res_rd_atom",
    "max_qp_init_rd_atom",
    "atomic_cap",
    "max_mw",
    "max_mcast_grp",
    "max_mcast_qp_attach",
    "max_ah",
    "max_srq",
    "max_srq_wr",
    "max_srq_sge",
    "max_pkeys",
    "local_ca_ack_delay",
    "state",
    "max_mtu",
    "active_mtu",
    "sm_lid",
    "port_lid",
    "port_lmc",
    "link_layer",
];

/// A row for a device that the C library may know; none for one of this process.
pub(super) fn rows(device: &Device, port: u8) -> Vec<Row> {
    match select::software(device) {
        Some(_) => Vec::new(),
        None => vec![row(NAME.as_ref(), device.name(), port, || devinfo::text_of(device, port))],
    }
}

fn row(
    program: &OsStr,
    device: &str,
    port: u8,
    ours: impl FnOnce() -> Result<String, Error>,
) -> Row {
    let mut command = Command::new(program);
    command.args(["-v", "-d", device, "-i", &port.to_string()]);
    let theirs = match output(command) {
        Ok(Some(text)) => text,
        Ok(None) => return Row::good(PART, NAME, "not installed: nothing to compare with"),
        Err(why) => return Row::untried(PART, NAME, why),
    };
    match ours() {
        Ok(ours) => compare(&fields(&ours), &fields(&theirs)),
        Err(error) => Row::of_error(PART, NAME, &error),
    }
}

/// Output of a program; `None` if it is not installed.
fn output(mut command: Command) -> Result<Option<String>, String> {
    let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("it can't be run: {error}")),
    };
    let pipe = child.stdout.take();
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        // A cut output lacks fields, which the comparison tells.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        bytes
    });
    let end = Instant::now() + LIMIT;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < end => thread::sleep(Duration::from_millis(5)),
            Ok(None) | Err(_) => {
                // It may have ended meanwhile.
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it did not end within {} s", LIMIT.as_secs()));
            }
        }
    };
    let bytes = reader.join().unwrap_or_default();
    if !status.success() {
        return Err(format!("it ended with {status}: the C libraries may not know the device"));
    }
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// First value of each field.
fn fields(text: &str) -> BTreeMap<&str, &str> {
    let mut fields = BTreeMap::new();
    for line in text.lines() {
        if let Some((name, value)) = line.trim().split_once(':') {
            fields.entry(name).or_insert(value.trim());
        }
    }
    fields
}

fn compare(ours: &BTreeMap<&str, &str>, theirs: &BTreeMap<&str, &str>) -> Row {
    let (mut equal, mut differ) = (0, Vec::new());
    for name in FIELDS {
        match (ours.get(name), theirs.get(name)) {
            (Some(ours), Some(theirs)) if is_same(ours, theirs) => equal += 1,
            (Some(ours), Some(theirs)) => differ.push(format!("{name}: {ours}, there {theirs}")),
            // Versions of the program print different fields.
            _ => {}
        }
    }
    match (equal, differ.is_empty()) {
        (0, true) => Row::untried(PART, NAME, "its output has no field that is known here"),
        (_, true) => Row::good(PART, NAME, format!("{equal} fields are equal")),
        (_, false) => Row::failed(PART, NAME, differ.join("; ")),
    }
}

/// True for equal values; providers pad the numbers of a version differently.
fn is_same(ours: &str, theirs: &str) -> bool {
    let numbers =
        |text: &str| text.split('.').map(str::parse::<u64>).collect::<Result<Vec<_>, _>>().ok();
    ours == theirs || numbers(ours).is_some_and(|ours| numbers(theirs) == Some(ours))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const OURS: &str = "\tfw_ver:   99.0.1\n\tmax_qp:  64\n\t\tport: 1\n\t\t\tmax_mtu: 4096 (5)\n";

    /// Verdict and text with a program that does this.
    fn told(script: &str) -> (String, String) {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("ibv_devinfo");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let row = row(program.as_os_str(), "mlx5_0", 1, || Ok(OURS.to_owned()));
        let row = serde_json::to_value(row).unwrap();
        let text = |name: &str| row[name].as_str().unwrap().to_owned();
        (text("verdict"), text("text"))
    }

    #[test]
    fn answers_of_the_c_library_are_compared() {
        let same = "printf 'hca_id:\\tmlx5_0\\n\\tfw_ver:\\t\\t99.0.0001\\n\\tmax_qp:\\t64\\n'";
        assert_eq!(told(same), ("good".into(), "2 fields are equal".into()));
        let other = "[ $1$2$3$4$5 = -v-dmlx5_0-i1 ] && printf 'fw_ver:\\t99.0.1\\nmax_qp: 65\\n'";
        assert_eq!(told(other), ("failed".into(), "max_qp: 64, there 65".into()));
        for (script, says) in [
            ("exit 1", "may not know the device"),
            ("kill -9 $$", "signal: 9"),
            ("head -c 3000 /dev/zero", "no field that is known"),
            ("true", "no field that is known"),
        ] {
            let (verdict, text) = told(script);
            assert!(verdict == "untried" && text.contains(says), "{script}: {verdict} {text}");
        }
        let absent = row("/no/such".as_ref(), "mlx5_0", 1, || Ok(OURS.to_owned()));
        let absent = serde_json::to_value(absent).unwrap();
        assert_eq!(absent["verdict"], "good");
        assert!(absent["text"].as_str().unwrap().starts_with("not installed"));
    }
}
