// SPDX-License-Identifier: MIT OR Apache-2.0

//! Groups in which members that hang are suspected, and one is stopped.

use std::time::Duration;

use anyhow::Result;
use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;

use super::{found, hear, member, Change, Ground, Measured, PutOut, Resumed, ViewsArgs};

/// How long nobody hangs, and nobody should be suspected.
const LOADED: Duration = Duration::from_secs(1);

/// So many groups.
pub fn measure(args: &ViewsArgs, ground: Ground, groups: u32) -> Result<Measured> {
    let mut hangs = Measured::new(ground, Change::Hang);
    let mut wrong = 0;
    for number in 0..groups {
        match hang(args, number, ground) {
            Ok(Some(group)) => group.record(&mut hangs),
            Ok(None) => wrong += 1,
            Err(error) if error.is::<PutOut>() => wrong += 1,
            Err(error) => return Err(error),
        }
    }
    hangs.wrong = Some(wrong);
    Ok(hangs)
}

/// The doings of a group whose member was stopped.
struct Hang {
    /// From then until the last of the others had delivered without it.
    resumed_ns: u64,
    pause_ns: u64,
}

impl Hang {
    fn record(&self, hangs: &mut Measured) {
        hangs.resumed(self.resumed_ns);
        hangs.pauses.record(Duration::from_nanos(self.pause_ns));
    }
}

/// One group. Answers with nothing if somebody was put out before the one that hangs.
fn hang(args: &ViewsArgs, number: u32, ground: Ground) -> Result<Option<Hang>> {
    let (_, mut members) = found(args, ground)?;
    std::thread::sleep(LOADED);
    let stopped_ns = member::now_ns()?;
    let victim = usize::try_from(number)? % members.0.len();
    let pid = Pid::from_raw(members.0[victim].pid().try_into()?);
    kill(pid, Signal::SIGSTOP)?;
    let others = members.0.iter_mut().enumerate();
    let others = others.filter(|(rank, _)| *rank != victim);
    let all = heard(others.map(|(_, member)| hear(member)))?;
    Ok(after(stopped_ns, &all))
}

/// The word of all members. That one was put out is told only if nothing worse has happened.
fn heard(said: impl Iterator<Item = Result<Resumed>>) -> Result<Vec<Resumed>> {
    let (mut all, mut put_out) = (Vec::new(), None);
    for one in said {
        match one {
            Ok(resumed) => all.push(resumed),
            Err(error) if error.is::<PutOut>() => put_out = Some(error),
            Err(error) => return Err(error),
        }
    }
    put_out.map_or(Ok(all), Err)
}

/// How long it took since a member was stopped; nothing if one had gone on in a new view before.
fn after(stopped_ns: u64, all: &[Resumed]) -> Option<Hang> {
    let since = |resumed: &Resumed| resumed.at_ns.checked_sub(stopped_ns);
    let since: Vec<u64> = all.iter().map(since).collect::<Option<_>>()?;
    Some(Hang {
        resumed_ns: since.into_iter().max()?,
        pause_ns: all.iter().map(|resumed| resumed.pause_ns).max()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    fn resumed(at_ns: u64, pause_ns: u64) -> Resumed {
        Resumed {
            view: 2,
            at_ns,
            pause_ns,
            message_ns: None,
        }
    }

    fn put_out() -> Result<Resumed> {
        Err(PutOut("the others have gone on".to_owned()).into())
    }

    #[test]
    fn only_those_that_were_put_out_are_wrong() {
        let good = || Ok(resumed(5, 1));
        assert_eq!(heard([good(), good()].into_iter()).unwrap().len(), 2);
        let error = heard([good(), put_out(), good()].into_iter()).unwrap_err();
        assert!(error.is::<PutOut>());
        let crash = || Err(anyhow!("the peer ended too soon"));
        for all in [[put_out(), crash()], [crash(), put_out()]] {
            assert!(!heard(all.into_iter()).unwrap_err().is::<PutOut>());
        }
    }

    #[test]
    fn a_hang_lasts_until_the_last_one_goes_on() {
        let hang = after(100, &[resumed(130, 20), resumed(150, 10)]).unwrap();
        assert_eq!((hang.resumed_ns, hang.pause_ns), (50, 20));
        assert!(after(100, &[resumed(99, 20), resumed(150, 10)]).is_none());
    }
}
