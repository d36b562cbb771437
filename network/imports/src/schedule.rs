//! Graphs of what the ranks of a job do: which of it waits for which.

use std::collections::VecDeque;

/// Operations that others wait for, all together.
const WAITS_MAX: usize = 1 << 24;

/// What an operation of a rank is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Work {
    /// So many picoseconds of computing.
    Compute(u64),
    /// Its part of a collective or a transfer, by its number.
    Step(usize),
}

/// An operation of a rank.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub work: Work,
    /// Operations of the rank that end before this one begins.
    pub ends: Vec<usize>,
    /// Operations of the rank that begin before this one does.
    pub begins: Vec<usize>,
}

/// An operation that takes time, and those of them that it waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Scheduled {
    /// Its number among those of the rank.
    pub operation: usize,
    pub work: Work,
    pub waits: Vec<usize>,
}

/// Why there is no schedule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Impossible {
    /// This operation waits for itself.
    Circle(usize),
    /// Operations wait for too many others.
    TooMany,
}

/// The operations of a rank that take time, each behind those that it waits for. Computing that is waited for
/// by nothing but further computing, which waits for nothing else, is one with it.
pub(crate) fn schedule(operations: &[Operation]) -> Result<Vec<Scheduled>, Impossible> {
    let order = order(operations)?;
    let mut waits = waits(operations, &order)?;
    let mut work: Vec<Work> = operations.iter().map(|operation| operation.work).collect();
    let mut followers = vec![0_usize; operations.len()];
    for index in &order {
        if work[*index] != Work::Compute(0) {
            waits[*index]
                .iter()
                .for_each(|before| followers[*before] += 1);
        }
    }
    let mut is_left = vec![true; operations.len()];
    for index in &order {
        let [before] = *waits[*index] else { continue };
        if let (Work::Compute(own), Work::Compute(first)) = (work[*index], work[before])
            && own > 0
            && followers[before] == 1
        {
            work[*index] = Work::Compute(own.saturating_add(first));
            waits[*index] = std::mem::take(&mut waits[before]);
            is_left[before] = false;
        }
    }
    let left = order
        .into_iter()
        .filter(|index| is_left[*index] && work[*index] != Work::Compute(0));
    let scheduled = left.map(|operation| Scheduled {
        operation,
        work: work[operation],
        waits: std::mem::take(&mut waits[operation]),
    });
    Ok(scheduled.collect())
}

/// An order in which each operation is behind those that it waits for.
fn order(operations: &[Operation]) -> Result<Vec<usize>, Impossible> {
    let count = operations.len();
    let (mut left, mut followers) = (vec![0_usize; count], vec![Vec::new(); count]);
    for (index, operation) in operations.iter().enumerate() {
        for before in operation.ends.iter().chain(&operation.begins) {
            left[index] += 1;
            followers[*before].push(index);
        }
    }
    let ready = (0..count).filter(|index| left[*index] == 0);
    let mut ready: VecDeque<usize> = ready.collect();
    let mut order = Vec::with_capacity(count);
    while let Some(index) = ready.pop_front() {
        order.push(index);
        for follower in &followers[index] {
            left[*follower] -= 1;
            if left[*follower] == 0 {
                ready.push_back(*follower);
            }
        }
    }
    match left.iter().position(|left| *left > 0) {
        Some(index) => Err(Impossible::Circle(index)),
        None => Ok(order),
    }
}

/// What each operation waits for that takes time.
fn waits(operations: &[Operation], order: &[usize]) -> Result<Vec<Vec<usize>>, Impossible> {
    let mut found: Vec<Vec<usize>> = vec![Vec::new(); operations.len()];
    let mut all = 0;
    for index in order {
        let operation = &operations[*index];
        let mut own = Vec::new();
        for before in &operation.ends {
            match operations[*before].work {
                Work::Compute(0) => own.extend_from_slice(&found[*before]),
                _ => own.push(*before),
            }
        }
        // What begins with another one waits for what that waits for.
        for before in &operation.begins {
            own.extend_from_slice(&found[*before]);
        }
        own.sort_unstable();
        own.dedup();
        all += own.len();
        if all > WAITS_MAX {
            return Err(Impossible::TooMany);
        }
        found[*index] = own;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(work: Work, ends: &[usize], begins: &[usize]) -> Operation {
        Operation {
            work,
            ends: ends.to_vec(),
            begins: begins.to_vec(),
        }
    }

    fn scheduled(operation: usize, work: Work, waits: &[usize]) -> Scheduled {
        Scheduled {
            operation,
            work,
            waits: waits.to_vec(),
        }
    }

    #[test]
    fn what_takes_no_time_is_passed_on() {
        let operations = [
            operation(Work::Step(7), &[], &[]),
            operation(Work::Compute(0), &[0], &[]),
            operation(Work::Compute(0), &[1], &[]),
            operation(Work::Step(8), &[2], &[]),
            // It begins when the step before it does.
            operation(Work::Step(9), &[], &[3]),
        ];
        assert_eq!(
            schedule(&operations).unwrap(),
            [
                scheduled(0, Work::Step(7), &[]),
                scheduled(3, Work::Step(8), &[0]),
                scheduled(4, Work::Step(9), &[0]),
            ]
        );
    }

    #[test]
    fn chains_of_computing_are_one() {
        let operations = [
            operation(Work::Step(1), &[], &[]),
            operation(Work::Compute(10), &[0], &[]),
            operation(Work::Compute(20), &[1], &[]),
            operation(Work::Compute(30), &[2], &[]),
            // Two wait for this one.
            operation(Work::Compute(1), &[3], &[]),
            operation(Work::Step(2), &[4], &[]),
            operation(Work::Compute(2), &[4], &[]),
        ];
        assert_eq!(
            schedule(&operations).unwrap(),
            [
                scheduled(0, Work::Step(1), &[]),
                scheduled(4, Work::Compute(61), &[0]),
                scheduled(5, Work::Step(2), &[4]),
                scheduled(6, Work::Compute(2), &[4]),
            ]
        );
    }

    #[test]
    fn an_operation_that_waits_for_itself_is_named() {
        let operations = [
            operation(Work::Compute(1), &[], &[]),
            operation(Work::Compute(1), &[2], &[]),
            operation(Work::Compute(1), &[], &[1]),
        ];
        assert_eq!(schedule(&operations).unwrap_err(), Impossible::Circle(1));
    }
}
