// SPDX-License-Identifier: MIT OR Apache-2.0

//! What perftest's tools print: a heading that names the columns, then one line of
//! numbers. Columns are found by their names, and what does not fit is an error.

use anyhow::{ensure, Context as _, Result};

/// The path MTU that the tool connected with, in bytes.
pub fn path_mtu(said: &str) -> Result<u32> {
    let value = said.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == "Mtu").then(|| value.trim().trim_end_matches("[B]"))
    });
    let value = value.with_context(|| format!("perftest named no MTU:\n{said}"))?;
    value
        .parse()
        .with_context(|| format!("perftest's MTU is '{value}'"))
}

/// What a latency tool says, in microseconds.
#[derive(Debug, PartialEq)]
pub struct Latency {
    pub requests: u64,
    pub min_us: f64,
    pub typical_us: f64,
    pub avg_us: f64,
    pub p99_us: f64,
}

impl Latency {
    /// Reads it; none if the tool found no rate of the clock and so has no times.
    pub fn parse(said: &str, bytes: u32) -> Result<Option<Self>> {
        let table = Table::parse(said, bytes)?;
        let latency = Self {
            requests: table.requests()?,
            min_us: table.number("t_min[usec]")?,
            typical_us: table.number("t_typical[usec]")?,
            avg_us: table.number("t_avg[usec]")?,
            p99_us: table.number("99%percentile[usec]")?,
        };
        Ok(latency.typical_us.is_finite().then_some(latency))
    }
}

/// What a bandwidth tool says.
#[derive(Debug, PartialEq)]
pub struct Bandwidth {
    pub requests: u64,
    pub ops_per_sec: f64,
}

impl Bandwidth {
    /// Reads it; none if the tool found no rate of the clock and so has no rates.
    ///
    /// Bandwidth has two decimals and the rate six of a million: the larger number
    /// tells more. Both have to agree.
    pub fn parse(said: &str, bytes: u32) -> Result<Option<Self>> {
        let table = Table::parse(said, bytes)?;
        let (mib, mpps) = (
            table.number("BWaverage[MiB/sec]")?,
            table.number("MsgRate[Mpps]")?,
        );
        if !mib.is_finite() || !mpps.is_finite() || mib == 0.0 && mpps == 0.0 {
            return Ok(None);
        }
        let mib_bytes = f64::from(1 << 20) / f64::from(bytes);
        let (by_bytes, by_rate) = (mib * mib_bytes, mpps * 1e6);
        // Each is rounded to half of its last digit.
        let slack = 0.005 * mib_bytes + 0.5;
        ensure!(
            (by_bytes - by_rate).abs() <= slack * 1.01,
            "perftest's bandwidth and rate differ: {mib} MiB/s and {mpps} Mpps of {bytes} bytes"
        );
        let ops_per_sec = if mib / 0.005 > mpps / 5e-7 {
            by_bytes
        } else {
            by_rate
        };
        Ok(Some(Self {
            requests: table.requests()?,
            ops_per_sec,
        }))
    }
}

/// A heading's names and the numbers below them.
struct Table<'a> {
    names: Vec<String>,
    values: Vec<&'a str>,
}

impl<'a> Table<'a> {
    fn parse(said: &'a str, bytes: u32) -> Result<Self> {
        let mut lines = said
            .lines()
            .skip_while(|line| !line.trim().starts_with("#bytes"));
        let context = || format!("perftest printed no table:\n{said}");
        let heading = lines.next().with_context(context)?;
        let values = lines
            .next()
            .with_context(context)?
            .split_whitespace()
            .collect();
        // A unit ends each name but those of the first two columns.
        let heading = heading
            .replace("% percentile", "%percentile")
            .replace("BW ", "BW");
        let table = Self {
            names: heading.split_whitespace().map(str::to_owned).collect(),
            values,
        };
        ensure!(
            table.names.len() == table.values.len(),
            "perftest's table has {} names and {} values:\n{said}",
            table.names.len(),
            table.values.len()
        );
        let measured = table.value("#bytes")?;
        ensure!(
            measured == bytes.to_string(),
            "perftest measured {measured} bytes, not {bytes}"
        );
        Ok(table)
    }

    fn value(&self, name: &str) -> Result<&'a str> {
        let at = self.names.iter().position(|known| known == name);
        let at = at.with_context(|| format!("perftest has no column {name}: {:?}", self.names))?;
        Ok(self.values[at])
    }

    fn number(&self, name: &str) -> Result<f64> {
        let value = self.value(name)?;
        value
            .parse()
            .with_context(|| format!("perftest's {name} is '{value}'"))
    }

    fn requests(&self) -> Result<u64> {
        let value = self.value("#iterations")?;
        value
            .parse()
            .with_context(|| format!("perftest's iterations are '{value}'"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENCY: &str = "\
 Mtu             : 4096[B]
 Outstand reads  : 128
---------------------------------------------------------------------------------------
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] 
 8       1000          43.14          650523.35      58.87    \t       5552.22     \t1865.06\t\t185905.93 \t\t650523.35
---------------------------------------------------------------------------------------
";
    const BANDWIDTH: &str = "\
 Mtu             : 4096[B]
 #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]
 65536      320              104.31             28.01  \t\t     0.000448
";

    #[test]
    fn a_latency_tools_table_is_read_by_its_names() {
        let latency = Latency::parse(LATENCY, 8).unwrap().unwrap();
        assert_eq!(latency.requests, 1000);
        assert_eq!((latency.min_us, latency.typical_us), (43.14, 58.87));
        assert_eq!((latency.avg_us, latency.p99_us), (5552.22, 185_905.93));
        assert_eq!(path_mtu(LATENCY).unwrap(), 4096);
    }

    #[test]
    fn a_bandwidth_tools_rate_has_the_digits_of_the_larger_number() {
        let rate = Bandwidth::parse(BANDWIDTH, 65536).unwrap().unwrap();
        assert_eq!(rate.requests, 320);
        assert!((rate.ops_per_sec - 448.16).abs() < 0.01);
        let small = BANDWIDTH.replace("65536", "8    ").replace("28.01", "0.16");
        let small = small.replace("0.000448", "0.020512");
        let rate = Bandwidth::parse(&small, 8).unwrap().unwrap();
        assert!((rate.ops_per_sec - 20_512.0).abs() < 0.01);
    }

    #[test]
    fn a_tool_without_a_clock_has_no_figures() {
        let inf = LATENCY.replace("58.87", "inf").replace("1865.06", "-nan");
        assert_eq!(Latency::parse(&inf, 8).unwrap(), None);
        let inf = BANDWIDTH.replace("28.01", "inf");
        assert_eq!(Bandwidth::parse(&inf, 65536).unwrap(), None);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        assert!(Latency::parse("", 8).is_err());
        assert!(Latency::parse(LATENCY, 64).is_err());
        assert!(Latency::parse(&LATENCY.replace("t_typical", "t_other"), 8).is_err());
        assert!(Latency::parse(&LATENCY.replace("43.14", ""), 8).is_err());
        assert!(Bandwidth::parse(&BANDWIDTH.replace("0.000448", "0.000600"), 65536).is_err());
        assert!(path_mtu("").is_err());
    }
}
