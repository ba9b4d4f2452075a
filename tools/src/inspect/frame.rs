//! Lines of `uverbs top`.

use uverbs::PortState;
use uverbs::place::PortPlace;
use uverbs::report::CounterSet;

use super::counters::per_second;
use super::resources::{Held, summary};
use super::snapshot::{Reading, Snapshot, title};
use crate::base::peer_text::shown;

/// All that a report shows.
#[derive(Debug)]
pub(super) struct State {
    pub(super) now: Vec<Snapshot>,
    /// Counters with their device and rates.
    pub(super) readings: Vec<(String, Reading)>,
    pub(super) held: Held,
    pub(super) gaps: Vec<String>,
    /// Ports with their device.
    pub(super) ports: Vec<(String, PortPlace)>,
}

/// Lines of a report, at most `rows` of `columns` characters.
pub(super) fn frame(state: &State, columns: usize, rows: Option<usize>) -> Vec<String> {
    let mut lines = vec![
        format!("uverbs top: devices {}, q quits", state.now.len()),
        format!(
            "{:<12} {:>4} {:<8} {:>12} {:>12} {:>12} {:>12}",
            "device", "port", "state", "rx bit/s", "rx packets/s", "tx bit/s", "tx packets/s"
        ),
    ];
    lines.extend(state.ports.iter().map(|(device, port)| port_line(state, device, port)));
    lines.extend(state.gaps.iter().map(|gap| shown(gap.as_bytes())));
    lines.push(String::new());
    let changed = changed(state);
    let holders: Vec<_> = summary(&state.held).lines().map(str::to_owned).collect();
    // Counters have the rows that the ports and half of the holders leave.
    let room = rows.map(|rows| {
        let left = rows.saturating_sub(lines.len() + 2);
        left.saturating_sub(holders.len().min(left / 2))
    });
    let most = room.unwrap_or(usize::MAX);
    lines.push("changed counters, fastest first".to_owned());
    if changed.is_empty() {
        lines.push("  none".to_owned());
    }
    lines.extend(changed.into_iter().take(most));
    lines.push(String::new());
    lines.extend(holders);
    if let Some(rows) = rows {
        lines.truncate(rows);
    }
    lines.into_iter().map(|line| cut(line, columns)).collect()
}

fn cut(line: String, columns: usize) -> String {
    match line.char_indices().nth(columns) {
        Some((end, _)) => line[..end].to_owned(),
        None => line,
    }
}

fn port_line(state: &State, device: &str, port: &PortPlace) -> String {
    let number = port.port;
    let rate = |names: &[(CounterSet, &str)]| {
        let mut all = state.readings.iter().filter(|(of, _)| of == device);
        all.find_map(|(_, reading)| {
            let is = |(set, name): &(CounterSet, &str)| {
                *set == reading.counter.set && *name == reading.counter.name
            };
            names.iter().any(is).then_some(reading.rate).flatten()
        })
    };
    // rxe and siw have packets among the hardware counters alone (`rxe_hw_counters.c`).
    let of_port = |name| (CounterSet::Port(number), name);
    let of_driver = |name| (CounterSet::Hardware(number), name);
    let packets =
        |port: &'static str, driver: &'static str| rate(&[of_port(port), of_driver(driver)]);
    // Data are counted in words of four bytes.
    let bits = |name| rate(&[of_port(name)]).map(|words| words * 32.0);
    let text = |rate: Option<f64>| rate.map_or("-".to_owned(), scaled);
    let name = port.state.map(|raw| PortState::from_raw(raw).to_string());
    let name = name.as_deref().map_or("?", |name| name.trim_start_matches("PORT_"));
    format!(
        "{:<12} {number:>4} {name:<8} {:>12} {:>12} {:>12} {:>12}",
        shown(device.as_bytes()),
        text(bits("port_rcv_data")),
        text(packets("port_rcv_packets", "rcvd_pkts")),
        text(bits("port_xmit_data")),
        text(packets("port_xmit_packets", "sent_pkts")),
    )
}

/// A rate without `/s`.
fn scaled(rate: f64) -> String {
    per_second(rate).trim_end_matches("/s").trim_end().to_owned()
}

/// Counters that changed, the fastest first.
fn changed(state: &State) -> Vec<String> {
    let mut changed: Vec<_> = state.readings.iter().filter(|(_, one)| one.changed).collect();
    let rate = |reading: &Reading| reading.rate.unwrap_or(0.0);
    changed.sort_by(|(_, a), (_, b)| rate(b).total_cmp(&rate(a)));
    let line = |(device, reading): &(String, Reading)| {
        let counter = &reading.counter;
        let rate = reading.rate.map_or("reset".to_owned(), per_second);
        let name = &counter.name;
        format!("  {rate:>12}  {name:<34} {device} {}", title(&counter.set))
    };
    changed.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use uverbs::report::{Counter, Holder, Resource, ResourceKind};

    use super::super::holders::Processes;
    use super::super::resources::group;
    use super::*;

    fn state(devices: u32, counters: u32) -> State {
        let mut held = Held::new();
        let mut ports = Vec::new();
        let mut readings = Vec::new();
        for number in 0..devices {
            let device = format!("mlx5_{number}");
            let mut port = PortPlace::new(1);
            port.state = Some(4);
            ports.push((device.clone(), port));
            let qp = Resource::new(ResourceKind::Qp, Some(number), Holder::Task(40_000 + number));
            group(&mut held, &device, vec![qp], &Processes::default());
            let mut read = |set, name: &str, rate| {
                let counter = Counter::new(set, name, 1000);
                readings.push((device.clone(), Reading { counter, rate, changed: true }));
            };
            read(CounterSet::Port(1), "port_rcv_data", Some(1e9));
            read(CounterSet::Hardware(1), "sent_pkts", Some(2000.0));
            for number in 0..counters {
                read(CounterSet::Device, &format!("counter_{number}"), Some(f64::from(number)));
            }
        }
        State { now: Vec::new(), readings, held, gaps: Vec::new(), ports }
    }

    #[test]
    fn a_report_fits_80_by_24_with_each_part_in_it() {
        let state = state(3, 40);
        let lines = frame(&state, 80, Some(24));
        assert!(lines.len() <= 24 && lines.iter().all(|line| line.chars().count() <= 80));
        let text = lines.join("\n");
        let port: Vec<_> = lines[2].split_whitespace().collect();
        assert_eq!(port, ["mlx5_0", "1", "ACTIVE", "32.00", "G", "-", "-", "2.00", "k"]);
        assert!(text.contains("1.00 G/s  port_rcv_data"), "{text}");
        assert!(text.contains("cm_id  holder"), "{text}");
        // The fastest counter comes first.
        let first = lines.iter().position(|line| line.starts_with("changed")).unwrap() + 1;
        assert!(lines[first].contains("port_rcv_data"), "{text}");
        for (columns, rows) in [(80, 24), (40, 10), (20, 3), (1, 1), (0, 0)] {
            let lines = frame(&state, columns, Some(rows));
            assert!(lines.len() <= rows && lines.iter().all(|line| line.len() <= columns));
        }
    }

    #[test]
    fn plain_text_has_all_lines() {
        let lines = frame(&state(3, 40), usize::MAX, None);
        assert_eq!(lines.iter().filter(|line| line.contains("counter_")).count(), 120);
        let mut lacking = state(1, 0);
        lacking.readings.clear();
        lacking.gaps.push("mlx5_0: counters: the device is gone".to_owned());
        let text = frame(&lacking, 80, Some(24)).join("\n");
        assert!(text.contains("the device is gone") && text.contains("  none"), "{text}");
    }
}
