//! What happens at a point.

use crate::text::Words;
use crate::value::{errno, errno_text, time, time_text};
use crate::{Point, RuleError, WcStatus};
use core::fmt;
use core::time::Duration;

/// What a rule makes happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// The call does nothing, and returns this error number.
    Fail(i32),
    /// The call takes longer.
    Slow(Duration),
    /// The call waits for this time, or until the rule is removed.
    Block(Option<Duration>),
    /// The request is not executed, and completes with this status.
    Status(WcStatus),
    /// The completion is reported later, and those of its queue pair behind it.
    Late(Duration),
}

const OF_CALLS: &str = "write fail ERRNO, slow TIME or block [TIME]";
const OF_COMPLETIONS: &str = "write status STATUS or late TIME";

impl Action {
    pub(crate) fn parse(point: Point, words: &mut Words<'_>) -> Result<Self, RuleError> {
        let example = match point {
            Point::Call(_) => "reg_mr: fail ENOMEM",
            Point::Completion => "completion: status RETRY_EXC_ERR",
        };
        let verb = words.next_or(&format!("{point}:"), "what happens", example)?;
        match (point, verb) {
            (Point::Call(_), "fail") => {
                let number = words.next_or(verb, "an error number", "reg_mr: fail ENOMEM")?;
                errno(number).map(Self::Fail)
            }
            (Point::Call(_), "slow") => {
                time(words.next_or(verb, "a time", "post_send: slow 10us")?).map(Self::Slow)
            }
            (Point::Call(_), "block") => match words.peek() {
                Some(word) if word.starts_with(|first: char| first.is_ascii_digit()) => {
                    words.skip();
                    time(word).map(Some).map(Self::Block)
                }
                _ => Ok(Self::Block(None)),
            },
            (Point::Completion, "status") => {
                let status = words.next_or(verb, "a status", "completion: status RETRY_EXC_ERR")?;
                WcStatus::parse(status).map(Self::Status)
            }
            (Point::Completion, "late") => {
                time(words.next_or(verb, "a time", "completion: late 5ms")?).map(Self::Late)
            }
            (_, "double" | "duplicate" | "twice") => Err(RuleError::Impossible(
                "a work request completes once, so that its wr_id can be used again".to_owned(),
            )),
            (Point::Completion, "drop" | "lose" | "never") => Err(RuleError::Impossible(
                "each signaled request completes, in error if need be; write `late` with a long time, or \
                 a status"
                    .to_owned(),
            )),
            (Point::Call(_), _) => Err(RuleError::wrong("fault of a call", verb, OF_CALLS)),
            (Point::Completion, _) => {
                Err(RuleError::wrong("fault of a completion", verb, OF_COMPLETIONS))
            }
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fail(number) => write!(f, "fail {}", errno_text(*number)),
            Self::Slow(time) => write!(f, "slow {}", time_text(*time)),
            Self::Block(None) => f.write_str("block"),
            Self::Block(Some(time)) => write!(f, "block {}", time_text(*time)),
            Self::Status(status) => write!(f, "status {status}"),
            Self::Late(time) => write!(f, "late {}", time_text(*time)),
        }
    }
}
