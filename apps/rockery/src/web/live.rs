//! Requests to the servers and labs of this user, for pages that repeat them every second.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::printable::Printable;

/// The time limit of each server and lab for all of its answers.
pub(super) const TIME_MAX: Duration = Duration::from_secs(2);
/// Servers or labs that are queried at most, each by a thread of its own.
const ASKED_MAX: usize = 64;
/// How long an answer is given to other pages too, so that several pages disturb labs no more than one.
const SHARED: Duration = Duration::from_millis(300);

/// The last answers.
#[derive(Debug, Default)]
pub(super) struct Live {
    pub(super) devices: Shared,
    pub(super) storage: Shared,
    pub(super) labs: Shared,
}

/// An answer that all pages share.
#[derive(Debug, Default)]
pub(super) struct Shared(Mutex<Option<(Instant, Vec<u8>)>>);

impl Shared {
    /// The last answer, or a new one if that is too old. Pages that ask meanwhile wait for it.
    pub(super) fn answer(&self, now: impl FnOnce() -> Value) -> Vec<u8> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((at, answer)) if at.elapsed() < SHARED => answer.clone(),
            _ => {
                let answer = now().to_string().into_bytes();
                *last = Some((Instant::now(), answer.clone()));
                answer
            }
        }
    }
}

/// The outcome of a request.
pub(super) enum Answer {
    /// The counters of the server or lab, in the form that the page gets.
    Figures(Value),
    /// No counters: the server or lab has ended.
    Ended,
    /// No counters, and the reason.
    Problem(String),
}

/// Queries everything in `names` at once. The document has the figures in the order of the names under `key`,
/// and `problems`: texts.
pub(super) fn ask_all<T: Send>(
    key: &str,
    names: Vec<T>,
    ask: impl Fn(T) -> Answer + Sync,
) -> Value {
    let left_out = names.len().saturating_sub(ASKED_MAX);
    let (mut figures, mut problems) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        let start = |name| {
            let ask = &ask;
            std::thread::Builder::new()
                .name("live".to_owned())
                .spawn_scoped(scope, move || ask(name))
        };
        let threads: Vec<_> = names.into_iter().take(ASKED_MAX).map(start).collect();
        for thread in threads {
            match thread.map(|thread| thread.join()) {
                Ok(Ok(Answer::Figures(value))) => figures.push(value),
                Ok(Ok(Answer::Problem(text))) => problems.push(text),
                Ok(Ok(Answer::Ended)) => {}
                Ok(Err(_)) | Err(_) => {
                    problems.push("rockery web has too few resources to ask".to_owned())
                }
            }
        }
    });
    if left_out > 0 {
        problems.push(format!("{left_out} more are not shown"));
    }
    json!({ key: figures, "problems": problems })
}

/// A text of another process, with control characters escaped.
pub(super) fn shown(text: &str) -> String {
    Printable(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_ended_is_left_out_and_problems_are_texts() {
        let ask = |name: usize| match name {
            0 => Answer::Ended,
            1 => Answer::Problem("one: it is busy".to_owned()),
            _ => Answer::Figures(json!(name)),
        };
        let answer = ask_all("labs", (0..4).collect(), ask);
        assert_eq!(
            answer,
            json!({ "labs": [2, 3], "problems": ["one: it is busy"] })
        );
        let answer = ask_all("labs", (2..2 + ASKED_MAX + 5).collect(), ask);
        assert_eq!(answer["labs"].as_array().unwrap().len(), ASKED_MAX);
        assert_eq!(answer["problems"], json!(["5 more are not shown"]));
    }

    #[test]
    fn pages_share_an_answer() {
        let shared = Shared::default();
        assert_eq!(shared.answer(|| json!(1)), b"1");
        // The second question may come later on a slow machine: then it is asked anew, and only then.
        let asked_at = Instant::now();
        let second = shared.answer(|| json!(2));
        assert!(second == b"1" || asked_at.elapsed() >= SHARED, "{second:?}");
        *shared.0.lock().unwrap() = Instant::now()
            .checked_sub(SHARED)
            .map(|at| (at, b"1".to_vec()));
        assert_eq!(shared.answer(|| json!(3)), b"3");
    }
}
