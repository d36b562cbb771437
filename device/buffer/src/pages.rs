//! Sets of pages of a buffer, which several threads may add to.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// A set of pages.
pub(crate) struct Pages(Box<[AtomicU64]>);

/// The words of a range of bits, and the bits in each.
fn words(range: &Range<usize>) -> impl Iterator<Item = (usize, u64)> {
    let Range { start, end } = range.clone();
    (start / 64..end.div_ceil(64))
        .filter(move |_| start < end)
        .map(move |word| {
            let first = start.saturating_sub(word * 64);
            let behind = (end - word * 64).min(64);
            (word, u64::MAX >> (64 - (behind - first)) << first)
        })
}

impl Pages {
    /// The empty set of this many pages.
    pub(crate) fn new(count: usize) -> Self {
        Self((0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    pub(crate) fn insert(&self, range: &Range<usize>) {
        for (word, bits) in words(range) {
            if let Some(word) = self.0.get(word) {
                word.fetch_or(bits, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn remove(&mut self, range: &Range<usize>) {
        for (word, bits) in words(range) {
            if let Some(word) = self.0.get_mut(word) {
                *word.get_mut() &= !bits;
            }
        }
    }

    /// Whether one of these pages is in the set.
    pub(crate) fn has_any(&self, range: &Range<usize>) -> bool {
        words(range).any(|(word, bits)| {
            self.0
                .get(word)
                .is_some_and(|it| it.load(Ordering::Relaxed) & bits != 0)
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| word.load(Ordering::Relaxed) == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_added_and_removed() {
        let mut pages = Pages::new(256);
        for (start, end) in [
            (0, 1),
            (63, 64),
            (63, 65),
            (64, 128),
            (3, 200),
            (0, 256),
            (255, 256),
        ] {
            assert!(pages.is_empty() && !pages.has_any(&(0..256)));
            pages.insert(&(start..end));
            for page in 0..256 {
                assert_eq!(
                    pages.has_any(&(page..page + 1)),
                    (start..end).contains(&page),
                    "{page}"
                );
            }
            assert!(!pages.has_any(&(0..start)) && !pages.has_any(&(end..256)));
            pages.remove(&(start..end));
        }
        pages.insert(&(0..256));
        pages.remove(&(10..100));
        assert!(
            pages.has_any(&(9..10)) && !pages.has_any(&(10..100)) && pages.has_any(&(100..101))
        );
        assert!(!pages.has_any(&(5..5)));
    }
}
