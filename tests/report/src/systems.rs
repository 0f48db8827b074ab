// SPDX-License-Identifier: MIT OR Apache-2.0

//! What is compared in most charts: user-space verbs, Weft over DC and over RC, and
//! perftest, in this order, so that each looks the same everywhere.

use crate::chart::Line;
use crate::rows::{Best, Selection};

/// A system over a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    Verbs,
    WeftDc,
    WeftRc,
    Perftest,
}

impl System {
    /// All of them, in the charts' order.
    pub const ALL: [Self; 4] = [Self::Verbs, Self::WeftDc, Self::WeftRc, Self::Perftest];

    /// Its name in charts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Verbs => "verbs",
            Self::WeftDc => "Weft over DC",
            Self::WeftRc => "Weft over RC",
            Self::Perftest => "perftest",
        }
    }

    /// Its rows.
    pub fn of(self, rows: Selection<'_>) -> Selection<'_> {
        match self {
            Self::Verbs => rows.is("system", "verbs"),
            Self::WeftDc => rows.is("system", "weft").is("transport", "dc"),
            Self::WeftRc => rows.is("system", "weft").is("transport", "rc"),
            Self::Perftest => rows.is("system", "perftest"),
        }
    }
}

/// A line of each.
pub fn lines(rows: &Selection<'_>, x: &str, y: &str, best: Best) -> Vec<Line> {
    let line = |system: System| {
        let points = system.of(rows.clone()).points(x, y, best);
        Line::new(system.name(), points)
    };
    System::ALL.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Rows;

    #[test]
    fn each_system_has_its_line_even_if_it_is_empty() {
        let rows = Rows::parse(
            r#"
{"bench":"datapath","system":"weft","transport":"rc","bytes":8,"lat":2}
{"bench":"datapath","system":"perftest","transport":"rc","bytes":8,"lat":1}
"#,
        );
        let lines = lines(&rows.unwrap().of("datapath"), "bytes", "lat", Best::Least);
        let points: Vec<_> = lines.iter().map(|line| &line.points[..]).collect();
        assert_eq!(points, [&[][..], &[], &[(8.0, 2.0)], &[(8.0, 1.0)]]);
        assert_eq!(lines[3].name, "perftest");
    }
}
