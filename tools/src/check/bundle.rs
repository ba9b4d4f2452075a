//! `--bundle`: a file for a bug report, of report, versions, capabilities and a trace, without
//! addresses and names of the host.

use std::fs;
use std::process::{Command, Stdio};

use nix::sys::utsname::uname;
use nix::unistd::gethostname;
use serde_json::{Value, json};

use super::redact::Redactor;
use super::report::Report;
use crate::base::error::Error;
use crate::base::keeper::Keeper;
use crate::base::select::PortArgs;
use crate::devinfo;
use uverbs::Device;

/// Events of a trace that are kept: opening, a queue pair's life, and two messages have some
/// hundred.
const EVENTS: usize = 2000;

/// Writes the bundle. Parts that can't be had have the reason in their place.
pub(super) fn write(
    keeper: Keeper,
    report: &Report<'_>,
    device: &Device,
    at: &PortArgs,
    host: Option<&str>,
) -> Result<(), Error> {
    let part = |found: Result<Value, String>| found.unwrap_or_else(|why| json!({ "missing": why }));
    let mut bundle = json!({
        "kind": "uverbs-bundle",
        "versions": versions(),
        "report": part(serde_json::to_value(report).map_err(|error| error.to_string())),
        "capabilities": part(devinfo::json_of(device).map_err(|error| error.to_string())),
        "trace": part(trace(at)),
    });
    let own = gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default();
    // Names without their domain, too.
    let short = own.split('.').next().unwrap_or_default().to_owned();
    let names = [own, short].into_iter().chain(host.map(str::to_owned));
    Redactor::new(names).value(&mut bundle);
    let text = serde_json::to_string_pretty(&bundle).unwrap_or_default() + "\n";
    keeper.keep(text.as_bytes())
}

fn versions() -> Value {
    let system = uname().ok();
    let text = |of: fn(&nix::sys::utsname::UtsName) -> &std::ffi::OsStr| {
        system.as_ref().map(|system| of(system).to_string_lossy().into_owned())
    };
    json!({
        "uverbs": env!("CARGO_PKG_VERSION"),
        "fences": super::survey::fences(),
        "kernel": text(|system| system.release()),
        "build": text(|system| system.version()),
        "machine": text(|system| system.machine()),
    })
}

/// Trace of a ping-pong of two messages on the device.
fn trace(at: &PortArgs) -> Result<Value, String> {
    let own = std::env::current_exe().map_err(|error| format!("this program's file: {error}"))?;
    let file = tempfile::NamedTempFile::new().map_err(|error| format!("a file: {error}"))?;
    let mut command = Command::new(&own);
    command.args(["trace", "--quiet", "--json"]).arg(file.path()).arg("--").arg(&own);
    command.args([
        "pingpong",
        "--quiet",
        "-n",
        "1",
        "--warmup",
        "0",
        "-i",
        &at.ib_port.to_string(),
    ]);
    if let Some(device) = &at.device {
        command.args(["-d", device]);
    }
    if let Some(index) = at.gid_index {
        command.args(["-x", &index.to_string()]);
    }
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("a trace: {error}"))?;
    let text = fs::read_to_string(file.path()).map_err(|error| format!("a trace: {error}"))?;
    let whole: Value = serde_json::from_str(&text).map_err(|_| {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        format!("no trace: {}", said.trim())
    })?;
    // Bytes of commands and packets have addresses; lines have the fields that matter.
    let line =
        |event: &Value| json!({ "at": event["at"], "kind": event["kind"], "line": event["line"] });
    let events = whole["events"].as_array().map(Vec::as_slice).unwrap_or_default();
    Ok(events.iter().take(EVENTS).map(line).collect())
}
