// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the results come from, as their rows name it.

use crate::rows::Rows;

/// Fields that name it, and what they are called in the report.
const FIELDS: [(&str, &str); 7] = [
    ("kernel", "kernel"),
    ("accel", "accelerator"),
    ("cpus", "processors"),
    ("commit", "commit"),
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
