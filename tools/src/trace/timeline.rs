//! Timeline: the data path of one or two devices as a picture, from top to bottom.
//!
//! Each device has two lines: its program, and the device. A doorbell is an arrow from program to
//! device, a completion an arrow back. A packet is an arrow between devices, from its sending to
//! its reading. Distances follow the texts, not the times, which are printed beside the events.

use std::fmt::Write as _;

use super::describe;
use super::event::{Event, Kind};

/// Dimensions of the picture, in pixels.
const ROW: usize = 24;
const TOP: usize = 64;
const TIMES: usize = 96;
/// Distance of a program from its device, and between the devices.
const NEAR: usize = 330;
const FAR: usize = 470;

/// An end: a device of a process.
type End<'a> = (u32, &'a str);

/// Draws `rows` events of the data path, after the first `skip`.
pub(super) fn draw(events: &[Event], skip: usize, rows: usize) -> String {
    let data = events.iter().filter(|event| event.is_data());
    let shown: Vec<&Event> = data.skip(skip).take(rows).collect();
    let mut ends: Vec<End<'_>> = Vec::new();
    for event in &shown {
        if !ends.contains(&end(event)) && ends.len() < 2 {
            ends.push(end(event));
        }
    }
    let shown: Vec<&Event> = shown.into_iter().filter(|event| ends.contains(&end(event))).collect();
    let mut picture = Picture { ends, body: String::new(), rows: shown.len() };
    picture.heads();
    let first = shown.first().map_or(0, |event| event.at);
    let arrivals = arrivals(&shown);
    for (row, event) in shown.iter().enumerate() {
        let micros = (event.at - first) as f64 / 1000.0;
        let y = Picture::y(row);
        picture.text(TIMES - 12, y + 4, "end", "#555", &format!("{micros:.1} µs"));
        picture.event(row, event, arrivals[row]);
    }
    picture.finish()
}

fn end(event: &Event) -> End<'_> {
    (event.pid, &event.device)
}

/// For each row, the row in which its packet was read: the first later row with the same packet and
/// no sender yet.
fn arrivals(events: &[&Event]) -> Vec<Option<usize>> {
    let mut taken = vec![false; events.len()];
    let mut arrivals = vec![None; events.len()];
    for (row, sent) in events.iter().enumerate().filter(|(_, event)| event.kind == Kind::Sent) {
        let bytes = key(sent);
        let later = (row + 1..events.len()).find(|&later| {
            let event = events[later];
            event.kind == Kind::Received && !taken[later] && key(event) == bytes
        });
        if let Some(later) = later {
            taken[later] = true;
            arrivals[row] = Some(later);
        }
    }
    arrivals
}

/// Bytes of a packet without those that change on the way: congestion bits, ICRC.
fn key(event: &Event) -> Vec<u8> {
    let mut bytes = event.bytes("bytes");
    if let Some(congestion) = bytes.get_mut(4) {
        *congestion = 0;
    }
    bytes.truncate(bytes.len().saturating_sub(4));
    bytes
}

struct Picture<'a> {
    ends: Vec<End<'a>>,
    body: String,
    rows: usize,
}

impl Picture<'_> {
    fn y(row: usize) -> usize {
        TOP + row * ROW + ROW / 2
    }

    /// Lines of an end: program and device. The second end is mirrored.
    fn lines(&self, end: End<'_>) -> (usize, usize) {
        let first = (TIMES + 40, TIMES + 40 + NEAR);
        match self.ends.iter().position(|known| *known == end) {
            Some(1) => (first.1 + FAR + NEAR, first.1 + FAR),
            _ => first,
        }
    }

    fn text(&mut self, x: usize, y: usize, anchor: &str, color: &str, said: &str) {
        let said = said.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = writeln!(
            self.body,
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" fill=\"{color}\">{said}</text>"
        );
    }

    fn arrow(&mut self, from: (usize, usize), to: (usize, usize), color: &str) {
        let _ = writeln!(
            self.body,
            "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{color}\" \
             marker-end=\"url(#head)\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    /// Draws the names at the top, and a line down from each.
    fn heads(&mut self) {
        let bottom = Self::y(self.rows);
        let several = self.ends.iter().any(|(pid, _)| *pid != self.ends[0].0);
        for end in self.ends.clone() {
            let (program, device) = self.lines(end);
            let (pid, name) = end;
            let who = if several { format!("program {pid}") } else { "program".to_owned() };
            for (x, said) in [(program, who), (device, name.to_owned())] {
                self.text(x, TOP - 28, "middle", "black", &said);
                let _ = writeln!(
                    self.body,
                    "<line x1=\"{x}\" y1=\"{}\" x2=\"{x}\" y2=\"{bottom}\" stroke=\"#bbb\"/>",
                    TOP - 18
                );
            }
        }
    }

    fn event(&mut self, row: usize, event: &Event, arrival: Option<usize>) {
        let y = Self::y(row);
        let (program, device) = self.lines(end(event));
        let middle = usize::midpoint(program, device);
        match event.kind {
            Kind::Doorbell => {
                self.arrow((program, y), (device, y), "#06c");
                let said = format!("doorbell: {}", short(event));
                self.text(middle, y - 4, "middle", "#06c", &said);
            }
            Kind::Cqe => {
                self.arrow((device, y), (program, y), "#080");
                self.text(middle, y - 4, "middle", "#080", &short(event));
            }
            Kind::Wqe | Kind::Receive => self.own(device, y, middle, &short(event)),
            Kind::Sent => {
                let said = describe::packet(event);
                match arrival {
                    Some(later) if self.ends.len() == 2 => self.packet(row, later, event, &said),
                    _ => {
                        self.arrow((device, y), (device + 60, y), "#a40");
                        self.text(device + 68, y + 4, "start", "#a40", &format!("sends {said}"));
                    }
                }
            }
            // If the sender is in the picture, the event is the end of an arrow.
            Kind::Received if self.ends.len() == 2 => self.own(device, y, middle, "reads it"),
            Kind::Received => {
                let said = format!("reads {}", describe::packet(event));
                self.text(device + 68, y + 4, "start", "#a40", &said);
                self.arrow((device + 60, y), (device, y), "#a40");
            }
            Kind::Ioctl | Kind::Mmap => {}
        }
    }

    /// Draws an event of one device.
    fn own(&mut self, device: usize, y: usize, middle: usize, said: &str) {
        let _ = writeln!(self.body, "<circle cx=\"{device}\" cy=\"{y}\" r=\"4\" fill=\"#555\"/>");
        let (x, anchor) =
            if middle < device { (device - 10, "end") } else { (device + 10, "start") };
        self.text(x, y + 4, anchor, "#333", said);
    }

    fn packet(&mut self, row: usize, later: usize, event: &Event, said: &str) {
        let (_, from) = self.lines(end(event));
        let other = self.ends.iter().find(|known| **known != end(event)).copied();
        let Some((_, to)) = other.map(|other| self.lines(other)) else { return };
        let (start, stop) = (Self::y(row), Self::y(later));
        self.arrow((from, start), (to, stop), "#a40");
        self.text(usize::midpoint(from, to), start - 4, "middle", "#a40", said);
    }

    fn finish(self) -> String {
        let lines = if self.ends.len() == 2 { 2 * NEAR + FAR } else { NEAR + FAR };
        let (width, height) = (TIMES + 120 + lines, Self::y(self.rows) + 16);
        let body = self.body;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <defs><marker id=\"head\" viewBox=\"0 0 10 10\" refX=\"10\" refY=\"5\" \
             markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\">\
             <path d=\"M0 0L10 5L0 10z\"/></marker></defs>\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n{body}</svg>\n"
        )
    }
}

/// Text that fits between a program and its device.
fn short(event: &Event) -> String {
    let line = describe::line(event);
    let line = line
        .strip_prefix("UAR ")
        .and_then(|rest| rest.split_once(": "))
        .map_or(line.as_str(), |(_, rest)| rest);
    line.split(", ").take(3).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::event::parse;
    use super::*;

    /// An RC SEND ONLY of no bytes to queue pair 0x48, PSN 5.
    const PACKET: &str = "0400ffff00000048800000050000 0000";

    fn events() -> Vec<Event> {
        let packet = PACKET.replace(' ', "");
        let text = format!(
            "10\t1\ta\tioctl\tresult=ok\n\
             20\t1\ta\tdoorbell\tuar=16\toffset=0x800\tvalue=0xa00004802\n\
             30\t1\ta\tsent\tbytes={packet}\n\
             40\t2\tb\treceived\tbytes={packet}\n\
             50\t2\tc\tcqe\tcqn=1\tbytes=00\n"
        );
        parse(&text).unwrap()
    }

    #[test]
    fn a_packet_is_an_arrow_between_two_devices() {
        let events = events();
        let shown: Vec<&Event> = events.iter().filter(|event| event.is_data()).collect();
        assert_eq!(arrivals(&shown), [None, Some(2), None, None]);
        let picture = draw(&events, 0, 40);
        for says in [">a<", ">b<", "program 1", "program 2", "RC_SEND_ONLY", ">0.0 µs<"] {
            assert!(picture.contains(says), "{says}:\n{picture}");
        }
        // The third device is not drawn, and the packet is mentioned once.
        assert!(!picture.contains(">c<"));
        assert_eq!(picture.matches("RC_SEND_ONLY").count(), 1);
    }

    #[test]
    fn rows_are_what_was_asked_for() {
        let picture = draw(&events(), 1, 1);
        assert_eq!(picture.matches(" µs<").count(), 1);
        assert!(picture.contains("sends RC_SEND_ONLY"), "{picture}");
        assert!(draw(&[], 0, 40).starts_with("<svg"));
    }
}
