//! `uverbs resources`: objects of the devices and the processes that hold them.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Map, Value, json};
use uverbs::report::{Resource, ResourceKind};

use super::holders::{Owner, Processes};
use crate::base::error::Error;
use crate::base::output;
use crate::base::peer_text::shown;
use crate::base::select;

/// Print the objects of the devices and the processes that hold them.
///
/// Open devices (ctx), protection domains, memory regions, completion queues, shared receive
/// queues, queue pairs and ids of the connection manager, as `rdma resource` lists them, by
/// process. Keys of memory regions need the capability CAP_NET_ADMIN. A software HCA lists the
/// objects of its process.
///
/// The kernel names the thread that created an object. Objects whose creator ended come last, with
/// a count: they are leaked, unless another thread or a child of the creator has them.
///
/// A part that can't be read is a line on stderr, and the rest goes on.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "EXAMPLES:\n  \
    uverbs resources\n  \
    uverbs resources -d mlx5_0 --pid 4711\n  \
    uverbs resources --summary\n  \
    uverbs resources --json | jq '.holders[] | select(.lost)'\n\n\
    EXIT STATUS: 0, 1 when the devices can't be listed, 2 for a device that isn't there.")]
pub(crate) struct Args {
    /// Device, or near:PLACE [default: all]
    #[arg(short = 'd', long, value_name = "NAME")]
    device: Option<String>,
    /// Only objects of this process
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
    /// Print the number of objects of each kind instead of the objects
    #[arg(long)]
    summary: bool,
    /// Print one JSON object: {"holders": [...], "gaps": [...]}
    #[arg(long)]
    json: bool,
}

/// Objects of a holder, each with its device.
pub(crate) type Held = BTreeMap<Owner, Vec<(String, Resource)>>;

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let devices = select::named_or_all(args.device.as_deref())?;
    let mut gaps = Vec::new();
    let mut held = Held::new();
    for device in &devices {
        let report = device.resources();
        super::complain(device.name(), &report.gaps);
        gaps.extend(report.gaps.iter().map(|gap| format!("{}: {gap}", device.name())));
        group(&mut held, device.name(), report.held, &Processes::default());
    }
    if let Some(wanted) = args.pid {
        held.retain(|owner, _| match owner {
            Owner::Process { pid, .. } | Owner::Hidden(pid) => *pid == wanted,
            _ => false,
        });
    }
    if args.json {
        return output::json(&json!({ "holders": json_of(&held), "gaps": gaps }));
    }
    output::print(&if args.summary { summary(&held) } else { text(&held) })
}

pub(crate) fn group(held: &mut Held, device: &str, objects: Vec<Resource>, processes: &Processes) {
    for object in objects {
        let owner = processes.owner(&object.holder);
        held.entry(owner).or_default().push((device.to_owned(), object));
    }
}

fn text(held: &Held) -> String {
    let mut text = String::new();
    for (owner, objects) in held {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(text, "{}", shown(owner.title().as_bytes()));
        for (device, object) in objects {
            let number = object.number.map_or("-".to_owned(), |number| number.to_string());
            let _ = write!(text, "  {device:<10} {:<6} {number:>8} ", object.kind);
            for (name, value) in &object.attributes {
                let _ = write!(text, " {name} {value}");
            }
            text.push('\n');
        }
    }
    text + &lost(held)
}

/// A table of counts by holder.
pub(crate) fn summary(held: &Held) -> String {
    let kinds = ResourceKind::ALL;
    let mut text = String::new();
    for kind in kinds {
        let _ = write!(text, "{kind:>6} ");
    }
    text.push_str(" holder\n");
    for (owner, objects) in held {
        for kind in kinds {
            let count = objects.iter().filter(|(_, object)| object.kind == kind).count();
            let _ = write!(text, "{count:>6} ");
        }
        let _ = writeln!(text, " {}", shown(owner.title().as_bytes()));
    }
    text + &lost(held)
}

/// The last line: the number of objects, and of those without a living creator.
fn lost(held: &Held) -> String {
    let count = |lost: bool| -> usize {
        held.iter().filter(|(owner, _)| owner.is_lost() || !lost).map(|(_, all)| all.len()).sum()
    };
    match (count(false), count(true)) {
        (0, _) => "no objects\n".to_owned(),
        (all, 0) => format!("{all} objects, none without a living creator\n"),
        (all, lost) => format!("{all} objects, {lost} without a living creator (leaked?)\n"),
    }
}

fn json_of(held: &Held) -> Vec<Value> {
    let object = |(device, object): &(String, Resource)| {
        let mut map = Map::new();
        map.insert("device".to_owned(), device.as_str().into());
        map.insert("kind".to_owned(), object.kind.name().into());
        map.insert("number".to_owned(), object.number.into());
        for (name, value) in &object.attributes {
            map.insert((*name).to_owned(), value.as_str().into());
        }
        Value::from(map)
    };
    let holder = |(owner, objects): (&Owner, &Vec<(String, Resource)>)| {
        let (kind, pid, name) = match owner {
            Owner::Process { pid, name } => ("process", Some(*pid), Some(name)),
            Owner::Hidden(pid) => ("hidden", Some(*pid), None),
            Owner::Kernel(name) => ("kernel", None, Some(name)),
            Owner::Gone => ("gone", None, None),
        };
        json!({
            "holder": kind, "pid": pid, "name": name, "lost": owner.is_lost(),
            "objects": objects.iter().map(object).collect::<Vec<_>>(),
        })
    };
    held.iter().map(holder).collect()
}

#[cfg(test)]
mod tests {
    use uverbs::report::Holder;

    use super::*;

    fn held() -> Held {
        let objects = vec![
            Resource::new(ResourceKind::Pd, Some(3), Holder::Task(std::process::id())),
            Resource::new(ResourceKind::Qp, Some(1), Holder::Kernel("ib_core".to_owned())),
            Resource::new(ResourceKind::Mr, Some(9), Holder::Gone).with("mrlen", Some(4096)),
        ];
        let mut held = Held::new();
        group(&mut held, "mlx5_0", objects, &Processes::default());
        held
    }

    #[test]
    fn objects_are_grouped_and_leaks_come_last() {
        let text = text(&held());
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with(&format!("pid {} ", std::process::id())), "{text}");
        assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>(), ["mlx5_0", "pd", "3"]);
        assert_eq!(lines[2], "kernel ib_core");
        assert!(lines[4].starts_with("creator ended"), "{text}");
        let words: Vec<_> = lines[5].split_whitespace().collect();
        assert_eq!(words, ["mlx5_0", "mr", "9", "mrlen", "4096"]);
        assert_eq!(lines[6], "3 objects, 1 without a living creator (leaked?)");
        let json = json_of(&held());
        assert_eq!(json[2]["lost"], true);
        assert_eq!(json[2]["objects"][0]["mrlen"], "4096");
    }

    #[test]
    fn a_summary_counts_by_kind() {
        let text = summary(&held());
        let rows: Vec<Vec<_>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["ctx", "pd", "mr", "cq", "srq", "qp", "cm_id", "holder"]);
        assert_eq!(rows[1][..7], ["0", "1", "0", "0", "0", "0", "0"]);
        assert_eq!(rows[3][..7], ["0", "0", "1", "0", "0", "0", "0"]);
        assert_eq!(lost(&Held::new()), "no objects\n");
    }
}
