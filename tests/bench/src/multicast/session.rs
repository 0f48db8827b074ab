// SPDX-License-Identifier: MIT OR Apache-2.0

//! One slice of a case: its members are started, meet, measure and end.

use anyhow::{Context as _, Result};
use weft_testkit::place::Meeting;

use super::args::Pace;
use super::case::Case;
use super::seen::Seen;
use crate::child::Helper;

/// What each member saw, by rank.
pub fn slice(case: &Case, pace: Pace) -> Result<Vec<Seen>> {
    let meeting = Meeting::call();
    let text = serde_json::to_string(case)?;
    let start = |rank: usize| {
        let args = [
            "member".to_owned(),
            format!("--case={text}"),
            format!("--rank={rank}"),
            format!("--meeting={meeting}"),
            format!("--warm-up-ms={}", pace.warm_up_ms),
            format!("--slice-ms={}", pace.slice_ms),
            format!("--lone-messages={}", pace.lone_messages),
        ];
        Helper::spawn(&args)
    };
    let mut members = (0..case.members).map(start).collect::<Result<Vec<_>>>()?;
    for member in &mut members {
        member.hear::<String>().context("the members do not meet")?;
    }
    members.iter_mut().try_for_each(Helper::go_on)?;
    let seen = members.iter_mut().map(Helper::hear).collect();
    // All at once: who goes first ends what the others are about.
    members.iter_mut().for_each(Helper::let_go);
    seen
}
