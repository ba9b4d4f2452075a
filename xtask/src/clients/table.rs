//! Rows of `tests/clients/programs.txt`: groups of packages, and programs with their outcomes.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::debian::apt::failed;
use crate::step::Outcome;

/// Limit of a row that states none.
const SECONDS: u64 = 60;

/// Packages that are unpacked together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) name: String,
    /// Packages of Debian 12. Their dependencies follow.
    pub(crate) debian: Vec<String>,
    /// Source distributions of PyPI, with their versions.
    pub(crate) source: Vec<String>,
    /// Crates, with their versions.
    pub(crate) crates: Vec<String>,
    /// Shell text that takes the place of the packages' installation, and builds the sources.
    pub(crate) setup: String,
    /// Wheels of PyPI, with their versions.
    pub(crate) pypi: Vec<String>,
}

/// Outcome of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    Ok,
    Fails,
}

/// Program, or a server with its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) server: Option<String>,
    pub(crate) client: String,
    /// Text that the output must contain.
    pub(crate) prints: Option<String>,
    /// Sockets become RDMA streams.
    pub(crate) sockets: bool,
    /// Runs as root of its namespace, otherwise as user 1000.
    pub(crate) is_root: bool,
    pub(crate) limit: Duration,
    pub(crate) expected: Expected,
    pub(crate) reason: Option<String>,
    /// Outcome with Debian's libraries on the same device, if it was looked at.
    pub(crate) c: Option<Expected>,
    /// Part of the test command.
    pub(crate) daily: bool,
}

/// Rows of the table.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) groups: Vec<Group>,
    pub(crate) programs: Vec<Program>,
}

impl Table {
    /// Reads the project's table.
    ///
    /// # Errors
    ///
    /// The file or the stanza that can't be read.
    pub(crate) fn read(path: &Path) -> Result<Self, Outcome> {
        let text = fs::read_to_string(path).map_err(|error| failed(path, &error))?;
        Self::parse(&text).map_err(|why| failed(path, &why))
    }

    /// Parses stanzas, which empty lines separate. Lines that begin with `#` are comments.
    fn parse(text: &str) -> Result<Self, String> {
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let mut table = Self::default();
        for stanza in lines.split(|line| line.trim().is_empty()).filter(|lines| !lines.is_empty()) {
            let fields = fields(stanza)?;
            match fields[0].0 {
                "Group" => table.groups.push(group(&fields)?),
                "Program" => {
                    let program = program(&fields)?;
                    let name = &program.name;
                    if table.programs.iter().any(|other| other.name == *name) {
                        return Err(format!("two rows are named {name}"));
                    }
                    if !table.groups.iter().any(|group| group.name == program.group) {
                        return Err(format!("{name}: no group {} above it", program.group));
                    }
                    table.programs.push(program);
                }
                other => return Err(format!("a stanza begins with {other}")),
            }
        }
        Ok(table)
    }

    /// Group of a program.
    pub(crate) fn group_of(&self, program: &Program) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == program.group)
    }
}

type Fields<'a> = Vec<(&'a str, String)>;

/// Fields `NAME: VALUE`. An indented line continues the value.
fn fields<'a>(stanza: &[&'a str]) -> Result<Fields<'a>, String> {
    let mut fields: Fields<'a> = Vec::new();
    for line in stanza {
        if line.starts_with(' ') {
            let (_, value) = fields.last_mut().ok_or_else(|| format!("{line:?} continues none"))?;
            value.push(' ');
            value.push_str(line.trim());
        } else {
            let (name, value) =
                line.split_once(':').ok_or_else(|| format!("no field: {line:?}"))?;
            if fields.iter().any(|(other, _)| *other == name) {
                return Err(format!("two fields {line:?}"));
            }
            fields.push((name, value.trim().to_owned()));
        }
    }
    Ok(fields)
}

fn group(fields: &Fields<'_>) -> Result<Group, String> {
    let mut group = Group::default();
    for (name, value) in fields {
        let words = || value.split_whitespace().map(str::to_owned).collect();
        match *name {
            "Group" => group.name.clone_from(value),
            "Debian" => group.debian = words(),
            "Source" => group.source = words(),
            "Crates" => group.crates = words(),
            "Setup" => group.setup.clone_from(value),
            "PyPI" => group.pypi = words(),
            other => return Err(format!("{value}: a group has no field {other}")),
        }
    }
    Ok(group)
}

fn program(fields: &Fields<'_>) -> Result<Program, String> {
    let name = fields[0].1.clone();
    let (mut group, mut server, mut client, mut prints) = (None, None, None, None);
    let (mut sockets, mut is_root, mut daily, mut seconds) = (false, true, false, SECONDS);
    let (mut expected, mut reason, mut c) = (None, None, None);
    for (field, value) in fields {
        let wrong = || format!("{name}: {field} can't be {value:?}");
        match *field {
            "Program" => {}
            "In" => group = Some(value.clone()),
            "Server" => server = Some(value.clone()),
            "Client" | "Command" => client = Some(value.clone()),
            "Prints" => prints = Some(value.clone()),
            "Sockets" => sockets = value == "yes",
            "User" => is_root = value != "ordinary",
            "Daily" => daily = value == "yes",
            "Seconds" => seconds = value.parse().map_err(|_| wrong())?,
            "Outcome" => expected = Some(outcome(value).ok_or_else(wrong)?),
            "C" => c = Some(outcome(value).ok_or_else(wrong)?),
            "Reason" => reason = Some(value.clone()),
            other => return Err(format!("{name}: a program has no field {other}")),
        }
    }
    let missing = |field: &str| format!("{name}: no field {field}");
    let expected = expected.ok_or_else(|| missing("Outcome"))?;
    if (expected == Expected::Fails) != reason.is_some() {
        return Err(format!("{name}: a failing program alone has a Reason"));
    }
    Ok(Program {
        group: group.ok_or_else(|| missing("In"))?,
        client: client.ok_or_else(|| missing("Client"))?,
        limit: Duration::from_secs(seconds),
        name,
        server,
        prints,
        sockets,
        is_root,
        expected,
        reason,
        c,
        daily,
    })
}

fn outcome(text: &str) -> Option<Expected> {
    match text {
        "ok" => Some(Expected::Ok),
        "fails" => Some(Expected::Fails),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: &str = "# a table\nGroup: a\nDebian: b\n c\nSetup: d e\n f\nPyPI: f==1\n\
                         Source: g==2\nCrates: h==3 i==4\n\n";

    fn with(rows: &str) -> Result<Table, String> {
        Table::parse(&format!("{GROUP}{rows}"))
    }

    #[test]
    fn stanzas_are_rows() {
        let rows = "Program: g\nIn: a\nServer: h\nClient: i\n 10.9.0.1: j\nSeconds: 5\nOutcome: \
                    fails\nReason: k\nC: ok\n\n\nProgram: l\nIn: a\nCommand: m\nOutcome: ok\n\
                    Daily: yes\nUser: ordinary\n";
        let table = with(rows).unwrap();
        assert_eq!(table.groups[0].debian, ["b", "c"]);
        assert_eq!((&table.groups[0].setup[..], table.groups[0].pypi.len()), ("d e f", 1));
        assert_eq!(
            (&table.groups[0].source[..], table.groups[0].crates.len()),
            (&["g==2".to_owned()][..], 2)
        );
        let [first, second] = &table.programs[..] else { panic!("{table:?}") };
        assert_eq!((first.server.as_deref(), &first.client[..]), (Some("h"), "i 10.9.0.1: j"));
        assert_eq!((first.limit, first.expected), (Duration::from_secs(5), Expected::Fails));
        assert_eq!((first.c, first.daily), (Some(Expected::Ok), false));
        assert_eq!((second.server.as_deref(), second.daily), (None, true));
        assert_eq!((first.is_root, second.is_root), (true, false));
        assert_eq!(table.group_of(second), Some(&table.groups[0]));
    }

    #[test]
    fn a_wrong_row_is_named() {
        let row = "Program: g\nIn: a\nCommand: i\n";
        for (rows, why) in [
            (format!("{row}Outcome: fails\n"), "g: a failing program alone has a Reason"),
            (format!("{row}Outcome: ok\nReason: k\n"), "g: a failing program alone has a Reason"),
            (format!("{row}Outcome: may be\n"), "g: Outcome can't be \"may be\""),
            (row.to_owned(), "g: no field Outcome"),
            ("Program: g\nIn: b\nCommand: i\nOutcome: ok\n".to_owned(), "g: no group b above it"),
            ("Program: g\nIn: a\nOutcome: ok\n".to_owned(), "g: no field Client"),
            (format!("{row}Outcome: ok\nRuns: 2\n"), "g: a program has no field Runs"),
            (format!("{row}Outcome: ok\n\n{row}Outcome: ok\n"), "two rows are named g"),
        ] {
            assert_eq!(with(&rows).map(|_| ()), Err(why.to_owned()));
        }
    }

    #[test]
    fn the_projects_table_is_one() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/clients/programs.txt");
        let table = Table::parse(&fs::read_to_string(path).unwrap()).unwrap();
        assert_eq!(table.programs.iter().filter(|program| program.daily).count(), 10);
    }
}
