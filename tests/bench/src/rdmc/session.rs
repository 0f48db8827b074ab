// SPDX-License-Identifier: MIT OR Apache-2.0

//! Members are started, meet, measure and end.

use anyhow::{Context as _, Result};
use weft_testkit::place::Meeting;

use super::board::BoardFile;
use super::member::{Seen, Session};
use crate::child::Helper;

/// What each member saw of each variant.
pub fn run(session: &Session) -> Result<Vec<Vec<Seen>>> {
    let (meeting, board) = (Meeting::call(), BoardFile::create()?);
    let text = serde_json::to_string(session)?;
    let start = |rank: usize| {
        let args = [
            "rdmc-member".to_owned(),
            format!("--session={text}"),
            format!("--rank={rank}"),
            format!("--meeting={meeting}"),
            format!("--board={}", board.path().display()),
        ];
        Helper::spawn(&args)
    };
    let mut members = (0..session.load.members)
        .map(start)
        .collect::<Result<Vec<_>>>()?;
    for member in &mut members {
        member.hear::<String>().context("the members do not meet")?;
    }
    members.iter_mut().try_for_each(Helper::go_on)?;
    let seen = members.iter_mut().map(Helper::hear).collect();
    // All at once: who goes first ends what the others are about.
    members.iter_mut().for_each(Helper::let_go);
    seen
}
