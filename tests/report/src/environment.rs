// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the results come from, as their rows name it.

use anyhow::{bail, ensure, Result};

use crate::rows::{Row, Rows};

/// Fields that name it, and what they are called in the report.
const FIELDS: [(&str, &str); 8] = [
    ("kernel", "kernel"),
    ("accel", "accelerator"),
    ("cpus", "processors"),
    ("commit", "commit"),
    ("quick", "fewer samples"),
    ("module_args", "module options"),
    ("perftest", "perftest"),
    ("mpi_version", "MPI"),
];

/// A property and all values that rows have of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    pub name: &'static str,
    pub values: Vec<String>,
}

/// All properties that any row names.
pub fn properties(rows: &Rows) -> Vec<Property> {
    let all = rows.all();
    let property = |(field, name): (&str, &'static str)| {
        let mut values: Vec<String> = Vec::new();
        for value in all.rows().iter().filter_map(|row| row.shown(field)) {
            let value = value.trim().to_owned();
            if !value.is_empty() && !values.contains(&value) {
                values.push(value);
            }
        }
        Property { name, values }
    };
    let known = FIELDS.into_iter().map(property);
    known
        .filter(|property| !property.values.is_empty())
        .collect()
}

/// The same in a sentence.
pub fn sentence(rows: &Rows) -> String {
    let properties = properties(rows);
    let value = |name: &str| {
        let found = properties.iter().find(|property| property.name == name);
        found.map(|property| property.values.join(" and "))
    };
    let mut parts = Vec::new();
    if let Some(commit) = value("commit") {
        parts.push(format!("commit {commit}"));
    }
    if let Some(processors) = value("processors") {
        parts.push(format!("{processors} processors"));
    }
    let places: Vec<_> = rows.all().texts("accel").into_iter().map(place).collect();
    if !places.is_empty() {
        parts.push(places.join(" and "));
    }
    if let Some(kernel) = value("kernel") {
        parts.push(format!("kernel {kernel}"));
    }
    if let Some(perftest) = value("perftest") {
        parts.push(format!("perftest {perftest}"));
    }
    parts.join(", ")
}

/// What an accelerator means.
fn place(accel: &str) -> &str {
    match accel {
        "tcg" => "a virtual machine by emulation (QEMU's TCG) with soft-RoCE nodes",
        "kvm" => "a virtual machine by KVM with soft-RoCE nodes",
        "native" => "the machine itself",
        other => other,
    }
}

/// Fields that rows have in common if they were measured in one place with the same programs.
const PLACE: [&str; 4] = ["accel", "cpus", "commit", "kernel"];

/// Those of them that the machine gives.
const MACHINE: [&str; 3] = ["accel", "cpus", "kernel"];

/// Whether figures may be made of these rows. Those of a benchmark are compared with one another:
/// they have to be of one run, and in one place, of which there are two in a run: groups
/// over shared memory are on the machine itself, others in the virtual one.
pub fn check(rows: &Rows) -> Result<()> {
    let all = rows.all();
    let nameless = all.rows().iter().find(|row| row.text("commit").is_none());
    ensure!(nameless.is_none(), "a row does not name its commit");
    for bench in all.texts("bench") {
        let own = rows.of(bench);
        let [here, there] = by_place(own.rows());
        are_alike(bench, own.rows(), &["run"])?;
        are_alike(bench, &here, &PLACE)?;
        are_alike(bench, &there, &PLACE)?;
    }
    Ok(())
}

/// Rows that are measured on the machine itself, and the others.
fn by_place<'a>(rows: &[&'a Row]) -> [Vec<&'a Row>; 2] {
    let is_here =
        |row: &&Row| row.text("fabric") == Some("shm") || row.text("bench") == Some("rdmc-sim");
    let (here, there) = rows.iter().partition(|row| is_here(row));
    [here, there]
}

/// Whether benchmarks that are measured in the same place found the same machine there.
pub fn is_of_one_machine(rows: &Rows) -> bool {
    let places = by_place(rows.all().rows());
    places
        .iter()
        .all(|rows| differing(rows, &MACHINE).is_none())
}

fn are_alike(bench: &str, rows: &[&Row], fields: &[&str]) -> Result<()> {
    if let Some((field, values)) = differing(rows, fields) {
        let [first, other] = values.map(|value| value.unwrap_or_else(|| "none".to_owned()));
        bail!(
            "the rows of {bench} differ in `{field}`, so that they may not be compared with one \
             another: {first} and {other}"
        );
    }
    Ok(())
}

/// The first of the fields that two rows differ in, and what both have there.
fn differing<'a>(rows: &[&Row], fields: &[&'a str]) -> Option<(&'a str, [Option<String>; 2])> {
    fields.iter().find_map(|&field| {
        let mut values = rows.iter().map(|row| row.shown(field));
        let first = values.next()?;
        let other = values.find(|value| *value != first)?;
        Some((field, [first, other]))
    })
}

/// Whether all rows say that they are not of a quick run.
pub fn is_full(rows: &Rows) -> bool {
    let all = rows.all();
    let mut quick = all.rows().iter().map(|row| row.shown("quick"));
    quick.all(|quick| quick.as_deref() == Some("false"))
}

/// Whether all rows are of one commit without uncommitted changes.
pub fn is_of_one_commit(rows: &Rows) -> bool {
    match &rows.all().texts("commit")[..] {
        [commit] => *commit != "unknown" && !commit.ends_with("-dirty"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = r#"
{"bench":"datapath","kernel":"7.3.4","accel":"tcg","cpus":2,"commit":"abc","module_args":"","perftest":"6.24"}
{"bench":"multicast","kernel":"6.1","accel":"native","cpus":2,"commit":"abc","module_args":null}
"#;

    #[test]
    fn all_values_are_named_once() {
        let rows = Rows::parse(ROWS).unwrap();
        let named = properties(&rows);
        let value = |name| {
            let found = named.iter().find(|property| property.name == name);
            found.map(|property| property.values.join("|"))
        };
        assert_eq!(value("kernel").as_deref(), Some("7.3.4|6.1"));
        assert_eq!(value("processors").as_deref(), Some("2"));
        assert_eq!(value("module options"), None);
        let said = sentence(&rows);
        assert!(
            said.contains("commit abc") && said.contains("TCG"),
            "{said}"
        );
        assert!(said.contains("the machine itself") && said.contains("perftest 6.24"));
    }

    fn checked(lines: &[&str]) -> String {
        let result = check(&Rows::parse(&lines.join("\n")).unwrap());
        result.map_or_else(|error| error.to_string(), |()| "fine".to_owned())
    }

    #[test]
    fn rows_that_are_compared_are_of_one_run_and_one_place() {
        let one =
            r#"{"bench":"tail","run":"a","accel":"tcg","cpus":2,"commit":"abc","kernel":"7"}"#;
        assert_eq!(checked(&[one, one]), "fine");
        for (field, from, to) in [
            ("run", r#""a""#, r#""b""#),
            ("accel", "tcg", "kvm"),
            ("cpus", "2", "4"),
            ("commit", "abc", "abd"),
            ("kernel", "7", "8"),
        ] {
            let refusal = checked(&[one, &one.replace(from, to)]);
            assert!(
                refusal.contains(&format!("differ in `{field}`")),
                "{refusal}"
            );
        }
        let nameless = one.replace(r#""run":"a","#, "");
        assert!(checked(&[one, &nameless]).contains("a and none"));
        assert!(checked(&[&nameless, one]).contains("none and a"));
        // Another benchmark may have a run of its own.
        assert_eq!(
            checked(&[one, &one.replace("tail", "mr").replace(r#""a""#, r#""b""#)]),
            "fine"
        );
    }

    #[test]
    fn a_row_names_its_commit() {
        assert!(checked(&[r#"{"bench":"tail","run":"a"}"#]).contains("commit"));
    }

    #[test]
    fn groups_over_shared_memory_are_on_the_machine_itself() {
        let of = |fabric, accel, run| {
            format!(
                r#"{{"bench":"rdmc","fabric":"{fabric}","accel":"{accel}","run":"{run}","commit":"abc"}}"#
            )
        };
        let here = of("shm", "native", "a");
        assert_eq!(
            checked(&[&here, &of("weft", "tcg", "a"), &of("verbs", "tcg", "a")]),
            "fine"
        );
        let refusal = checked(&[&of("weft", "tcg", "a"), &of("verbs", "kvm", "a")]);
        assert!(refusal.contains("`accel`"), "{refusal}");
        let refusal = checked(&[&here, &of("weft", "tcg", "b")]);
        assert!(refusal.contains("`run`"), "{refusal}");
    }

    #[test]
    fn benchmarks_of_one_place_are_of_one_machine() {
        let virtual_one = r#"{"bench":"tail","accel":"tcg","cpus":2,"kernel":"7"}"#;
        let here = r#"{"bench":"rdmc","fabric":"shm","accel":"native","cpus":4,"kernel":"6"}"#;
        let simulated = here.replace("rdmc", "rdmc-sim").replace("shm", "model");
        let is_one = |other: &str| {
            let text = [virtual_one, here, &simulated, other].join("\n");
            is_of_one_machine(&Rows::parse(&text).unwrap())
        };
        let other = virtual_one.replace("tail", "connect");
        assert!(is_one(&other));
        for (from, to) in [("tcg", "kvm"), ("2", "4"), (r#""7""#, r#""8""#)] {
            assert!(!is_one(&other.replace(from, to)), "{to}");
        }
        assert!(!is_one(&here.replace(r#""cpus":4"#, r#""cpus":8"#)));
    }

    #[test]
    fn what_is_of_two_commits_or_of_none_is_known() {
        let of = |commits: &[&str]| {
            let line = |commit| format!("{{\"bench\":\"tail\",\"commit\":\"{commit}\"}}\n");
            let text: String = commits.iter().map(line).collect();
            is_of_one_commit(&Rows::parse(&text).unwrap())
        };
        assert!(of(&["abc", "abc"]));
        assert!(!of(&["abc", "def"]) && !of(&["abc-dirty"]) && !of(&["unknown"]) && !of(&[]));
    }
}
